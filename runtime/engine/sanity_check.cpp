#include <algorithm>
#include <cmath>
#include <colibri/block_session.hpp>
#include <colibri/sanity_check.hpp>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/engine/contained.hpp"
#include "stages/list_source.hpp"

namespace colibri {
namespace {

constexpr double kLargestShare = 0.9;
constexpr double kDenseShare = 0.5;  // of the experts a token: then every router looks like a lost one
constexpr const char* kRemedy = "; check the files with `colibri verify`, and convert the model again";

std::vector<std::int32_t> sanity_tokens(const ModelSpec& spec) {
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < kSanityTokens; ++i) {
    const std::uint64_t part = 5 * i % kSanityTokens;
    tokens.push_back(static_cast<std::int32_t>((2 * part + 1) * spec.vocab_size / (2 * kSanityTokens)));
  }
  return tokens;
}

Status not_finite(const std::string& what, std::int32_t token) {
  return {ErrorCode::corrupt, "the model computes values that are not finite: " + what + " of token " +
                                  std::to_string(token) + kRemedy};
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

// How often each expert of each layer was picked.
class PickCounts {
 public:
  explicit PickCounts(const ModelSpec& spec)
      : spec_(spec), rows_(spec.num_layers()), picks_(std::size_t{spec.num_layers()} * spec.num_experts) {}

  // The picks of one row.
  void add(std::uint32_t layer, std::span<const std::uint32_t> experts) {
    ++rows_[layer];
    for (const std::uint32_t expert : experts) ++picks_[std::size_t{layer} * spec_.num_experts + expert];
  }
  std::vector<LayerSanity> layers() const {
    std::vector<LayerSanity> all;
    for (std::uint32_t layer = 0; layer < spec_.num_layers(); ++layer) {
      if (rows_[layer] == 0) continue;
      const auto own = std::span(picks_).subspan(std::size_t{layer} * spec_.num_experts, spec_.num_experts);
      const auto busiest = std::max_element(own.begin(), own.end());
      all.push_back({.layer = layer,
                     .distinct_experts = spec_.num_experts -
                                         static_cast<std::uint32_t>(std::count(own.begin(), own.end(), 0U)),
                     .busiest_expert = static_cast<std::uint32_t>(busiest - own.begin()),
                     .largest_share = static_cast<double>(*busiest) / rows_[layer]});
    }
    return all;
  }

 private:
  const ModelSpec& spec_;
  std::vector<std::uint32_t> rows_;   // [layers]
  std::vector<std::uint32_t> picks_;  // [layers, experts]
};

// What is wrong with the picks of the first layer with which anything is.
Status judge(const std::vector<LayerSanity>& layers, const ModelSpec& spec) {
  if (spec.num_experts_per_token > kDenseShare * spec.num_experts) return {};
  for (const LayerSanity& one : layers) {
    const std::string layer = "layer " + std::to_string(one.layer);
    if (one.distinct_experts <= spec.num_experts_per_token) {
      return {ErrorCode::corrupt, "a router picks the same experts for all tokens: " + layer + ", " +
                                      std::to_string(one.distinct_experts) +
                                      " distinct experts, expected more than " +
                                      std::to_string(spec.num_experts_per_token) + kRemedy};
    }
    if (one.largest_share > kLargestShare) {
      return {ErrorCode::corrupt, "a router picks one expert for nearly all tokens: " + layer + ", expert " +
                                      std::to_string(one.busiest_expert) + " for " +
                                      std::to_string(std::lround(one.largest_share * 100)) +
                                      " % of them, expected at most 90 %" + kRemedy};
    }
  }
  return {};
}

// Looks at what a whole pipeline computes.
class SanityRecorder final : public TraceRecorder {
 public:
  explicit SanityRecorder(const ModelSpec& spec) : counts(spec) {}
  bool wants_values() const override { return true; }
  bool wants_routing() const override { return true; }
  void values(std::string_view name, std::uint32_t layer, const Sequence& sequence, std::uint32_t position,
              std::span<const float> row) override {
    if (all_finite(row)) return;
    const std::lock_guard lock(mutex_);
    if (!wrong) return;  // the first is nearest to the cause
    const std::string place = name == "logits" ? std::string() : " " + std::to_string(layer);
    wrong = not_finite(std::string(name) + place, sequence.tokens[position]);
  }
  void routing(std::uint64_t, std::uint64_t, const Sequence&, std::uint32_t, std::uint32_t layer,
               std::span<const std::uint32_t> experts, std::span<const float>) override {
    const std::lock_guard lock(mutex_);
    counts.add(layer, experts);
  }

  Status wrong;
  PickCounts counts;

 private:
  std::mutex mutex_;
};

// Keeps why a request failed.
class FailureSink final : public ResultSink {
 public:
  Status result(RequestResult&& result) override {
    if (failure) failure = std::move(result.error);
    return {};
  }
  Status flush() override { return {}; }
  Status failure;
};

Result<SanityReport> check_whole(Engine& engine) {
  const ModelSpec& spec = engine.spec();
  const std::vector<std::int32_t> tokens = sanity_tokens(spec);
  // As one prompt, or as many as the model's length and the pool of keys and values ask for.
  const std::uint64_t longest =
      std::max<std::uint64_t>(2, std::min<std::uint64_t>(spec.max_seq_len, engine.plan().longest_request()));
  std::vector<Request> requests;
  for (std::size_t begin = 0; begin < tokens.size(); begin += longest) {
    Request request;
    request.id = "sanity check";
    request.index = requests.size();
    request.task = Task::score;
    request.tokens.assign(
        tokens.begin() + static_cast<std::ptrdiff_t>(begin),
        tokens.begin() + static_cast<std::ptrdiff_t>(std::min(begin + longest, tokens.size())));
    requests.push_back(std::move(request));
  }
  ListSource source(std::move(requests));
  FailureSink sink;
  SanityRecorder recorder(spec);
  COLIBRI_RETURN_IF_ERROR(engine.run({.source = &source, .sink = &sink, .trace = &recorder}).status());
  SanityReport report{.status = recorder.wrong, .layers = recorder.counts.layers()};
  if (report.status) report.status = sink.failure;
  if (report.status) report.status = judge(report.layers, spec);
  return report;
}

// The rows through the block of a layer, which adds to them; notes what they picked.
Status pass_layer(BlockSession& session, const ModelSpec& spec, std::uint32_t layer,
                  const std::vector<std::int32_t>& tokens, std::vector<float>& residual, PickCounts& counts) {
  const std::size_t hidden = spec.hidden_size, k = spec.num_experts_per_token;
  std::vector<float> added(residual.size());
  std::vector<std::uint32_t> experts(tokens.size() * k);
  for (std::uint32_t begin = 0; begin < tokens.size(); begin += spec.max_seq_len) {
    const std::uint32_t rows = std::min(kSanityTokens - begin, spec.max_seq_len);
    const BlockCall call = {.layer = layer,
                            .rows = rows,
                            .input = residual.data() + begin * hidden,
                            .output = added.data() + begin * hidden,
                            .experts = experts.data() + begin * k};
    COLIBRI_RETURN_IF_ERROR(session.run(call).status);
  }
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (!all_finite(std::span(added).subspan(row * hidden, hidden)))
      return not_finite("moe_output " + std::to_string(layer), tokens[row]);
    counts.add(layer, std::span(experts).subspan(row * k, k));
    for (std::size_t i = row * hidden; i < (row + 1) * hidden; ++i) residual[i] += added[i];
  }
  return {};
}

Result<SanityReport> check_blocks(Engine& engine) {
  const ModelSpec& spec = engine.spec();
  const std::vector<std::int32_t> tokens = sanity_tokens(spec);
  std::vector<float> residual(tokens.size() * spec.hidden_size);
  COLIBRI_RETURN_IF_ERROR(engine.embedding_rows(tokens, residual));
  SanityReport report;
  for (std::size_t row = 0; row < tokens.size() && report.status; ++row) {
    if (!all_finite(std::span(residual).subspan(row * spec.hidden_size, spec.hidden_size)))
      report.status = not_finite("hidden_states 0", tokens[row]);
  }
  if (!report.status) return report;
  COLIBRI_ASSIGN_OR_RETURN(const std::unique_ptr<BlockSession> session, BlockSession::start(engine));
  PickCounts counts(spec);
  for (std::uint32_t layer = spec.next_moe_layer(0); layer < spec.num_layers() && report.status;
       layer = spec.next_moe_layer(layer + 1)) {
    report.status = pass_layer(*session, spec, layer, tokens, residual, counts);
  }
  COLIBRI_RETURN_IF_ERROR(session->close().status());
  report.layers = counts.layers();
  if (report.status) report.status = judge(report.layers, spec);
  return report;
}

}  // namespace

Result<SanityReport> check_sanity(Engine& engine) {
  return contained(
      [&] { return takes_hidden_states(engine.pipeline()) ? check_blocks(engine) : check_whole(engine); });
}

}  // namespace colibri
