// Calls that a host must not make, each with the code and the sentence that it gets; the model works
// afterwards.
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

#include "tests/c_api/c_model.hpp"
#include "tests/checkpoint/temporary_folder.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

struct Wrong {
  std::string name;
  std::function<colibri_code(colibri_error*)> call;
  colibri_code code;
  std::string message;  // all of it; with "..." at its end: how it begins
};

bool matches(const std::string& found, const std::string& expected) {
  if (expected.ends_with("...")) return found.starts_with(expected.substr(0, expected.size() - 3));
  return found == expected;
}

template <class T>
T* misaligned(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(pointer) + 1);
}

class WrongUse : public ::testing::Test {
 protected:
  static constexpr const char* kModel = "qwen2_moe";  // layer 1 is dense
  void SetUp() override {
    path_ = golden_container(kModel, "config.json", "auto").string();
    spec_.struct_size = sizeof spec_;
    ASSERT_EQ(colibri_model_spec_load(path_.c_str(), &spec_, nullptr), COLIBRI_OK);
  }
  static void expect(const std::vector<Wrong>& calls) {
    for (const Wrong& wrong : calls) {
      CError error;
      EXPECT_EQ(wrong.call(&error), wrong.code) << wrong.name << ": " << error.message;
      EXPECT_EQ(error.code, wrong.code) << wrong.name;
      EXPECT_TRUE(matches(error.message, wrong.message))
          << wrong.name << "\n  found:    " << error.message << "\n  expected: " << wrong.message;
      // The same without anybody to tell.
      EXPECT_EQ(wrong.call(nullptr), wrong.code) << wrong.name;
    }
    counted_ += calls.size();
  }
  static void TearDownTestSuite() { EXPECT_GE(counted_, 80U); }

  std::string path_;
  colibri_model_spec spec_{};
  static std::size_t counted_;
};
std::size_t WrongUse::counted_ = 0;

constexpr colibri_code kInvalid = COLIBRI_ERROR_INVALID_INPUT;

std::string null_of(const std::string& name) { return "a pointer is NULL: " + name + "; give an object"; }
std::string unaligned(const std::string& name, int bytes) {
  return "a pointer is not aligned: " + name + "; expected a multiple of " + std::to_string(bytes) + " bytes";
}
std::string unset(const std::string& name, std::uint64_t found, std::uint64_t expected) {
  return "struct_size is not set: that of " + name + " is " + std::to_string(found) + ", expected " +
         std::to_string(expected) + "; set it to sizeof the struct";
}
std::string newer(const std::string& name, std::uint64_t found, std::uint64_t known) {
  return "the host was compiled for a newer library: struct_size of " + name + " is " +
         std::to_string(found) + ", this version knows " + std::to_string(known) +
         "; install the version that the host was compiled with";
}
std::string other_handle(const std::string& name) {
  return "a handle of another type, or a destroyed one: " + name +
         "; give one that was created and is not destroyed";
}
std::string range(const std::string& name, const std::string& found, const std::string& expected) {
  return "a value out of range: " + name + " is " + found + "; expected " + expected;
}

// An error that cannot be filled is refused before anything is done, and left alone.
TEST_F(WrongUse, OfTheError) {
  colibri_error error{};
  EXPECT_EQ(colibri_model_spec_load(path_.c_str(), &spec_, &error), kInvalid);
  EXPECT_EQ(error.code, 0);
  error.struct_size = sizeof error - 1;
  EXPECT_EQ(colibri_model_spec_load(path_.c_str(), &spec_, &error), kInvalid);
  alignas(colibri_error) char bytes[sizeof(colibri_error) + 8] = {};
  EXPECT_EQ(
      colibri_model_spec_load(path_.c_str(), &spec_, misaligned(reinterpret_cast<colibri_error*>(bytes))),
      kInvalid);
  EXPECT_EQ(colibri_error_init(nullptr, sizeof error), kInvalid);
  EXPECT_EQ(colibri_error_init(&error, 0), kInvalid);
  EXPECT_EQ(colibri_error_init(&error, sizeof error + 8), COLIBRI_ERROR_UNSUPPORTED);
  EXPECT_EQ(colibri_config_init(nullptr, sizeof(colibri_config)), kInvalid);
  EXPECT_EQ(colibri_request_init(nullptr, sizeof(colibri_request)), kInvalid);
  EXPECT_EQ(colibri_result_init(nullptr, sizeof(colibri_result)), kInvalid);
  EXPECT_EQ(colibri_batch_options_init(nullptr, sizeof(colibri_batch_options)), kInvalid);
  counted_ += 10;
}

TEST_F(WrongUse, OfFilesAndSizes) {
  test::TemporaryFolder folder;
  const std::string empty = (folder / "empty").string();
  std::filesystem::create_directories(empty);
  const std::string file = (folder / "file").string();
  std::ofstream(file) << "no model";
  const std::string cut = (folder / "cut").string();
  std::filesystem::copy(path_, cut);
  const std::uint64_t size = std::filesystem::file_size(cut + "/experts.bin");
  std::filesystem::resize_file(cut + "/experts.bin", size - 4096);
  const std::string changed = (folder / "changed").string();
  std::filesystem::copy(path_, changed);
  std::ofstream(changed + "/model_spec.json", std::ios::app) << " ";
  const std::string long_path(5000, 'a');
  colibri_model_spec spec{};
  spec.struct_size = sizeof spec;
  colibri_model_spec small = spec, large = spec;
  small.struct_size = 8;
  large.struct_size = sizeof spec + 8;
  colibri_size_estimate estimate{};
  estimate.struct_size = sizeof estimate;
  std::uint64_t count = 0;
  std::uint32_t layers[64];
  alignas(8) char bytes[sizeof spec + 8] = {};
  const auto load = [&spec](const std::string& path) {
    return
        [&spec, path](colibri_error* error) { return colibri_model_spec_load(path.c_str(), &spec, error); };
  };
  expect({
      {"no path", [&](auto* e) { return colibri_model_spec_load(nullptr, &spec, e); }, kInvalid,
       null_of("path")},
      {"empty path", load(""), kInvalid, "a path is empty: path; name a file or folder"},
      {"long path", load(long_path), kInvalid,
       "a text is too long: path has more than 4096 bytes; shorten it"},
      {"no UTF-8", load("a\xff"), kInvalid, "a text is not UTF-8: path; encode it so"},
      {"nothing there", load(file + ".no"), COLIBRI_ERROR_NOT_FOUND,
       "model folder does not exist: " + file + ".no; check the path"},
      {"a file", load(file), kInvalid,
       "not a folder: " + file + "; expected a folder written by colibri convert"},
      {"an empty folder", load(empty), COLIBRI_ERROR_NOT_FOUND,
       "not a colibri model: " + empty +
           " has no model_spec.json; expected a folder written by colibri convert"},
      {"a file cut off", load(cut), COLIBRI_ERROR_CORRUPT,
       "wrong file length, the file is truncated or damaged: " + cut + "/experts.bin, expected " +
           std::to_string(size) + " bytes, found " + std::to_string(size - 4096) +
           "; copy or convert it again"},
      {"a spec changed", load(changed), COLIBRI_ERROR_CORRUPT,
       "the file belongs to another model_spec.json: " + changed + "/model.bin, expected digest ..."},
      {"no spec", [&](auto* e) { return colibri_model_spec_load(path_.c_str(), nullptr, e); }, kInvalid,
       null_of("spec")},
      {"unaligned spec",
       [&](auto* e) {
         return colibri_model_spec_load(path_.c_str(),
                                        misaligned(reinterpret_cast<colibri_model_spec*>(bytes)), e);
       },
       kInvalid, unaligned("spec", 8)},
      {"small spec", [&](auto* e) { return colibri_model_spec_load(path_.c_str(), &small, e); }, kInvalid,
       unset("spec", 8, sizeof spec)},
      {"large spec", [&](auto* e) { return colibri_model_spec_load(path_.c_str(), &large, e); },
       COLIBRI_ERROR_UNSUPPORTED, newer("spec", sizeof spec + 8, sizeof spec)},
      {"no count",
       [&](auto* e) { return colibri_model_spec_moe_layers(path_.c_str(), layers, 64, nullptr, e); },
       kInvalid, null_of("count")},
      {"no layers",
       [&](auto* e) { return colibri_model_spec_moe_layers(path_.c_str(), nullptr, 64, &count, e); },
       kInvalid, null_of("layers")},
      {"few layers",
       [&](auto* e) { return colibri_model_spec_moe_layers(path_.c_str(), layers, 1, &count, e); },
       COLIBRI_ERROR_BUFFER_TOO_SMALL,
       "a buffer is too small: layers takes 1 elements, " + std::to_string(spec_.num_moe_layers) +
           " are needed; give a larger one"},
      {"no estimate",
       [&](auto* e) { return colibri_model_size_estimate(path_.c_str(), nullptr, nullptr, e); }, kInvalid,
       null_of("estimate")},
      {"estimate of nothing",
       [&](auto* e) { return colibri_model_size_estimate(empty.c_str(), nullptr, &estimate, e); },
       COLIBRI_ERROR_NOT_FOUND,
       "not a colibri model: " + empty +
           " has no model_spec.json; expected a folder written by colibri convert"},
  });
  CError error;
  ASSERT_EQ(colibri_model_spec_load(cut.c_str(), &spec, &error), COLIBRI_ERROR_CORRUPT);
  EXPECT_NE(std::string(error.message).find("experts.bin"), std::string::npos) << error.message;
}

TEST_F(WrongUse, OfTheConfiguration) {
  const auto create = [this](std::function<void(colibri_config&)> change) {
    return [this, change](colibri_error* error) {
      CConfig config(COLIBRI_PURPOSE_TEXT);
      change(config);
      colibri_model* model = reinterpret_cast<colibri_model*>(8);
      const colibri_code code = colibri_model_create(path_.c_str(), &config, &model, error);
      EXPECT_EQ(model, nullptr);
      return code;
    };
  };
  static const char* const kNoEquals[] = {"threads"};
  static const char* const kNoPath[] = {"=3"};
  static const char* const kUnknown[] = {"stages.fetch.lane=16"};
  static const char* const kNullSetting[] = {nullptr};
  static const char* const kBadThreads[] = {"threads=-1"};
  const auto set = [](const char* const* settings) {
    return [settings](colibri_config& c) {
      c.settings = settings;
      c.num_settings = 1;
    };
  };
  expect({
      {"no model", [&](auto* e) { return colibri_model_create(path_.c_str(), nullptr, nullptr, e); },
       kInvalid, null_of("model")},
      {"no size", create([](auto& c) { c.struct_size = 0; }), kInvalid,
       unset("config", 0, sizeof(colibri_config))},
      {"large", create([](auto& c) { c.struct_size += 8; }), COLIBRI_ERROR_UNSUPPORTED,
       newer("config", sizeof(colibri_config) + 8, sizeof(colibri_config))},
      {"purpose", create([](auto& c) { c.purpose = 2; }), kInvalid,
       range("config.purpose", "2", "COLIBRI_PURPOSE_TEXT or COLIBRI_PURPOSE_BLOCKS")},
      {"negative purpose", create([](auto& c) { c.purpose = -1; }), kInvalid,
       range("config.purpose", "-1", "COLIBRI_PURPOSE_TEXT or COLIBRI_PURPOSE_BLOCKS")},
      {"threads", create([](auto& c) { c.threads = UINT32_MAX; }), kInvalid,
       "config.threads: threads: '4294967295' is out of range; expected an integer from 1 to 4096 threads, "
       "or auto"},
      {"rows", create([](auto& c) { c.max_rows = UINT32_MAX; }), kInvalid,
       "config.max_rows: steps.max_rows: '4294967295' is out of range; expected an integer from 1 to 1048576 "
       "rows, or auto"},
      {"slots", create([](auto& c) { c.expert_slots = UINT64_MAX; }), kInvalid,
       "more slots than memory can be addressed: config.expert_slots is 18446744073709551615, of ..."},
      {"static", create([](auto& c) { c.static_bytes = 1; }), kInvalid,
       "memory.static is too small: 1 B given, ..."},
      {"no YAML", create([](auto& c) { c.pipeline = "a: [b"; }), kInvalid,
       "config.pipeline:1:1: not valid YAML: ..."},
      {"no pipeline", create([](auto& c) { c.pipeline = ""; }), kInvalid,
       "config.pipeline:1:1: file is empty; expected a map with version, stages and edges"},
      {"YAML not UTF-8", create([](auto& c) { c.pipeline = "\xff"; }), kInvalid,
       "a text is not UTF-8: config.pipeline; encode it so"},
      {"pipeline for another purpose", create([](auto& c) {
         static const std::string block = config_text("block.yaml");
         c.pipeline = block.c_str();
         c.num_settings = 0;
       }),
       kInvalid,
       "the pipeline is for another purpose: it has a stage of kind block_in, and config.purpose is 0; "
       "expected "
       "COLIBRI_PURPOSE_TEXT or COLIBRI_PURPOSE_BLOCKS, whichever the pipeline is for"},
      {"kernels", create([](auto& c) { c.kernels = "mmx"; }), kInvalid,
       "kernels that are not here or that this processor lacks: mmx; usable are: ..."},
      {"setting", create(set(kNoEquals)), kInvalid,
       "a setting is no PATH=VALUE: config.settings[0] is 'threads'; expected as in stages.fetch.lanes=16"},
      {"setting of nothing", create(set(kNoPath)), kInvalid,
       "a setting is no PATH=VALUE: config.settings[0] is '=3'; expected as in stages.fetch.lanes=16"},
      {"unknown setting", create(set(kUnknown)), kInvalid,
       "config.settings[0]: stages.fetch.lane: unknown setting; expected one such as memory.experts or "
       "stages.<name>.<parameter>; did you mean 'stages.fetch.lanes'?"},
      {"bad value", create(set(kBadThreads)), kInvalid,
       "config.settings[0]: threads: '-1' is out of range; expected an integer from 1 to 4096 threads, or "
       "auto"},
      {"NULL setting", create(set(kNullSetting)), kInvalid, null_of("config.settings[0]")},
      {"NULL settings", create(set(nullptr)), kInvalid, null_of("config.settings")},
      {"many settings", create([](auto& c) { c.num_settings = UINT64_MAX; }), kInvalid,
       "too many settings: config.num_settings is 18446744073709551615; expected at most 1000"},
      {"half an allocator", create([](auto& c) {
         c.allocator.allocate = [](void*, uint64_t, uint64_t) -> void* { return nullptr; };
       }),
       kInvalid,
       "half of an allocator: one of config.allocator.allocate and config.allocator.release is NULL; set "
       "both or "
       "neither"},
      {"an allocator that does not align", create([](auto& c) {
         c.allocator.allocate = [](void*, uint64_t bytes, uint64_t) -> void* {
           return static_cast<char*>(std::malloc(bytes + 8)) + 8;
         };
         c.allocator.release = [](void*, void* memory, uint64_t, uint64_t) {
           std::free(static_cast<char*>(memory) - 8);
         };
       }),
       kInvalid,
       "the allocator of the host gave memory that is not aligned: asked for a multiple of 2097152; ..."},
  });
}

TEST_F(WrongUse, OfHandles) {
  const CModel model(path_, COLIBRI_PURPOSE_TEXT);
  const CSession session(model);
  auto* const session_as_model = reinterpret_cast<colibri_model*>(static_cast<colibri_session*>(session));
  auto* const model_as_session = reinterpret_cast<colibri_session*>(model.get());
  auto* const model_as_call = reinterpret_cast<colibri_call*>(model.get());
  colibri_model_spec spec{};
  spec.struct_size = sizeof spec;
  std::uint64_t size = 0;
  CResult result;
  CRequest request({1, 2});
  colibri_session* made = nullptr;
  colibri_call* call = nullptr;
  colibri_thread_allowance* allowance = nullptr;
  expect({
      {"no model", [&](auto* e) { return colibri_model_get_spec(nullptr, &spec, e); }, kInvalid,
       null_of("model")},
      {"session as model", [&](auto* e) { return colibri_model_get_spec(session_as_model, &spec, e); },
       kInvalid, other_handle("model")},
      {"unaligned model", [&](auto* e) { return colibri_model_get_spec(misaligned(model.get()), &spec, e); },
       kInvalid, unaligned("model", 8)},
      {"no spec", [&](auto* e) { return colibri_model_get_spec(model, nullptr, e); }, kInvalid,
       null_of("spec")},
      {"destroy a session as a model", [&](auto* e) { return colibri_model_destroy(session_as_model, e); },
       kInvalid, other_handle("model")},
      {"destroy with sessions", [&](auto* e) { return colibri_model_destroy(model, e); }, COLIBRI_ERROR_BUSY,
       "sessions or calls of the model exist: 1 sessions, 0 calls; destroy and release them first"},
      {"destroy a model as a session", [&](auto* e) { return colibri_session_destroy(model_as_session, e); },
       kInvalid, other_handle("session")},
      {"prewarm nothing", [&](auto* e) { return colibri_prewarm(nullptr, nullptr, e); }, kInvalid,
       null_of("model")},
      {"prewarm unaligned", [&](auto* e) { return colibri_prewarm(model, misaligned(&size), e); }, kInvalid,
       unaligned("bytes", 8)},
      {"sanity of nothing", [&](auto* e) { return colibri_sanity_check(nullptr, e); }, kInvalid,
       null_of("model")},
      {"sanity with sessions", [&](auto* e) { return colibri_sanity_check(model, e); }, COLIBRI_ERROR_BUSY,
       "sessions or calls of the model exist, and the sanity check needs it alone: 1 sessions, 0 calls; "
       "destroy and "
       "release them first"},
      {"metrics of nothing", [&](auto* e) { return colibri_get_metrics(nullptr, nullptr, 0, &size, e); },
       kInvalid, null_of("model")},
      {"metrics without a size", [&](auto* e) { return colibri_get_metrics(model, nullptr, 0, nullptr, e); },
       kInvalid, null_of("size")},
      {"metrics without a buffer", [&](auto* e) { return colibri_get_metrics(model, nullptr, 9, &size, e); },
       kInvalid, null_of("buffer")},
      {"session of nothing", [&](auto* e) { return colibri_session_create(nullptr, &made, e); }, kInvalid,
       null_of("model")},
      {"session for nobody", [&](auto* e) { return colibri_session_create(model, nullptr, e); }, kInvalid,
       null_of("session")},
      {"poll nothing", [&](auto* e) { return colibri_call_poll(nullptr, e); }, kInvalid, null_of("call")},
      {"wait for a model", [&](auto* e) { return colibri_call_wait(model_as_call, 1, e); }, kInvalid,
       other_handle("call")},
      {"cancel a model", [&](auto* e) { return colibri_call_cancel(model_as_call, e); }, kInvalid,
       other_handle("call")},
      {"release a model", [&](auto* e) { return colibri_call_release(model_as_call, e); }, kInvalid,
       other_handle("call")},
      {"result of nothing", [&](auto* e) { return colibri_call_result(nullptr, &result, e); }, kInvalid,
       null_of("call")},
      {"submit to nothing",
       [&](auto* e) {
         return colibri_session_submit(nullptr, &request, nullptr, nullptr, nullptr, &call, e);
       },
       kInvalid, null_of("session")},
      {"submit without a call",
       [&](auto* e) {
         return colibri_session_submit(session, &request, nullptr, nullptr, nullptr, nullptr, e);
       },
       kInvalid, null_of("call")},
      {"no threads", [&](auto* e) { return colibri_thread_allowance_create(0, &allowance, e); }, kInvalid,
       "a number of threads out of range: 0; expected 1 to 65536"},
      {"too many threads", [&](auto* e) { return colibri_thread_allowance_create(65537, &allowance, e); },
       kInvalid, "a number of threads out of range: 65537; expected 1 to 65536"},
      {"threads for nobody", [&](auto* e) { return colibri_thread_allowance_create(1, nullptr, e); },
       kInvalid, null_of("allowance")},
  });
  EXPECT_EQ(colibri_model_destroy(nullptr, nullptr), COLIBRI_OK);
  EXPECT_EQ(colibri_session_destroy(nullptr, nullptr), COLIBRI_OK);
  EXPECT_EQ(colibri_call_release(nullptr, nullptr), COLIBRI_OK);
  EXPECT_EQ(colibri_thread_allowance_destroy(nullptr, nullptr), COLIBRI_OK);
}

TEST_F(WrongUse, OfRequests) {
  const CModel model(path_, COLIBRI_PURPOSE_TEXT);
  const CSession session(model);
  const auto generate = [&](std::function<void(colibri_request&)> change) {
    return [&session, change](colibri_error* error) {
      CRequest request({1, 2, 3});
      request.max_tokens = 1;
      change(request);
      CResult result;
      return colibri_generate(session, &request, &result, error);
    };
  };
  const auto answer_into = [&](std::function<void(colibri_result&)> change) {
    return [&session, change](colibri_error* error) {
      CRequest request({1, 2, 3});
      request.max_tokens = 2;
      request.ignore_eos = 1;
      CResult result;
      change(result);
      return colibri_generate(session, &request, &result, error);
    };
  };
  static const std::int32_t kBad[] = {1, -1};
  static const std::int32_t kBeyond[] = {1, 1 << 30};
  static const char* const kStop[] = {"x"};
  const std::string last = std::to_string(spec_.vocab_size - 1);
  const std::string both =
      "a request has text or tokens: request.text and request.num_tokens are both set, or neither; give one";
  const std::string context = std::to_string(spec_.max_seq_len);
  static std::vector<std::int32_t> many(spec_.max_seq_len + 1, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect({
      {"no request",
       [&](auto* e) {
         CResult result;
         return colibri_generate(session, nullptr, &result, e);
       },
       kInvalid, null_of("request")},
      {"no size", generate([](auto& r) { r.struct_size = 0; }), kInvalid,
       unset("request", 0, sizeof(colibri_request))},
      {"no prompt", generate([](auto& r) { r.num_tokens = 0; }), kInvalid, both},
      {"two prompts", generate([](auto& r) { r.text = "a"; }), kInvalid, both},
      {"text without a tokenizer", generate([](auto& r) { r.text = "a", r.num_tokens = 0; }),
       COLIBRI_ERROR_UNSUPPORTED, "request.text needs a tokenizer, and this model has none; give token ids"},
      {"NULL tokens", generate([](auto& r) { r.tokens = nullptr; }), kInvalid, null_of("request.tokens")},
      {"a negative token", generate([](auto& r) { r.tokens = kBad, r.num_tokens = 2; }), kInvalid,
       "a token that the model does not have: number 1 is -1; expected 0 to " + last},
      {"a token beyond", generate([](auto& r) { r.tokens = kBeyond, r.num_tokens = 2; }), kInvalid,
       "a token that the model does not have: number 1 is 1073741824; expected 0 to " + last},
      {"more than the context", generate([](auto& r) { r.tokens = many.data(), r.num_tokens = many.size(); }),
       kInvalid,
       "more tokens than the model's context: request.num_tokens is " + std::to_string(many.size()) +
           ", max_seq_len " + context + "; shorten the prompt"},
      {"max_tokens", generate([](auto& r) { r.max_tokens = UINT32_MAX; }), kInvalid,
       range("request.max_tokens", "4294967295", "1 to 2147483647, or 0")},
      {"temperature", generate([](auto& r) { r.temperature = -1; }), kInvalid,
       range("request.temperature", "-1.000000", "0 to 100")},
      {"temperature NaN", generate([nan](auto& r) { r.temperature = nan; }), kInvalid,
       "a value out of range: request.temperature is ..."},
      {"top_p", generate([](auto& r) { r.top_p = 0; }), kInvalid,
       range("request.top_p", "0.000000", "above 0, at most 1")},
      {"top_k", generate([](auto& r) { r.top_k = UINT32_MAX; }), kInvalid,
       range("request.top_k", "4294967295", "0 to 2147483647")},
      {"logprobs", generate([](auto& r) { r.logprobs = 2; }), kInvalid,
       range("request.logprobs", "2", "0 or 1")},
      {"ignore_eos", generate([](auto& r) { r.ignore_eos = 2; }), kInvalid,
       range("request.ignore_eos", "2", "0 or 1")},
      {"pooling", generate([](auto& r) { r.pooling = 2; }), kInvalid,
       range("request.pooling", "2", "COLIBRI_POOLING_MEAN or _LAST")},
      {"normalize", generate([](auto& r) { r.normalize = -1; }), kInvalid,
       range("request.normalize", "-1", "0 or 1")},
      {"stop without a tokenizer", generate([](auto& r) { r.stop = kStop, r.num_stop = 1; }),
       COLIBRI_ERROR_UNSUPPORTED, "request.stop needs a tokenizer, and this model has none; give none"},
      {"stops", generate([](auto& r) { r.num_stop = 17; }), kInvalid,
       range("request.num_stop", "17", "at most 16 stop strings")},
      {"task",
       [&](auto* e) {
         CRequest request({1});
         request.task = 3;
         colibri_call* call = nullptr;
         return colibri_session_submit(session, &request, nullptr, nullptr, nullptr, &call, e);
       },
       kInvalid, range("request.task", "3", "COLIBRI_TASK_GENERATE, _SCORE or _EMBED")},
      {"no result",
       [&](auto* e) {
         CRequest request({1});
         return colibri_generate(session, &request, nullptr, e);
       },
       kInvalid, null_of("result")},
      {"result without a size", answer_into([](auto& r) { r.struct_size = 0; }), kInvalid,
       unset("result", 0, sizeof(colibri_result))},
      {"result without tokens", answer_into([](auto& r) { r.tokens = nullptr; }), kInvalid,
       null_of("result.tokens")},
      {"unaligned tokens", answer_into([](auto& r) { r.tokens = misaligned(r.tokens); }), kInvalid,
       unaligned("result.tokens", 4)},
      {"few tokens", answer_into([](auto& r) { r.tokens_capacity = 1; }), COLIBRI_ERROR_BUFFER_TOO_SMALL,
       "a buffer is too small: result.tokens takes 1 elements, 2 are needed; give a larger one"},
      {"infer on text",
       [&](auto* e) {
         CInfer call(spec_, 0, std::vector<float>(spec_.hidden_size));
         const colibri_code code = colibri_infer(model, &call.input, &call.output, e);
         EXPECT_EQ(call.output.error_code, code);
         return code;
       },
       COLIBRI_ERROR_UNSUPPORTED,
       "the model was opened for text, and takes no hidden states; set config.purpose to "
       "COLIBRI_PURPOSE_BLOCKS"},
  });
  CRequest request(golden_cases(kModel).at(0).prompt);
  request.max_tokens = 2;
  CResult result;
  EXPECT_EQ(colibri_generate(session, &request, &result, nullptr), COLIBRI_OK);
}

TEST_F(WrongUse, OfInfer) {
  const CModel model(path_, COLIBRI_PURPOSE_BLOCKS);
  const std::uint32_t hidden = spec_.hidden_size;
  const std::uint32_t rows = 3;
  const auto infer = [&](std::function<void(CInfer&)> change) {
    return [&, change](colibri_error* error) {
      CInfer call(spec_, 0, std::vector<float>(std::size_t{rows} * hidden, 0.5F));
      change(call);
      const colibri_code code = colibri_infer(model, &call.input, &call.output, error);
      colibri_call* handle = reinterpret_cast<colibri_call*>(8);
      EXPECT_EQ(colibri_infer_async(model, &call.input, &call.output, nullptr, nullptr, &handle, nullptr),
                code);
      EXPECT_EQ(handle, nullptr);
      return code;
    };
  };
  const std::string values = std::to_string(rows * hidden);
  const std::string picks = std::to_string(rows * spec_.num_experts_per_token);
  const std::string context = std::to_string(spec_.max_seq_len);
  expect({
      {"no input",
       [&](auto* e) {
         CInfer call(spec_, 0, std::vector<float>(hidden));
         return colibri_infer(model, nullptr, &call.output, e);
       },
       kInvalid, null_of("input")},
      {"no output",
       [&](auto* e) {
         CInfer call(spec_, 0, std::vector<float>(hidden));
         return colibri_infer(model, &call.input, nullptr, e);
       },
       kInvalid, null_of("output")},
      {"input without a size", infer([](auto& c) { c.input.struct_size = 4; }), kInvalid,
       unset("input", 4, sizeof(colibri_infer_input))},
      {"output without a size", infer([](auto& c) { c.output.struct_size = 4; }), kInvalid,
       unset("output", 4, sizeof(colibri_infer_output))},
      {"hidden_size", infer([](auto& c) { ++c.input.hidden_size; }), kInvalid,
       "hidden states of another model: input.hidden_size is " + std::to_string(hidden + 1) +
           ", the model's is " + std::to_string(hidden)},
      {"a dense layer", infer([](auto& c) { c.input.layer = 1; }), kInvalid,
       "the call is for a layer without experts: layer 1; the model has experts in layers 0, 2"},
      {"a layer beyond", infer([](auto& c) { c.input.layer = UINT32_MAX; }), kInvalid,
       "the call is for a layer without experts: layer 4294967295; the model has experts in layers 0, 2"},
      {"no rows", infer([](auto& c) { c.input.seq_len = 0; }), kInvalid,
       "the call has a number of rows that the model does not take: 0; give 1 to " + context},
      {"more than max_seq_len", infer([&](auto& c) { c.input.seq_len = spec_.max_seq_len + 1; }), kInvalid,
       "the call has a number of rows that the model does not take: " +
           std::to_string(spec_.max_seq_len + 1) + "; give 1 to " + context},
      {"NULL rows", infer([](auto& c) { c.input.hidden_states = nullptr; }), kInvalid,
       "an array of the call is missing: input is null; give memory of " + values + " values"},
      {"unaligned rows", infer([](auto& c) { c.input.hidden_states = misaligned(c.values.data()); }),
       kInvalid,
       "an array of the call is not aligned to its values: input; give a pointer that is a multiple of 4"},
      {"NULL output", infer([](auto& c) { c.output.hidden_states = nullptr; }), kInvalid,
       "an array of the call is missing: output is null; give memory of " + values + " values"},
      {"unaligned experts", infer([](auto& c) { c.output.expert_ids = misaligned(c.experts.data()); }),
       kInvalid,
       "an array of the call is not aligned to its values: experts; give a pointer that is a multiple of 4"},
      {"overlap", infer([](auto& c) { c.output.hidden_states = c.values.data() + 1; }), kInvalid,
       "arrays of the call overlap: input and output; give each its own memory (the output may be the "
       "input's, from its first value on)"},
      {"small output", infer([](auto& c) { --c.output.hidden_capacity; }), COLIBRI_ERROR_BUFFER_TOO_SMALL,
       "a buffer is too small: output.hidden_states takes " + std::to_string(rows * hidden - 1) +
           " elements, " + values + " are needed; give a larger one"},
      {"few experts", infer([](auto& c) { c.output.expert_capacity = 1; }), COLIBRI_ERROR_BUFFER_TOO_SMALL,
       "a buffer is too small: output.expert_ids and expert_weights takes 1 elements, " + picks +
           " are needed; give a larger one"},
      {"NaN", infer([&](auto& c) { c.values[hidden + 2] = std::nanf(""); }), kInvalid,
       "the input of the call holds a value that is not finite: row 1, column 2; correct it"},
      {"infinity", infer([&](auto& c) { c.values[0] = -std::numeric_limits<float>::infinity(); }), kInvalid,
       "the input of the call holds a value that is not finite: row 0, column 0; correct it"},
      {"no call",
       [&](auto* e) {
         CInfer call(spec_, 0, std::vector<float>(hidden));
         return colibri_infer_async(model, &call.input, &call.output, nullptr, nullptr, nullptr, e);
       },
       kInvalid, null_of("call")},
      {"check of nothing", [&](auto* e) { return colibri_infer_check_input(model, nullptr, e); }, kInvalid,
       null_of("input")},
      {"a session",
       [&](auto* e) {
         colibri_session* session = nullptr;
         return colibri_session_create(model, &session, e);
       },
       COLIBRI_ERROR_UNSUPPORTED,
       "the model was opened for blocks, and takes no text or tokens; set config.purpose to "
       "COLIBRI_PURPOSE_TEXT"},
      {"a batch",
       [&](auto* e) {
         colibri_batch_options options;
         colibri_batch_options_init(&options, sizeof options);
         return colibri_batch_run(model, &options, nullptr, e);
       },
       COLIBRI_ERROR_UNSUPPORTED,
       "the model was opened for blocks, and takes no text or tokens; set config.purpose to "
       "COLIBRI_PURPOSE_TEXT"},
  });
  // What is not a number is told by row and column.
  CInfer bad(spec_, 0, std::vector<float>(std::size_t{rows} * hidden, 0.5F));
  bad.values[2 * hidden + 7] = std::nanf("");
  CError error;
  EXPECT_EQ(colibri_infer_check_input(model, &bad.input, &error), kInvalid);
  EXPECT_NE(std::string(error.message).find("row 2"), std::string::npos) << error.message;
  EXPECT_NE(std::string(error.message).find("column 7"), std::string::npos) << error.message;
  CInfer good(spec_, 0, std::vector<float>(std::size_t{rows} * hidden, 0.5F));
  EXPECT_EQ(colibri_infer(model, &good.input, &good.output, &error), COLIBRI_OK) << error.message;
}

TEST_F(WrongUse, OfBatchFiles) {
  const CModel model(path_, COLIBRI_PURPOSE_TEXT);
  test::TemporaryFolder folder;
  const std::string input = (folder / "in.jsonl").string(), output = (folder / "out.jsonl").string();
  std::ofstream(input) << "{\"id\": \"a\", \"tokens\": [1], \"max_tokens\": 1}\n";
  const auto batch = [&](std::function<void(colibri_batch_options&)> change) {
    return [&, change](colibri_error* error) {
      colibri_batch_options options;
      colibri_batch_options_init(&options, sizeof options);
      options.input = input.c_str();
      options.output = output.c_str();
      change(options);
      return colibri_batch_run(model, &options, nullptr, error);
    };
  };
  expect({
      {"no options", [&](auto* e) { return colibri_batch_run(model, nullptr, nullptr, e); }, kInvalid,
       null_of("options")},
      {"no input", batch([](auto& o) { o.input = nullptr; }), kInvalid, null_of("options.input")},
      {"no output", batch([](auto& o) { o.output = nullptr; }), kInvalid, null_of("options.output")},
      {"task", batch([](auto& o) { o.task = 9; }), kInvalid,
       range("options.task", "9", "COLIBRI_TASK_GENERATE, _SCORE or _EMBED")},
      {"resume and force", batch([](auto& o) { o.resume = o.force = 1; }), kInvalid,
       "a job cannot both go on and start over: options.resume and options.force are 1; set one"},
      {"in_order", batch([](auto& o) { o.in_order = 7; }), kInvalid,
       range("options.in_order", "7", "0 or 1")},
      {"standard input", batch([](auto& o) { o.input = "-"; }), kInvalid,
       "the requests need a file that can be read again: options.input is -; save them to one"},
      {"standard output", batch([](auto& o) { o.output = "-"; }), kInvalid,
       "the results need a file: options.output is -; name a regular file, or a new one"},
      {"the input as output", batch([&](auto& o) { o.output = input.c_str(); }), kInvalid,
       "results would overwrite the requests: '" + input + "' is the input; name another file"},
      {"nothing there", batch([](auto& o) { o.input = "/nowhere/in.jsonl"; }), COLIBRI_ERROR_NOT_FOUND,
       "..."},
      {"no folder", batch([](auto& o) { o.output = "/nowhere/out.jsonl"; }), COLIBRI_ERROR_NOT_FOUND,
       "cannot open '/nowhere/out.jsonl': No such file or directory; check the path"},
  });
  EXPECT_FALSE(std::filesystem::exists(output));
}

}  // namespace
}  // namespace colibri::testing
