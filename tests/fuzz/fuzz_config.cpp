// config.json of a checkpoint, and after a zero byte its generation_config.json.
#include "io/checkpoint/model_config.hpp"
#include "tests/fuzz/fuzz_target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  const std::string_view text = fuzz::as_text(data, size);
  const std::size_t split = text.find('\0');
  const std::string_view generation = split == std::string_view::npos ? std::string_view() : text.substr(split + 1);
  const auto parsed = parse_model_config(text.substr(0, split), "config.json", generation, "generation_config.json");
  if (!parsed) {
    fuzz::fuzz_check(!parsed.status().to_string().empty(), "an error without a sentence");
    return 0;
  }
  // What the stored tensors decide is still missing; the rest must survive being written and read.
  ModelSpec spec = parsed->spec;
  spec.weights_option = "auto";
  if (validate(spec)) fuzz::fuzz_check(model_spec_from_json(model_spec_to_json(spec)).is_ok(), "a spec that cannot be read back");
  return 0;
}
