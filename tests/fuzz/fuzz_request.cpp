// A line of a job, for each task, with and without a tokenizer. What is accepted is within its limits.
#include <memory>
#include <string>

#include "io/text/request_parser.hpp"
#include "io/text/result_writer.hpp"
#include "io/text/tokenizer.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace colibri::fuzz {
namespace {

std::shared_ptr<const Tokenizer> load_tokenizer() {
  auto tokenizer = Tokenizer::load(COLIBRI_TEST_DATA "/golden/tokenizers/llama3_style/tokenizer.json");
  fuzz_check(tokenizer.is_ok(), "no tokenizer");
  return std::move(tokenizer).value();
}

void check_accepted(const Request& request, std::uint32_t vocab_size) {
  fuzz_check(!request.tokens.empty(), "accepted without a prompt");
  for (const std::int32_t token : request.tokens) {
    fuzz_check(token >= 0 && static_cast<std::uint32_t>(token) < vocab_size, "accepted a token that is not");
  }
  fuzz_check(request.temperature >= 0 && request.temperature <= kMaxTemperature, "temperature");
  fuzz_check(request.top_p > 0 && request.top_p <= 1, "top_p");
  fuzz_check(request.stop.size() <= kMaxStopStrings && request.logprobs <= kMaxLogprobs, "stop or logprobs");
}

}  // namespace
}  // namespace colibri::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  static const std::shared_ptr<const Tokenizer> tokenizer = fuzz::load_tokenizer();
  const std::string_view line = fuzz::as_text(data, size);
  RequestDefaults defaults;
  defaults.vocab_size = static_cast<std::uint32_t>(tokenizer->vocab_size());
  const ResultWriter writer{ResultWriter::TokenText{}};
  for (const Tokenizer* with : {tokenizer.get(), static_cast<const Tokenizer*>(nullptr)}) {
    for (const Task task : {Task::generate, Task::score, Task::embed}) {
      const Request request = parse_request_line(line, 3, task, defaults, with);
      if (request.error.is_ok()) fuzz::check_accepted(request, defaults.vocab_size);
      // The answer is a line of its own whatever the id and the error hold.
      RequestResult result;
      result.id = request.id;
      result.openai = request.openai;
      result.model_name = request.model_name;
      result.error = request.error;
      std::string out;
      writer.append(result, out);
      fuzz::fuzz_check(out.find('\n') == out.size() - 1, "an answer of more than one line");
    }
  }
  static_cast<void>(request_line_id(line, 3));
  return 0;
}
