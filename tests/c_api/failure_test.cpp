// Memory that ends, drives that fail, and fork: the caller is told, and nothing is lost or leaked.
//
// This program replaces operator new, to let it fail at a chosen call and to count what is not given back.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <new>
#include <utility>

#include "tests/c_api/c_model.hpp"
#include "tests/checkpoint/temporary_folder.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/test_scale.hpp"

namespace {

// Calls of this thread until one fails; negative: none does.
thread_local std::int64_t calls_left = -1;
std::atomic<std::int64_t> alive{0};  // allocations not given back

bool fails() { return calls_left >= 0 && calls_left-- == 0; }

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (fails()) return nullptr;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(size == 0 ? 1 : size)
                     : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory != nullptr) alive.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  alive.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return or_throw(allocate(size, 0)); }
void* operator new[](std::size_t size) { return or_throw(allocate(size, 0)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t to) {
  return or_throw(allocate(size, std::size_t(to)));
}
void* operator new[](std::size_t size, std::align_val_t to) {
  return or_throw(allocate(size, std::size_t(to)));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace colibri::testing {
namespace {

// An allocator of a host that has memory for some calls only.
struct Host {
  int calls_left = -1;  // negative: any number
  std::int64_t given = 0, bytes = 0;
  static void* allocate(void* user, uint64_t bytes, uint64_t alignment) {
    Host& host = *static_cast<Host*>(user);
    if (host.calls_left == 0) return nullptr;
    if (host.calls_left > 0) --host.calls_left;
    ++host.given;
    host.bytes += static_cast<std::int64_t>(bytes);
    return std::aligned_alloc(alignment, bytes);
  }
  static void release(void* user, void* memory, uint64_t bytes, uint64_t alignment) {
    Host& host = *static_cast<Host*>(user);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % alignment, 0U);
    --host.given;
    host.bytes -= static_cast<std::int64_t>(bytes);
    std::free(memory);
  }
};

TEST(HostMemory, ThatEndsIsAnErrorAtEveryCall) {
  const auto path = golden_container("olmoe", "config.json", "auto");
  int failed = 0;
  for (int calls = 0;; ++calls) {
    Host host;
    host.calls_left = calls;
    CConfig config(COLIBRI_PURPOSE_TEXT);
    config.allocator = {&host, Host::allocate, Host::release};
    colibri_model* model = nullptr;
    CError error;
    const colibri_code code = colibri_model_create(path.c_str(), &config, &model, &error);
    if (code == COLIBRI_OK) {
      EXPECT_GT(host.bytes, 0);
      EXPECT_EQ(colibri_model_destroy(model, &error), COLIBRI_OK);
    } else {
      ++failed;
      EXPECT_EQ(code, COLIBRI_ERROR_OUT_OF_MEMORY) << error.message;
      EXPECT_NE(std::string(error.message).find("the allocator of the host"), std::string::npos)
          << error.message;
      EXPECT_EQ(model, nullptr);
    }
    EXPECT_EQ(host.given, 0) << "after " << calls;
    EXPECT_EQ(host.bytes, 0);
    if (code == COLIBRI_OK) break;
  }
  EXPECT_GE(failed, 5) << "five pools";
}

TEST(HostMemory, IsWhatModelsWorkIn) {
  Host host;
  CConfig config(COLIBRI_PURPOSE_TEXT);
  config.allocator = {&host, Host::allocate, Host::release};
  {
    const CModel model(golden_container("olmoe", "config.json", "auto"), config);
    const CSession session(model);
    const GoldenCase one = golden_cases("olmoe").at(0);
    CRequest request(one.prompt);
    request.max_tokens = static_cast<std::uint32_t>(one.greedy.size());
    request.ignore_eos = 1;
    CResult result;
    EXPECT_EQ(colibri_generate(session, &request, &result, nullptr), COLIBRI_OK);
    EXPECT_EQ(result.generated(), one.greedy);
  }
  EXPECT_EQ(host.given, 0);
}

// Lets the n-th allocation of a create fail, n = 0, stride, 2 stride ..., until none is left to fail.
void fail_each(const std::filesystem::path& path, std::int64_t tries) {
  const CConfig config(COLIBRI_PURPOSE_TEXT);
  CError error;
  // The number of allocations by which the create failed, or 0 when it did not.
  const auto create = [&](std::int64_t call) {
    colibri_model* model = nullptr;
    calls_left = call;
    const colibri_code code = colibri_model_create(path.c_str(), &config, &model, &error);
    const std::int64_t left = std::exchange(calls_left, -1);
    if (code == COLIBRI_OK) {
      EXPECT_EQ(colibri_model_destroy(model, nullptr), COLIBRI_OK);
    } else {
      EXPECT_EQ(code, COLIBRI_ERROR_OUT_OF_MEMORY) << "at call " << call << ": " << error.message;
      EXPECT_EQ(model, nullptr);
    }
    return std::pair(code, call - left);
  };
  // What libraries below keep for the process is there after the first.
  std::int64_t allocations = 0;
  for (int i = 0; i < 3; ++i) {
    const auto [code, used] = create(std::int64_t{1} << 40);
    ASSERT_EQ(code, COLIBRI_OK) << error.message;
    allocations = used;
  }
  const std::int64_t stride = std::max<std::int64_t>(1, allocations / tries);
  std::int64_t failed = 0;
  for (std::int64_t call = 0; call < allocations; call += stride) {
    const std::int64_t before = alive;
    failed += create(call).first != COLIBRI_OK ? 1 : 0;
    ASSERT_EQ(alive, before) << "after call " << call;
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  // Libraries may go on without some of theirs.
  EXPECT_GE(failed * stride, allocations * 9 / 10);
}

TEST(OperatorNew, ThatFailsIsAnErrorAtEveryCallOfCreate) {
  // At full scale each of them.
  const double tries = test_scale() < 1 ? 2000 * test_scale() : 1e9;
  fail_each(golden_container("olmoe", "config.json", "auto"),
            std::max<std::int64_t>(1, static_cast<std::int64_t>(tries)));
}

TEST(OperatorNew, ThatFailsIsAnErrorWithATokenizerToo) {
  const auto demo =
      std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs" / "demo" / "checkpoint";
  fail_each(container_of(demo, "config.json", "int8"),
            std::max<std::int64_t>(1, static_cast<std::int64_t>(1000 * test_scale())));
}

std::vector<float> rows_of_ones(const colibri_model_spec& spec, std::uint32_t rows) {
  return std::vector<float>(std::size_t{rows} * spec.hidden_size, 1.0F);
}

// After a create: each n-th allocation of a call, on the host's thread. Nothing may stay open.
TEST(OperatorNew, ThatFailsInACallLeavesNothingBehind) {
  const CModel text(golden_container("olmoe", "config.json", "auto"), COLIBRI_PURPOSE_TEXT);
  const CModel blocks(golden_container("olmoe", "config.json", "auto"), COLIBRI_PURPOSE_BLOCKS);
  const GoldenCase one = golden_cases("olmoe").at(0);
  CError error;
  {
    const CSession session(text);
    CRequest request(one.prompt);
    request.max_tokens = 2;
    request.ignore_eos = 1;
    CResult result;
    CInfer rows(spec_of(blocks), 0, rows_of_ones(spec_of(blocks), 2));
    const std::function<colibri_code()> functions[] = {
        [&] { return colibri_generate(session, &request, &result, &error); },
        [&] {
          colibri_call* call = nullptr;
          const colibri_code code =
              colibri_session_submit(session, &request, nullptr, nullptr, nullptr, &call, &error);
          calls_left = -1;
          EXPECT_EQ(call != nullptr, code == COLIBRI_OK);
          EXPECT_EQ(colibri_call_release(call, nullptr), COLIBRI_OK);
          return code;
        },
        [&] { return colibri_infer(blocks, &rows.input, &rows.output, &error); },
        [&] {
          colibri_call* call = nullptr;
          const colibri_code code =
              colibri_infer_async(blocks, &rows.input, &rows.output, nullptr, nullptr, &call, &error);
          calls_left = -1;
          EXPECT_EQ(call != nullptr, code == COLIBRI_OK);
          EXPECT_EQ(colibri_call_release(call, nullptr), COLIBRI_OK);
          return code;
        }};
    for (const auto& function : functions) {
      ASSERT_EQ(function(), COLIBRI_OK) << error.message;  // the service has started
      int failed = 0;
      for (std::int64_t call = 0;; ++call) {
        calls_left = call;
        const colibri_code code = function();
        calls_left = -1;
        if (code == COLIBRI_OK) break;
        ++failed;
        ASSERT_EQ(code, COLIBRI_ERROR_OUT_OF_MEMORY) << "at call " << call << ": " << error.message;
      }
      EXPECT_GT(failed, 1);
    }
  }
}  // session and models are destroyed: nothing was busy

// A byte of every record is another.
TEST(Drive, ThatGivesOtherBytesIsToldByFileAndOffset) {
  test::TemporaryFolder folder;
  const auto copy = folder.path() / "model";
  std::filesystem::copy(golden_container("olmoe", "config.json", "auto"), copy);
  const auto experts = copy / "experts.bin";
  {
    const auto container = Container::open(copy).value();
    std::fstream file(experts, std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint32_t expert = 0; expert < container->spec().num_experts; ++expert) {
      const auto at = static_cast<std::streamoff>(container->record(0, expert).offset + 100);
      file.seekg(at);
      const char other = static_cast<char>(file.get() ^ 0x55);
      file.seekp(at);
      file.put(other);
    }
  }
  const CModel model(copy, COLIBRI_PURPOSE_BLOCKS);
  ASSERT_NE(model.get(), nullptr);
  const colibri_model_spec spec = spec_of(model);
  CInfer call(spec, 0, rows_of_ones(spec, 4));
  CError error;
  EXPECT_EQ(colibri_infer(model, &call.input, &call.output, &error), COLIBRI_ERROR_CORRUPT) << error.message;
  EXPECT_EQ(call.output.error_code, COLIBRI_ERROR_CORRUPT);
  EXPECT_EQ(std::filesystem::path(error.file).filename(), "experts.bin") << error.message;
  EXPECT_NE(error.offset, COLIBRI_NO_OFFSET);
  EXPECT_LT(error.offset, std::filesystem::file_size(experts));
  // Another call is answered, too.
  EXPECT_EQ(colibri_infer(model, &call.input, &call.output, &error), COLIBRI_ERROR_CORRUPT) << error.message;
}

TEST(Drive, ThatHasLostTheEndOfAFileIsToldByFile) {
  test::TemporaryFolder folder;
  const auto copy = folder.path() / "model";
  std::filesystem::copy(golden_container("olmoe", "config.json", "auto"), copy);
  const CModel model(copy, COLIBRI_PURPOSE_TEXT);
  ASSERT_NE(model.get(), nullptr);
  std::filesystem::resize_file(copy / "experts.bin", 4096);
  const CSession session(model);
  CRequest request(golden_cases("olmoe").at(2).prompt);
  request.max_tokens = 3;
  CResult result;
  CError error;
  const colibri_code code = colibri_generate(session, &request, &result, &error);
  EXPECT_TRUE(code == COLIBRI_ERROR_IO || code == COLIBRI_ERROR_CORRUPT) << code << error.message;
  EXPECT_EQ(std::filesystem::path(error.file).filename(), "experts.bin") << error.message;
}

// The child's exit status is the number of the first check that fails.
#define COLIBRI_CHILD_CHECK(number, condition) \
  if (!(condition)) ::_exit(number)

TEST(Fork, IsToldInTheChildAndHarmsNothingInTheParent) {
  const auto path = golden_container("olmoe", "config.json", "auto");
  const CModel text(path, COLIBRI_PURPOSE_TEXT);
  const CModel blocks(golden_container("qwen3_moe", "config.json", "auto"), COLIBRI_PURPOSE_BLOCKS);
  const CSession session(text);
  const GoldenCase one = golden_cases("olmoe").at(0);
  CRequest request(one.prompt);
  request.max_tokens = static_cast<std::uint32_t>(one.greedy.size());
  request.ignore_eos = 1;
  colibri_model_spec spec = spec_of(blocks);
  CInfer rows(spec, 0, rows_of_ones(spec, 2));
  ASSERT_EQ(colibri_infer(blocks, &rows.input, &rows.output, nullptr), COLIBRI_OK);
  colibri_call* open = nullptr;
  ASSERT_EQ(colibri_session_submit(session, &request, nullptr, nullptr, nullptr, &open, nullptr), COLIBRI_OK);
  CResult result;
  CError error;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);  // a call that hangs ends the child
    std::uint64_t size = 0;
    colibri_session* made = nullptr;
    colibri_model* another = nullptr;
    colibri_call* call = nullptr;
    colibri_batch_options options;
    const colibri_code forked = COLIBRI_ERROR_FORKED;
    COLIBRI_CHILD_CHECK(1, colibri_generate(session, &request, &result, &error) == forked);
    COLIBRI_CHILD_CHECK(2, error.code == forked && error.message[0] != '\0');
    COLIBRI_CHILD_CHECK(3, colibri_infer(blocks, &rows.input, &rows.output, &error) == forked);
    COLIBRI_CHILD_CHECK(
        4, colibri_infer_async(blocks, &rows.input, &rows.output, nullptr, nullptr, &call, &error) == forked);
    COLIBRI_CHILD_CHECK(5, colibri_infer_check_input(blocks, &rows.input, &error) == forked);
    COLIBRI_CHILD_CHECK(6, colibri_call_poll(open, &error) == forked);
    COLIBRI_CHILD_CHECK(7, colibri_call_wait(open, -1, &error) == forked);
    COLIBRI_CHILD_CHECK(8, colibri_call_cancel(open, &error) == forked);
    COLIBRI_CHILD_CHECK(9, colibri_call_result(open, &result, &error) == forked);
    COLIBRI_CHILD_CHECK(10, colibri_call_release(open, &error) == forked);
    COLIBRI_CHILD_CHECK(11, colibri_session_create(text, &made, &error) == forked);
    COLIBRI_CHILD_CHECK(12, colibri_session_destroy(session, &error) == forked);
    COLIBRI_CHILD_CHECK(13, colibri_model_create(path.c_str(), nullptr, &another, &error) == forked);
    COLIBRI_CHILD_CHECK(14, colibri_model_destroy(text, &error) == forked);
    COLIBRI_CHILD_CHECK(15, colibri_get_metrics(text, nullptr, 0, &size, &error) == forked);
    COLIBRI_CHILD_CHECK(16, colibri_prewarm(text, &size, &error) == forked);
    COLIBRI_CHILD_CHECK(17, colibri_sanity_check(blocks, &error) == forked);
    COLIBRI_CHILD_CHECK(18, colibri_model_get_spec(text, &spec, &error) == forked);
    // What only fills the host's structs works, and an error that is no error yet does not hide the code.
    COLIBRI_CHILD_CHECK(19, colibri_batch_options_init(&options, sizeof options) == COLIBRI_OK);
    colibri_error raw{};
    COLIBRI_CHILD_CHECK(20, colibri_prewarm(text, nullptr, &raw) == forked);
    COLIBRI_CHILD_CHECK(21, colibri_error_init(&raw, sizeof raw) == COLIBRI_OK);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "check " << WEXITSTATUS(status);
  EXPECT_EQ(colibri_call_wait(open, -1, &error), COLIBRI_OK) << error.message;
  ASSERT_EQ(colibri_call_result(open, &result, &error), COLIBRI_OK);
  EXPECT_EQ(result.generated(), one.greedy);
  EXPECT_EQ(colibri_call_release(open, &error), COLIBRI_OK);
}

}  // namespace
}  // namespace colibri::testing
