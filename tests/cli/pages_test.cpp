// The manual page and the shells' completion against the program's own help: every verb, option
// and value is in them, and the shells offer them.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

std::string page(const std::string& name) { return read_file(COLIBRI_PAGES "/" + name); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool is_installed(const std::string& program) {
  return run_program({"sh", "-c", "command -v " + program + " >/dev/null"}).status == 0;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// What the help of a verb lists.
struct Help {
  std::vector<std::string> options;                                      // "-o", "--output"
  std::vector<std::pair<std::string, std::vector<std::string>>> values;  // of "--task"
  std::vector<std::string> verbs;
};

Help help_of(const std::vector<std::string>& verb) {
  std::vector<std::string> arguments = verb;
  arguments.push_back("--help");
  const RunResult result = run_colibri(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  Help help;
  std::string section;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) {
      section = line;
      continue;
    }
    if (line.starts_with("   ")) continue;  // goes on with the entry above
    std::istringstream words(line);
    std::string name, type;
    words >> name >> type;
    if (section == "Options:") {
      const std::vector<std::string> names = split(name, ',');
      help.options.insert(help.options.end(), names.begin(), names.end());
      if (const std::size_t open = type.find('{'); open != std::string::npos) {
        const std::string list = type.substr(open + 1, type.find('}') - open - 1);
        help.values.emplace_back(names.back(), split(list, ','));
      }
    } else if (section == "Verbs:" || section == "Subcommands:") {
      help.verbs.push_back(name);
    }
  }
  return help;
}

// Calls check(verb, help) for the program and each verb.
template <class Check>
int for_each_verb(Check check, const std::vector<std::string>& verb = {}) {
  const Help help = help_of(verb);
  check(verb, help);
  int count = 1;
  for (const std::string& below : help.verbs) {
    std::vector<std::string> path = verb;
    path.push_back(below);
    count += for_each_verb(check, path);
  }
  return count;
}

std::string spaced(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// "--max-rows" as roff writes it.
std::string in_roff(const std::string& text) {
  std::string escaped;
  for (const char letter : text) escaped += letter == '-' ? "\\-" : std::string(1, letter);
  return escaped;
}

TEST(ManualPage, HasEveryVerbAndOption) {
  const std::string manual = page("colibri.1");
  const int verbs = for_each_verb([&](const std::vector<std::string>& verb, const Help& help) {
    std::string section = manual;
    if (!verb.empty()) {
      const std::size_t begin = manual.find(".SS " + in_roff(spaced(verb)) + "\n");
      ASSERT_NE(begin, std::string::npos) << spaced(verb);
      section = manual.substr(begin, manual.find("\n.S", begin + 1) - begin);
    }
    for (const std::string& option : help.options) {
      EXPECT_TRUE(contains(section, "\\fB" + in_roff(option) + "\\fR")) << spaced(verb) << " " << option;
    }
    for (const auto& [option, values] : help.values) {
      for (const std::string& value : values) EXPECT_TRUE(contains(section, value)) << option << " " << value;
    }
  });
  EXPECT_GT(verbs, 15);
}

TEST(ManualPage, HasNoMistakes) {
  if (!is_installed("groff")) GTEST_SKIP() << "groff is not installed";
  const RunResult result =
      run_program({"groff", "-man", "-Tascii", "-P-cbou", "-ww", "-rLL=100n", COLIBRI_PAGES "/colibri.1"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  for (const char* text : {"EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "--experts-memory 25%"}) {
    EXPECT_TRUE(contains(result.out, text)) << text;
  }
}

// What bash offers when the tabulator key is pressed after these words.
std::set<std::string> bash_offers(const std::vector<std::string>& words) {
  std::string line = "source " COLIBRI_PAGES "/colibri.bash; COMP_WORDS=(";
  for (const std::string& word : words) line += "'" + word + "' ";
  line +=
      "); COMP_CWORD=" + std::to_string(words.size() - 1) + "; _colibri; printf '%s\\n' \"${COMPREPLY[@]}\"";
  const RunResult result = run_program({"bash", "--norc", "-c", line});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::vector<std::string> offered = split(result.out, '\n');
  return {offered.begin(), offered.end()};
}

std::set<std::string> as_set(const std::vector<std::string>& words) { return {words.begin(), words.end()}; }

TEST(BashCompletion, OffersVerbsOptionsAndValues) {
  for_each_verb([](const std::vector<std::string>& verb, const Help& help) {
    std::vector<std::string> words = {"colibri"};
    words.insert(words.end(), verb.begin(), verb.end());
    const auto after = [&](std::vector<std::string> more) {
      more.insert(more.begin(), words.begin(), words.end());
      return bash_offers(more);
    };
    EXPECT_EQ(after({"-"}), as_set(help.options)) << spaced(verb);
    if (!help.verbs.empty()) {
      EXPECT_EQ(after({""}), as_set(help.verbs)) << spaced(verb);
    }
    for (const auto& [option, values] : help.values) {
      EXPECT_EQ(after({option, ""}), as_set(values)) << option;
      EXPECT_EQ(after({option, "=", ""}), as_set(values)) << option;
      EXPECT_EQ(after({option, "="}), as_set(values)) << option;
    }
  });
  EXPECT_EQ(bash_offers({"colibri", "help", "conv"}), (std::set<std::string>{"convert"}));
  EXPECT_EQ(bash_offers({"colibri", "batch", "model", "--in"}), (std::set<std::string>{"--in-order"}));
  // Files are the shell's own business.
  EXPECT_EQ(bash_offers({"colibri", "batch", ""}), std::set<std::string>{});
  EXPECT_EQ(bash_offers({"colibri", "batch", "--output", ""}), std::set<std::string>{});
}

TEST(FishCompletion, OffersVerbsOptionsAndValues) {
  if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
  const auto offers = [](const std::string& line) {
    const RunResult result = run_program(
        {"fish", "--no-config", "-c", "source " COLIBRI_PAGES "/colibri.fish; complete -C '" + line + "'"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::set<std::string> offered;
    for (const std::string& word : split(result.out, '\n')) offered.insert(word.substr(0, word.find('\t')));
    return offered;
  };
  for_each_verb([&](const std::vector<std::string>& verb, const Help& help) {
    const std::string line = "colibri " + (verb.empty() ? "" : spaced(verb) + " ");
    if (!help.verbs.empty()) {
      EXPECT_EQ(offers(line), as_set(help.verbs)) << line;
    }
    const std::set<std::string> options = offers(line + "--");
    for (const std::string& option : help.options) {
      EXPECT_TRUE(!option.starts_with("--") || options.contains(option)) << line << option;
    }
    for (const auto& [option, values] : help.values) {
      EXPECT_EQ(offers(line + option + " "), as_set(values)) << line << option;
    }
  });
}

TEST(ZshCompletion, HasEveryVerbOptionAndValue) {
  const std::string text = page("_colibri");
  EXPECT_TRUE(text.starts_with("#compdef colibri\n"));
  for_each_verb([&](const std::vector<std::string>& verb, const Help& help) {
    std::string name = "_colibri";
    for (const std::string& word : verb) name += "_" + word;
    const std::size_t begin = text.find("\n" + name + "() {\n");
    ASSERT_NE(begin, std::string::npos) << name;
    const std::string body = text.substr(begin, text.find("\n}\n", begin) - begin);
    for (const std::string& option : help.options) EXPECT_TRUE(contains(body, option)) << name << option;
    for (const std::string& below : help.verbs) EXPECT_TRUE(contains(body, "    " + below + ") ")) << below;
    for (const auto& [option, values] : help.values) {
      EXPECT_TRUE(contains(body, "(" + spaced(values) + ")")) << name << " " << option;
    }
  });
  if (!is_installed("zsh")) GTEST_SKIP() << "zsh is not installed: its syntax is not checked";
  const RunResult result = run_program({"zsh", "-f", "-n", COLIBRI_PAGES "/_colibri"});
  EXPECT_EQ(result.status, 0) << result.err;
}

}  // namespace
}  // namespace colibri::test
