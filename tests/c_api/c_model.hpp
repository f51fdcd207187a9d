// A model opened through colibri.h, with small pools, for tests.
#pragma once

#include <colibri/colibri.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace colibri::testing {

// An error whose struct_size is set.
struct CError : colibri_error {
  CError() { EXPECT_EQ(colibri_error_init(this, sizeof(colibri_error)), COLIBRI_OK); }
};

struct CConfig : colibri_config {
  explicit CConfig(std::int32_t for_purpose, std::vector<std::string> more = {}) : texts(std::move(more)) {
    EXPECT_EQ(colibri_config_init(this, sizeof(colibri_config)), COLIBRI_OK);
    purpose = for_purpose;
    // Enough for any golden, and small: the automatic size is meant for one model a machine.
    if (for_purpose == COLIBRI_PURPOSE_TEXT) texts.insert(texts.begin(), "memory.dynamic=128MiB");
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    settings = pointers.data();
    num_settings = pointers.size();
  }
  CConfig(const CConfig&) = delete;
  std::vector<std::string> texts;
  std::vector<const char*> pointers;
};

// Destroys it at the end, which must succeed.
class CModel {
 public:
  CModel(const std::filesystem::path& path, const colibri_config& config) {
    CError error;
    EXPECT_EQ(colibri_model_create(path.c_str(), &config, &model_, &error), COLIBRI_OK) << error.message;
  }
  CModel(const std::filesystem::path& path, std::int32_t purpose, std::vector<std::string> settings = {})
      : CModel(path, CConfig(purpose, std::move(settings))) {}
  CModel(const CModel&) = delete;
  ~CModel() {
    CError error;
    EXPECT_EQ(colibri_model_destroy(model_, &error), COLIBRI_OK) << error.message;
  }
  colibri_model* get() const { return model_; }
  operator colibri_model*() const { return model_; }  // NOLINT(google-explicit-constructor)

 private:
  colibri_model* model_ = nullptr;
};

class CSession {
 public:
  explicit CSession(colibri_model* model) {
    CError error;
    EXPECT_EQ(colibri_session_create(model, &session_, &error), COLIBRI_OK) << error.message;
  }
  CSession(const CSession&) = delete;
  ~CSession() {
    CError error;
    EXPECT_EQ(colibri_session_destroy(session_, &error), COLIBRI_OK) << error.message;
  }
  operator colibri_session*() const { return session_; }  // NOLINT(google-explicit-constructor)

 private:
  colibri_session* session_ = nullptr;
};

struct CRequest : colibri_request {
  explicit CRequest(std::vector<std::int32_t> ids = {}) : token_ids(std::move(ids)) {
    EXPECT_EQ(colibri_request_init(this, sizeof(colibri_request)), COLIBRI_OK);
    tokens = token_ids.data();
    num_tokens = token_ids.size();
  }
  CRequest(const CRequest&) = delete;
  std::vector<std::int32_t> token_ids;
};

// Buffers for any result of a test.
struct CResult : colibri_result {
  CResult() : text_bytes(1 << 16), token_ids(1 << 12), values(1 << 14), states(1 << 12) {
    EXPECT_EQ(colibri_result_init(this, sizeof(colibri_result)), COLIBRI_OK);
    text = text_bytes.data();
    text_capacity = text_bytes.size();
    tokens = token_ids.data();
    tokens_capacity = token_ids.size();
    logprobs = values.data();
    logprobs_capacity = values.size();
    embedding = states.data();
    embedding_capacity = states.size();
  }
  CResult(const CResult&) = delete;
  std::vector<std::int32_t> generated() const { return {tokens, tokens + tokens_size}; }
  std::vector<float> logs() const { return {logprobs, logprobs + logprobs_size}; }
  std::vector<float> embedded() const { return {embedding, embedding + embedding_size}; }
  std::vector<char> text_bytes;
  std::vector<std::int32_t> token_ids;
  std::vector<float> values, states;
};

// Rows for colibri_infer, with room for what comes out.
struct CInfer {
  CInfer(const colibri_model_spec& spec, std::uint32_t layer, std::vector<float> hidden)
      : values(std::move(hidden)) {
    const auto rows = static_cast<std::uint32_t>(values.size() / spec.hidden_size);
    states.resize(values.size());
    experts.resize(std::size_t{rows} * spec.num_experts_per_token);
    weights.resize(experts.size());
    input = {sizeof input, values.data(), layer, rows, spec.hidden_size, 0};
    output = {sizeof output,
              states.data(),
              states.size(),
              experts.data(),
              weights.data(),
              experts.size(),
              0,
              COLIBRI_PENDING,
              0};
  }
  CInfer(const CInfer&) = delete;
  std::vector<float> values, states, weights;
  std::vector<std::uint32_t> experts;
  colibri_infer_input input;
  colibri_infer_output output;
};

inline colibri_model_spec spec_of(colibri_model* model) {
  colibri_model_spec spec{};
  spec.struct_size = sizeof spec;
  CError error;
  EXPECT_EQ(colibri_model_get_spec(model, &spec, &error), COLIBRI_OK) << error.message;
  return spec;
}

}  // namespace colibri::testing
