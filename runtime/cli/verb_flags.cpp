// The handles on CLI11: help texts and error sentences are those of its own checks and types.
#include "runtime/cli/verb_flags.hpp"

#include <CLI/CLI.hpp>
#include <utility>

namespace colibri::cli {

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::check(ValueCheck check, const std::string& value_name) {
  option_->check(CLI::Validator(check, value_name));
  return *this;
}

Option Option::one_of(std::vector<std::string> choices) {
  option_->check(CLI::IsMember(std::move(choices)));
  return *this;
}

Option Option::range(int lowest, int highest) {
  option_->check(CLI::Range(lowest, highest));
  return *this;
}

Option Option::range(std::uint32_t lowest, std::uint32_t highest) {
  option_->check(CLI::Range(lowest, highest));
  return *this;
}

Option Option::range(double lowest, double highest) {
  option_->check(CLI::Range(lowest, highest));
  return *this;
}

Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option Option::separated_by(char separator) {
  option_->delimiter(separator);
  return *this;
}

Option Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option Option::as_parsed() {
  option_->trigger_on_parse();
  return *this;
}

bool Option::given() const { return option_->count() > 0; }

Verb Verb::verb(const std::string& name, const std::string& description) {
  return Verb(*parser_->add_subcommand(name, description));
}

void Verb::require_verb(const std::string& what) {
  parser_->require_subcommand(1);
  parser_->get_formatter()->label("SUBCOMMAND", what);
}

void Verb::footer(const std::string& text) { parser_->footer(text); }

Option Verb::positional(const std::string& name, std::string& value, const std::string& description) {
  return option(name, value, description);
}

template <class Value>
Option Verb::option(const std::string& names, Value& value, const std::string& description) {
  return Option(*parser_->add_option(names, value, description));
}
template Option Verb::option(const std::string&, std::string&, const std::string&);
template Option Verb::option(const std::string&, std::uint32_t&, const std::string&);
template Option Verb::option(const std::string&, std::uint64_t&, const std::string&);
template Option Verb::option(const std::string&, float&, const std::string&);
template Option Verb::option(const std::string&, double&, const std::string&);
template Option Verb::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Verb::option(const std::string&, std::vector<std::uint32_t>&, const std::string&);

Option Verb::flag(const std::string& names, bool& value, const std::string& description) {
  return Option(*parser_->add_flag(names, value, description));
}

Option Verb::on_option(const std::string& names, std::function<void(const std::string&)> take,
                       const std::string& description) {
  return Option(*parser_->add_option_function(names, take, description));
}

Option Verb::on_list(const std::string& names, std::function<void(const std::string&)> take,
                     const std::string& description) {
  const std::function<void(const std::vector<std::string>&)> take_all =
      [take = std::move(take)](const std::vector<std::string>& values) {
        for (const std::string& value : values) take(value);
      };
  return Option(*parser_->add_option_function(names, take_all, description));
}

Option Verb::on_flag(const std::string& names, std::function<void()> act, const std::string& description) {
  return Option(*parser_->add_flag_callback(names, std::move(act), description));
}

void Verb::on_run(VerbContext& context, std::function<ExitStatus()> run) {
  parser_->callback([&context, run = std::move(run)] { context.run = run; });
}

}  // namespace colibri::cli
