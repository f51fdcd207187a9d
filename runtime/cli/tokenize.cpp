// colibri tokenize: texts to token ids and back, line by line.
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/json_document.hpp"
#include "io/text/json_output.hpp"
#include "io/text/jsonl_reader.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

struct TokenizeArguments {
  std::string model;
  std::string input;
  bool no_special = false;
  bool skip_special = false;
};

// A tokenizer.json, or the one in a container or checkpoint folder.
std::filesystem::path tokenizer_file(const std::string& model) {
  std::error_code ignored;  // a path that cannot be looked at fails with its name when it is opened
  if (std::filesystem::is_directory(model, ignored)) return std::filesystem::path(model) / "tokenizer.json";
  return model;
}

Result<JsonlReader> open_input(const std::string& input) {
  if (input == "-") {
    return JsonlReader::from_descriptor(UniqueDescriptor(STDIN_FILENO, false), "standard input");
  }
  return JsonlReader::open(input);
}

// The next line, waiting for input that has not arrived yet.
Result<JsonlReader::Event> next_line(JsonlReader& reader, JsonlLine& line) {
  for (;;) {
    Result<JsonlReader::Event> event = reader.next(line);
    if (!event || *event != JsonlReader::Event::wait) return event;
    pollfd source{reader.descriptor(), POLLIN, 0};
    ::poll(&source, 1, -1);
  }
}

Result<std::string> text_of_line(const JsonlLine& line) {
  if (line.too_long) {
    return Status(ErrorCode::invalid_input,
                  "the line is too long; the limit in bytes is " + std::to_string(kMaxLineBytes));
  }
  COLIBRI_ASSIGN_OR_RETURN(const JsonValue value, parse_json(line.text));
  const JsonValue* text = value.find("text");
  if (text == nullptr || text->text() == nullptr) {
    return Status(ErrorCode::invalid_input, "the line must be an object with a string \"text\"");
  }
  return *text->text();
}

// {"ids": [...], "decoded": "..."}
Result<std::string> answer_line(const JsonlLine& line, const Tokenizer& tokenizer,
                                const TokenizeArguments& arguments) {
  COLIBRI_ASSIGN_OR_RETURN(const std::string text, text_of_line(line));
  COLIBRI_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids,
                           tokenizer.encode(text, !arguments.no_special));
  std::string answer = "{\"ids\": [";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) answer += ", ";
    append_json_number(answer, ids[i]);
  }
  answer += "], \"decoded\": ";
  append_json_string(answer, tokenizer.decode(ids, arguments.skip_special));
  return answer + "}\n";
}

// {"error": {"code": "...", "message": "..."}}
std::string error_line(const Status& status) {
  std::string answer = "{\"error\": {\"code\": ";
  append_json_string(answer, error_code_name(status.code()));
  answer += ", \"message\": ";
  append_json_string(answer, status.to_string());
  return answer + "}}\n";
}

ExitStatus run_tokenize(const TokenizeArguments& arguments, VerbContext& context) {
  const auto tokenizer = Tokenizer::load(tokenizer_file(arguments.model));
  if (!tokenizer) return context.fail(Status(tokenizer.status()).at("tokenize"));
  Result<JsonlReader> reader = open_input(arguments.input);
  if (!reader) return context.fail(Status(reader.status()).at("tokenize"));

  std::uint64_t failed = 0;
  JsonlLine line;
  for (;;) {
    const Result<JsonlReader::Event> event = next_line(*reader, line);
    if (!event) return context.fail(Status(event.status()).at("tokenize"));
    if (*event == JsonlReader::Event::end) break;
    const Result<std::string> answer = answer_line(line, **tokenizer, arguments);
    context.console.print(answer ? *answer : error_line(answer.status()));
    if (!answer) ++failed;
  }
  if (failed == 0) return ExitStatus::ok;
  context.console.error("tokenize: lines that failed, each with its reason in the output: " +
                        std::to_string(failed));
  return ExitStatus::some_lines_failed;
}

}  // namespace

void add_tokenize(Verb& program, VerbContext& context) {
  Verb verb = program.verb("tokenize", "Turn texts into token ids and back");
  verb.footer(
      "Each input line {\"text\": \"...\"} (other fields are ignored) gives one output line\n"
      "{\"ids\": [...], \"decoded\": \"...\"}, or {\"error\": {...}}; then the exit status is 3.\n\n"
      "Examples:\n"
      "  colibri tokenize model --jsonl texts.jsonl\n"
      "  echo '{\"text\": \"Hello\"}' | colibri tokenize tokenizer.json --jsonl - --no-special");
  auto arguments = std::make_shared<TokenizeArguments>();
  verb.positional("MODEL_OR_TOKENIZER_JSON", arguments->model,
                  "A container, a checkpoint folder, or a tokenizer.json")
      .required();
  verb.option("--jsonl", arguments->input, "The lines to read; - for standard input").required();
  verb.flag("--no-special", arguments->no_special,
            "Leave out the special tokens that the tokenizer puts around a text");
  verb.flag("--skip-special", arguments->skip_special, "Leave special tokens out of \"decoded\"");
  verb.on_run(context, [arguments, &context] { return run_tokenize(*arguments, context); });
}

}  // namespace colibri::cli
