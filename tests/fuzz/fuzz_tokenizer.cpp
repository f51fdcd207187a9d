// tokenizer.json, and then texts through what was accepted.
#include <algorithm>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "tests/fuzz/fuzz_target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  const std::string_view text = fuzz::as_text(data, size);
  const auto tokenizer = Tokenizer::parse(text);
  if (!tokenizer) {
    fuzz::fuzz_check(!tokenizer.status().to_string().empty(), "an error without a sentence");
    return 0;
  }
  static constexpr std::string_view kTexts[] = {
      "", " ", "a", "ab <s>bba</s>", "  Hello,\n\n world's 12345 na\u00efve", "e\u0301\u4e2d\u6587\U0001f600\t_", "\xff\xfe"};
  const auto try_text = [&tokenizer](std::string_view sample) {
    for (const bool special : {false, true}) {
      const auto ids = (*tokenizer)->encode(sample, special);
      if (!ids) continue;
      for (const std::int32_t id : *ids) {
        fuzz::fuzz_check(id >= 0 && id < (*tokenizer)->vocab_size(), "an id outside the vocabulary");
      }
      static_cast<void>((*tokenizer)->decode(*ids, special));
    }
  };
  for (const std::string_view sample : kTexts) try_text(sample);
  // The file itself is a text too: its own tokens occur in it.
  try_text(text.substr(0, 256));
  std::vector<std::int32_t> all;
  for (std::int32_t id = -1; id <= std::min((*tokenizer)->vocab_size(), 300); ++id) all.push_back(id);
  static_cast<void>((*tokenizer)->decode(all, false));
  return 0;
}
