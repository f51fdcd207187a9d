// How a verb declares what it takes: options with values, flags without, positionals by their place.
//
// Thin handles on the parser, CLI11, whose headers take longer to compile than any verb: verbs include this
// one. Handles may be copied; what they stand for lives as long as the parser. Variables must outlive the
// parsing; the parser and what on_run captures must outlive the run.
//
//   Verb verb = program.verb("verify", "Check every checksum of a container");
//   verb.positional("DIR", *folder, "The container").required();
//   verb.on_run(context, [folder, &context] { return run_verify(*folder, context); });
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/cli/verb.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace colibri::cli {

// Empty when the text is a value; else what is wrong with it, as the user shall read it.
using ValueCheck = std::string (*)(const std::string& text);

// An option, a flag or a positional. Help lists the checks of its value next to the type of its variable, in
// the order of their declaration.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option required();
  // `value_name` stands in the help for what is checked: "SIZE".
  Option check(ValueCheck check, const std::string& value_name = "");
  Option one_of(std::vector<std::string> choices);
  // Both ends belong to it. The type is shown: INT, UINT, FLOAT.
  Option range(int lowest, int highest);
  Option range(std::uint32_t lowest, std::uint32_t highest);
  Option range(double lowest, double highest);
  // Help tells what the variable holds now.
  Option show_default();
  // Both together are refused, in either order.
  Option excludes(const Option& other);
  // A list is typed as one word: 1,2,4.
  Option separated_by(char separator);
  // A list takes one value each time that its name is typed, so that positionals can follow.
  Option one_value_each();
  // Values are taken as they are parsed: in the order of the command line, among all such options.
  Option as_parsed();

  // Whether the command line has it; known when it is parsed.
  bool given() const;

 private:
  CLI::Option* option_;
};

// A verb, a group of verbs, or the program itself.
class Verb {
 public:
  explicit Verb(CLI::App& parser) : parser_(&parser) {}

  // A verb below this one.
  Verb verb(const std::string& name, const std::string& description);
  // One of the verbs below must be named; usage calls it `what`.
  void require_verb(const std::string& what);
  // Text below the options in the help: notes, examples.
  void footer(const std::string& text);

  Option positional(const std::string& name, std::string& value, const std::string& description);
  // `names` as in "-o,--output". A value is a std::string, std::uint32_t, std::uint64_t, float, double, or a
  // list (std::vector) of strings or std::uint32_t.
  template <class Value>
  Option option(const std::string& names, Value& value, const std::string& description);
  Option flag(const std::string& names, bool& value, const std::string& description);

  // The same for what is done instead of stored.
  Option on_option(const std::string& names, std::function<void(const std::string&)> take,
                   const std::string& description);
  // Takes any number of values.
  Option on_list(const std::string& names, std::function<void(const std::string&)> take,
                 const std::string& description);
  Option on_flag(const std::string& names, std::function<void()> act, const std::string& description);

  // What the program does when the command line names this verb.
  void on_run(VerbContext& context, std::function<ExitStatus()> run);

 private:
  CLI::App* parser_;
};

}  // namespace colibri::cli
