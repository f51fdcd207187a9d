// Runs a fuzz target without libFuzzer: every file of a corpus folder as it is, then damaged in N ways each.
//
//   fuzz_NAME CORPUS_FOLDER MUTATIONS_PER_FILE     (times COLIBRI_TEST_SCALE, at least 10)
//   fuzz_NAME FILE                                 (one input, to see a crash again)
//
// Mutations depend on the file's name and their number only, so a run can be repeated. An input that ends
// the process is written to crash-NAME in the working folder first.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/support/test_scale.hpp"

// Called by sanitizers before they end the process; not there in other builds.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace colibri::fuzz {
namespace {

namespace fs = std::filesystem;
using Bytes = std::string;

constexpr std::size_t kMaximumBytes = std::size_t{1} << 20;

// What is being run, for the handler that writes it.
const Bytes* current_input = nullptr;
std::string crash_file;

void write_current_input() {
  if (current_input == nullptr) return;
  const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  static_cast<void>(!::write(file, current_input->data(), current_input->size()));
  ::close(file);
  static constexpr char kSaid[] = "corpus_driver: the input was written to the file crash-NAME\n";
  static_cast<void>(!::write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1));
  current_input = nullptr;
}

void on_signal(int signal) {
  write_current_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Words on which parsers of numbers, strings and nesting stumble.
constexpr const char* kWords[] = {
    "18446744073709551616", "18446744073709551615", "9223372036854775808", "-9223372036854775809", "-1", "0", "1e999",
    "-0.0", "1e-400", "4294967296", "null", "true", "{}", "[]", "\"\"", "\"\\ud800\"", "\\u0000", "\xEF\xBB\xBF",
    "\xF4\x90\x80\x80", "\xC0\xAF", "{\"a\":", "[[[[", "]]", "}}", "\"", "\\", ",", ":", "\n", "\t", "&a", "*a", "!!int",
    "%", "KiB", "auto"};

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, std::uint64_t seed) : corpus_(corpus), random_(seed) {}

  Bytes mutate(Bytes bytes) {
    for (std::uint64_t rounds = 1 + below(4); rounds > 0; --rounds) once(bytes);
    if (bytes.size() > kMaximumBytes) bytes.resize(kMaximumBytes);
    return bytes;
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void once(Bytes& bytes) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(bytes.size() - at, 64) + 1);
    switch (below(9)) {
      case 0:  // one bit
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:  // one byte
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
        break;
      case 2: bytes.erase(at, length); break;
      case 3: bytes.insert(at, bytes.substr(at, length)); break;
      case 4: bytes.insert(at, kWords[below(std::size(kWords))]); break;
      case 5: bytes.resize(at); break;
      case 6: replace_number(bytes, at); break;
      case 7: {  // a part of another file
        const Bytes& other = corpus_[below(corpus_.size())];
        const std::size_t from = below(other.size() + 1);
        bytes.replace(at, length, other.substr(from, below(256)));
        break;
      }
      default:  // an integer of a binary format
        for (std::size_t i = 0; i < 8 && at + i < bytes.size(); ++i) {
          bytes[at + i] = static_cast<char>(below(3) == 0 ? below(256) : (below(2) == 0 ? 0xFF : 0));
        }
    }
  }

  // The next number after `at` becomes a word.
  void replace_number(Bytes& bytes, std::size_t at) {
    const std::size_t begin = bytes.find_first_of("0123456789", at);
    if (begin == Bytes::npos) return;
    const std::size_t end = std::min(bytes.find_first_not_of("0123456789.eE+-", begin), bytes.size());
    bytes.replace(begin, end - begin, kWords[below(std::size(kWords))]);
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937_64 random_;
};

void run(const Bytes& input) {
  current_input = &input;
  // A copy of exactly its size: reading past it is then seen.
  const std::vector<std::uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  current_input = nullptr;
}

Bytes read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a: the same everywhere
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

std::uint64_t at_scale(std::uint64_t mutations) {
  return std::max<std::uint64_t>(
      10, static_cast<std::uint64_t>(static_cast<double>(mutations) * testing::test_scale()));
}

int main_of_driver(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER MUTATIONS_PER_FILE, or %s FILE\n", argv[0], argv[0]);
    return 2;
  }
  crash_file = "crash-" + fs::path(argv[0]).filename().string();
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(write_current_input);
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS}) {
    if (__sanitizer_set_death_callback == nullptr || signal == SIGABRT) std::signal(signal, on_signal);
  }
  if (!fs::is_directory(argv[1])) {
    run(read_bytes(argv[1]));
    return 0;
  }
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(argv[1])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const fs::path& path : paths) corpus.push_back(read_bytes(path));
  if (corpus.empty()) {
    std::fprintf(stderr, "no files in the corpus: %s\n", argv[1]);
    return 1;
  }
  const std::uint64_t mutations = at_scale(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000);
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    run(corpus[i]);
    Mutator mutator(corpus, hash_of(paths[i].filename().string()));
    for (std::uint64_t n = 0; n < mutations; ++n) run(mutator.mutate(corpus[i]));
  }
  std::printf("%zu files, %llu mutations of each\n", corpus.size(), static_cast<unsigned long long>(mutations));
  return 0;
}

}  // namespace
}  // namespace colibri::fuzz

int main(int argc, char** argv) { return colibri::fuzz::main_of_driver(argc, argv); }
