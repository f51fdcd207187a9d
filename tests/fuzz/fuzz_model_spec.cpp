// model_spec.json: what is accepted is valid, and the same when written and read again.
#include <string>

#include "io/container/model_spec.hpp"
#include "tests/fuzz/fuzz_target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  const auto spec = model_spec_from_json(fuzz::as_text(data, size));
  if (!spec) return 0;
  fuzz::fuzz_check(validate(*spec).is_ok(), "an accepted spec is not valid");
  const std::string text = model_spec_to_json(*spec);
  const auto again = model_spec_from_json(text);
  fuzz::fuzz_check(again.is_ok() && model_spec_to_json(*again) == text, "a spec changes when it is read back");
  return 0;
}
