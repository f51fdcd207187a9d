// What a fuzz target is: one function over bytes that nobody vouches for.
//
// A target returns 0 whatever it is given; what is wrong shows as a sanitizer's report, an assertion or
// fuzz_check. With clang and -DCOLIBRI_FUZZ=ON libFuzzer calls it, else corpus_driver.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace colibri::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process when what must hold does not, in every kind of build.
inline void fuzz_check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_check: %s\n", what);
  std::abort();
}

}  // namespace colibri::fuzz
