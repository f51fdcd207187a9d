// What libcolibri.so shows and needs, read from the file itself: the committed list of exported
// symbols, its name, no code that is patched while it is loaded, no executable stack, and no
// calls of its own functions through a table. A change of the list is a change of the interface;
//   COLIBRI_REWRITE_BASELINE=1 build/release/bin/shared_library_test
// rewrites it.
#include <cxxabi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <regex>
#include <set>
#include <sstream>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

constexpr const char* kRewrite = "COLIBRI_REWRITE_BASELINE=1 build/release/bin/shared_library_test";

// Standard output of a tool of binutils, which are there where there is a compiler.
std::string printed(std::vector<std::string> command) {
  command.push_back(COLIBRI_SHARED_LIBRARY);
  RunOptions options;
  options.environment = {{"LC_ALL", "C"}};
  const RunResult result = run_program(command, options);
  EXPECT_EQ(result.status, 0) << command.front() << ": " << result.err;
  return result.out;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) found.push_back(line);
  }
  return found;
}

// First words of the lines of nm, without the version that follows an @.
std::set<std::string> symbols(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) names.insert(line.substr(0, line.find_first_of(" @")));
  return names;
}

// The symbols of which the file is the list; what follows one is for the reader.
std::set<std::string> listed(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != '#') names.insert(line.substr(0, line.find(' ')));
  }
  return names;
}

std::string readable(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

std::set<std::string> exported() {
  std::set<std::string> names = symbols(printed({"nm", "-D", "--defined-only", "--format=posix"}));
  std::erase_if(names, [](const std::string& name) { return name.starts_with("COLIBRI_"); });  // the version
  return names;
}

std::string list_text(const std::set<std::string>& names) {
  std::string text = "# What libcolibri.so exports, and what each symbol means. Rewritten by\n#   " +
                     std::string(kRewrite) + "\n";
  for (const std::string& name : names) {
    text += name;
    if (const std::string meaning = readable(name); meaning != name) text += "  " + meaning;
    text += "\n";
  }
  return text;
}

TEST(SharedLibrary, ExportsWhatTheListSays) {
  const std::string file = std::string(COLIBRI_TEST_DATA) + "/install/exported_symbols.txt";
  const std::set<std::string> found = exported();
  if (std::getenv("COLIBRI_REWRITE_BASELINE") != nullptr) {
    write_file(file, list_text(found));
    GTEST_SKIP() << "wrote " << file;
  }
  const std::set<std::string> wanted = listed(read_file(file));
  for (const std::string& name : found) {
    EXPECT_TRUE(wanted.contains(name)) << "exported, and not in the list: " << readable(name) << "\n"
                                       << "If it is meant to be so, rewrite the list: " << kRewrite;
  }
  for (const std::string& name : wanted) {
    EXPECT_TRUE(found.contains(name)) << "in the list, and not exported: " << readable(name)
                                      << "\nHosts that are linked with it do not start any more. If the "
                                         "version of the library says so, rewrite the list: "
                                      << kRewrite;
  }
  EXPECT_GT(found.size(), 100U);
}

// Other libraries' code, the kernels' own parts and instances of templates stay inside.
TEST(SharedLibrary, ExportsNothingButItsOwnInterface) {
  for (const std::string& symbol : exported()) {
    const std::string name = readable(symbol);
    EXPECT_TRUE(symbol.starts_with("colibri_") || name.starts_with("colibri::")) << name;
    for (const char* inside : {"kernels::scalar", "kernels::avx", "<", "::State::", "::Parts::"}) {
      const std::string before_arguments = name.substr(0, name.find('('));
      EXPECT_EQ(before_arguments.find(inside), std::string::npos) << name;
    }
  }
}

// colibri.h and the library agree on the functions that there are.
TEST(SharedLibrary, HasTheFunctionsOfTheCHeader) {
  const std::string header = read_file(COLIBRI_INCLUDE "/colibri/colibri.h");
  const std::regex function("COLIBRI_C_API[^;(]*\\b(colibri_\\w+)\\(");
  std::set<std::string> declared;
  for (std::sregex_iterator found(header.begin(), header.end(), function), end; found != end; ++found) {
    declared.insert((*found)[1]);
  }
  std::set<std::string> defined = exported();
  std::erase_if(defined, [](const std::string& name) { return !name.starts_with("colibri_"); });
  EXPECT_EQ(declared, defined);
}

TEST(SharedLibrary, IsCompleteAndNamed) {
  const std::string dynamic = printed({"readelf", "-dW"});
  const std::vector<std::string> soname = lines_with(dynamic, "(SONAME)");
  ASSERT_EQ(soname.size(), 1U);
  EXPECT_NE(soname.front().find("[libcolibri.so." COLIBRI_SOVERSION "]"), std::string::npos)
      << soname.front();
  EXPECT_TRUE(lines_with(dynamic, "TEXTREL").empty());
  EXPECT_TRUE(lines_with(dynamic, "RPATH").empty() && lines_with(dynamic, "RUNPATH").empty()) << dynamic;
  for (const std::string& name : symbols(printed({"nm", "-D", "--undefined-only", "--format=posix"}))) {
    EXPECT_FALSE(name.starts_with("colibri_") || readable(name).find("colibri::") != std::string::npos)
        << readable(name);
  }
  // What it is linked with: no library that only the program needs.
  const std::regex needed(
      "tbb|yaml-cpp|hwloc|numa|pcre2-8|utf8proc|uring|xxhash|crypto|stdc\\+\\+|m|gcc_s|c|pthread");
  for (const std::string& line : lines_with(dynamic, "(NEEDED)")) {
    std::smatch name;
    ASSERT_TRUE(std::regex_search(line, name, std::regex("\\[(lib|ld-)([^\\]]+?)\\.so")));
    EXPECT_TRUE(name[1] == "ld-" || std::regex_match(name[2].str(), needed)) << line;
  }
}

TEST(SharedLibrary, HasNoExecutableStack) {
  const std::vector<std::string> stack = lines_with(printed({"readelf", "-lW"}), "GNU_STACK");
  ASSERT_EQ(stack.size(), 1U);
  EXPECT_EQ(stack.front().find("RWE"), std::string::npos) << stack.front();
}

// An exported function is called from inside as directly as a hidden one.
TEST(SharedLibrary, CallsItsOwnFunctionsDirectly) {
  const std::vector<std::string> calls = lines_with(printed({"readelf", "-rW"}), "JUMP_SLO");
  EXPECT_FALSE(calls.empty());
  for (const std::string& call : calls) {
    EXPECT_EQ(call.find("_ZN7colibri"), std::string::npos) << call;
    EXPECT_EQ(call.find("_ZNK7colibri"), std::string::npos) << call;
    EXPECT_EQ(call.find(" colibri_"), std::string::npos) << call;
  }
}

}  // namespace
}  // namespace colibri::test
