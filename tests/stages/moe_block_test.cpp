// route, compute and combine together against a MoE block in double precision, with every message of every
// edge delivered in a random order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <set>

#include "moe_job.hpp"
#include "stages/combine.hpp"
#include "stages/compute.hpp"
#include "stages/route.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

const StageKind kRouteKind{&kRouteInfo, create_route, route_memory_bytes};
const StageKind kComputeKind{&kComputeInfo, create_compute, compute_memory_bytes};
const StageKind kCombineKind{&kCombineInfo, create_combine, nullptr};

using Row = std::vector<double>;

Row multiply(const kernels::PackedMatrix& matrix, const Row& x) {
  Row y(matrix.outputs);
  std::vector<float> weights(matrix.inputs);
  for (std::uint32_t output = 0; output < matrix.outputs; ++output) {
    kernels::unpack_row(matrix, output, weights.data());
    for (std::uint32_t i = 0; i < matrix.inputs; ++i) y[output] += static_cast<double>(weights[i]) * x[i];
  }
  return y;
}

Row ffn(const kernels::PackedMatrix& gate, const kernels::PackedMatrix& up, const kernels::PackedMatrix& down,
        const Row& x) {
  Row h = multiply(gate, x);
  const Row u = multiply(up, x);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * u[i];
  return multiply(down, h);
}

struct Routed {
  std::vector<std::uint32_t> experts;  // ascending
  Row weights;
};

// The two router forms of the goldens: softmax before or after the choice.
Routed reference_route(const kernels::RouterForm& form, const Row& logits) {
  std::vector<std::uint32_t> order(logits.size());
  for (std::uint32_t e = 0; e < order.size(); ++e) order[e] = e;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  order.resize(form.num_experts_per_token);
  std::sort(order.begin(), order.end());
  const bool chosen = form.score == kernels::RouterScore::softmax_chosen;
  double all = 0, picked = 0;
  for (const double logit : logits) all += std::exp(logit);
  for (const std::uint32_t e : order) picked += std::exp(logits[e]);
  const bool over_picked = chosen || form.renormalise == kernels::RouterRenormalise::yes;
  Routed routed{order, {}};
  for (const std::uint32_t e : order) routed.weights.push_back(std::exp(logits[e]) / (over_picked ? picked : all) * form.scale);
  return routed;
}

struct BlockOptions {
  std::uint32_t rows = 13;
  std::uint64_t seed = 1;
  bool alike = false;                  // all rows nearly the same: they pick the same experts
  std::set<std::uint32_t> unreadable;  // experts whose read fails
  std::vector<std::string> fetches = {"all"};   // parts of the experts that are demanded of each
  std::vector<std::string> computes = {"all"};  // and computed by each
};

// One visit through the three stages.
class Block {
 public:
  Block(MoeJob& job, std::uint32_t layer, const BlockOptions& options)
      : job_(job), layer_(layer), options_(options), random_(options.seed),
        route_(kRouteKind, job.services, {.seed = options.seed}),
        combine_(kCombineKind, job.services, {.seed = options.seed}) {
    for (const std::string& experts : options.fetches) {
      route_.emitter.shares[1].push_back(ExpertPartition::parse(experts).value());
      visits_told_.emplace_back();
    }
    for (const std::string& experts : options.computes) {
      route_.emitter.shares[2].push_back(ExpertPartition::parse(experts).value());
      computes_.push_back(std::make_unique<StageHarness>(
          kComputeKind, job.services, HarnessOptions{.params = {{"experts", experts}}, .seed = options.seed}));
    }
  }

  void run() {
    const std::size_t hidden = job_.spec().hidden_size;
    step = &job_.begin_step(0, options_.rows);
    std::normal_distribution<float> value;
    for (std::size_t i = 0; i < options_.rows * hidden; ++i) {
      const bool copy = options_.alike && i >= hidden;
      step->residual[i] = copy ? step->residual[i % hidden] * (1 + 1e-3F * value(random_)) : value(random_);
    }
    before.assign(step->residual, step->residual + options_.rows * hidden);
    while (left_.size() < step->wave_count) {
      ASSERT_LT(++turns_, 1'000'000) << "hangs";
      turn();
    }
    Message message;
    for (std::uint32_t fetch = 0; route_.take(1, message, &fetch);) take_demand(message, fetch);  // mere ends
    collect_released();
    check_order();
    check_told();
  }

  Step* step = nullptr;
  Visit* visit = nullptr;
  std::vector<float> before;
  std::vector<std::uint32_t> demanded;
  std::multiset<std::uint32_t> released;

 private:
  void turn() {
    Message message;
    switch (random_() % 8) {
      case 0:
        if (next_wave_ < step->wave_count) {
          Wave& wave = step->waves[next_wave_++];
          wave.layer = layer_;
          route_.send(1, {.type = MessageType::wave, .object = &wave});
        }
        break;
      case 1:
        if (route_.take(0, message)) combine_.send(1, message);
        break;
      case 2:
        if (std::uint32_t fetch = 0; route_.take(1, message, &fetch)) take_demand(message, fetch);
        break;
      case 3:
        if (std::uint32_t compute = 0; route_.take(2, message, &compute)) {
          check_sort(*message.visit());
          computes_[compute]->send(0, message);
        }
        break;
      case 4: arrive(); break;
      case 5:
        if (StageHarness& compute = any_compute(); compute.last_wait != Wait::none) compute.resume();
        break;
      case 6:
        if (any_compute().take(0, message)) combine_.send(0, message);
        collect_released();
        break;
      default:
        if (route_.take(3, message)) route_.send(0, {.type = MessageType::hint, .object = message.hints()});
    }
    while (combine_.take(0, message)) left_.push_back(message.wave()->index);
  }

  // Records lie in slots: of any of the demanded experts, several of one compute in a message.
  void arrive() {
    std::shuffle(arriving_.begin(), arriving_.end(), random_);
    std::optional<std::uint32_t> owner;
    Message message{.type = MessageType::expert, .object = visit};
    std::uint32_t last = 0;
    for (std::size_t several = 1 + random_() % 3; several > 0 && !arriving_.empty(); --several) {
      const std::uint32_t expert = arriving_.back();
      if (owner.value_or(route_.emitter.owner(2, expert)) != route_.emitter.owner(2, expert)) break;
      const bool unreadable = options_.unreadable.contains(expert);
      if (unreadable && message.count > 0) break;  // errors come alone
      arriving_.pop_back();
      owner = route_.emitter.owner(2, expert);
      (message.count++ == 0 ? message.first : visit->records[last].next) = expert;
      last = expert;
      if (unreadable) {
        message.error = new Status(ErrorCode::io, "unreadable: test; none");
        break;
      }
      std::byte* data = job_.services.slots.base + expert * job_.services.slots.stride;
      const auto bytes = job_.record_bytes(layer_, expert);
      std::memcpy(data, bytes.data(), bytes.size());
      visit->records[expert] = {.data = data, .slot = expert, .kept = random_() % 2 == 0};
    }
    if (message.count > 0) computes_[*owner]->send(1, message);
  }

  StageHarness& any_compute() { return *computes_[random_() % computes_.size()]; }

  // A fetch gets its own experts, in a row, and is told of each visit's begin and end.
  void take_demand(const Message& message, std::uint32_t fetch) {
    EXPECT_EQ(message.layer, layer_);
    EXPECT_EQ(message.step_slot, step->slot);
    EXPECT_EQ(message.step_serial, step->serial);
    visits_told_[fetch].push_back(message.last);
    if (message.count == 0) return;
    visit = message.visit();
    for (std::uint32_t i = 0; i < message.count; ++i) {
      demanded.push_back(visit->experts[message.first + i]);
      EXPECT_EQ(route_.emitter.owner(1, demanded.back()), fetch);
      arriving_.push_back(demanded.back());
    }
  }

  void collect_released() {
    Message message;
    for (const auto& compute : computes_) {
      while (compute->take(1, message)) {
        for (const Lease& lease : message.leases()) {
          EXPECT_EQ(lease.slot, lease.expert) << "slots here are numbered like their experts";
          released.insert(lease.slot);
        }
      }
    }
  }

  // Places are a permutation, sorted by expert and row.
  void check_sort(const Visit& sorted) {
    const std::uint32_t k = job_.spec().num_experts_per_token;
    ASSERT_EQ(sorted.row_offsets[job_.spec().num_experts], options_.rows * k);
    std::vector<bool> taken(options_.rows * k);
    for (std::uint32_t row = 0; row < options_.rows; ++row) {
      for (std::uint32_t i = 0; i < k; ++i) {
        const std::uint32_t expert = step->picks[row * k + i];
        const std::uint32_t place = sorted.places[row * k + i];
        ASSERT_GE(place, sorted.row_offsets[expert]);
        ASSERT_LT(place, sorted.row_offsets[expert + 1]);
        ASSERT_EQ(sorted.row_list[place], row);
        ASSERT_FALSE(taken[place]);
        taken[place] = true;
        if (place == sorted.row_offsets[expert]) continue;
        ASSERT_LT(sorted.row_list[place - 1], row);
      }
    }
  }

  void check_order() {
    for (std::uint32_t i = 0; i < left_.size(); ++i) EXPECT_EQ(left_[i], i) << "waves leave in order";
  }

  void check_told() {
    for (const std::vector<bool>& told : visits_told_) {
      ASSERT_FALSE(told.empty());
      EXPECT_EQ(told.front(), step->wave_count == 1) << "the first wave tells of the visit";
      EXPECT_EQ(std::count(told.begin(), told.end(), true), 1);
      EXPECT_TRUE(told.back()) << "the last demand of a visit says so";
    }
    for (const auto& compute : computes_) EXPECT_EQ(compute->last_wait, Wait::none);
  }

  MoeJob& job_;
  std::uint32_t layer_;
  BlockOptions options_;
  std::mt19937_64 random_;
  StageHarness route_, combine_;
  std::vector<std::unique_ptr<StageHarness>> computes_;
  std::vector<std::vector<bool>> visits_told_;  // [fetches] Message::last of each demand
  std::uint32_t next_wave_ = 0;
  int turns_ = 0;
  std::vector<std::uint32_t> arriving_;
  std::vector<std::uint32_t> left_;
};

// f32 arithmetic on sums of 64 to 100 terms, and the residual added and taken away again: of the largest value.
constexpr double kExact = 2e-5;
// Compared with the stored weights. Activations of models with integer weights are rounded to 8 bits in groups of 64. A group's largest value is about 2.5 times its
// root mean square before the experts and 6 times after silu(gate) * up, so the errors are 2.5 / 127 / sqrt(12) =
// 0.6 % and 1.4 %, together under 2 % of the output's root mean square.
constexpr double kRounded = 3e-2;

// Runs a block and compares all of it with double precision.
void check_block(MoeJob& job, std::uint32_t layer, const BlockOptions& options) {
  const ModelSpec& spec = job.spec();
  const std::size_t hidden = spec.hidden_size;
  const std::uint32_t k = spec.num_experts_per_token;
  Block block(job, layer, options);
  block.run();
  if (::testing::Test::HasFatalFailure()) return;
  const DenseLayer& dense = job.dense.layers[layer];
  std::vector<std::vector<std::byte>> records;
  // Packed matrices are read at 64-byte boundaries: the slots have them.
  for (std::uint32_t e = 0; e < spec.num_experts; ++e) {
    const auto bytes = job.record_bytes(layer, e);
    std::memcpy(job.services.slots.base + e * job.services.slots.stride, bytes.data(), bytes.size());
  }
  std::set<std::uint32_t> picked;
  double largest = 0, worst = 0, squares_expected = 0, squares_wrong = 0;
  for (std::uint32_t row = 0; row < options.rows; ++row) {
    Row x(hidden);
    double squares = 0;
    for (std::size_t i = 0; i < hidden; ++i) squares += std::pow(block.before[row * hidden + i], 2);
    for (std::size_t i = 0; i < hidden; ++i) {
      x[i] = block.before[row * hidden + i] / std::sqrt(squares / static_cast<double>(hidden) + spec.rms_norm_eps) * dense.ffn_norm[i];
    }
    const Routed routed = reference_route(spec.router, multiply(dense.router, x));
    Row sum(hidden);
    bool readable = true;
    for (std::uint32_t i = 0; i < k; ++i) {
      ASSERT_EQ(block.step->picks[row * k + i], routed.experts[i]) << "row " << row;
      ASSERT_NEAR(block.step->pick_weights[row * k + i], routed.weights[i], 1e-5);
      picked.insert(routed.experts[i]);
      readable &= !options.unreadable.contains(routed.experts[i]);
      const ExpertMatrices expert =
          expert_matrices(job.container->layout(), job.services.slots.base + routed.experts[i] * job.services.slots.stride);
      const Row y = ffn(expert.gate, expert.up, expert.down, x);
      for (std::size_t h = 0; h < hidden; ++h) sum[h] += routed.weights[i] * y[h];
    }
    if (spec.shared_expert.intermediate_size > 0) {
      const Row y = ffn(dense.shared.gate, dense.shared.up, dense.shared.down, x);
      double logit = 0;
      if (dense.shared_gate != nullptr) {
        for (std::size_t h = 0; h < hidden; ++h) logit += dense.shared_gate[h] * x[h];
      }
      const double factor = dense.shared_gate == nullptr ? 1.0 : 1 / (1 + std::exp(-logit));
      for (std::size_t h = 0; h < hidden; ++h) sum[h] += factor * y[h];
    }
    EXPECT_EQ(block.step->row_status[row].is_ok(), readable) << "row " << row;
    if (!readable) continue;
    for (std::size_t h = 0; h < hidden; ++h) {
      const double found = double{block.step->residual[row * hidden + h]} - double{block.before[row * hidden + h]};
      largest = std::max(largest, std::fabs(sum[h]));
      worst = std::max(worst, std::fabs(sum[h] - found));
      squares_expected += sum[h] * sum[h];
      squares_wrong += (sum[h] - found) * (sum[h] - found);
    }
  }
  if (kernels::has_integer_weights(spec.weight_dtype)) {
    EXPECT_LT(std::sqrt(squares_wrong), kRounded * std::sqrt(squares_expected));
  } else {
    EXPECT_LT(worst, kExact * largest);
  }
  // Each expert that a row picked was demanded once, and the slot of each that could be read came back once.
  std::multiset<std::uint32_t> slots(picked.begin(), picked.end());
  EXPECT_EQ(std::multiset<std::uint32_t>(block.demanded.begin(), block.demanded.end()), slots);
  for (const std::uint32_t expert : options.unreadable) slots.erase(expert);
  EXPECT_EQ(block.released, slots);
}

MoeJobOptions all_slots(std::uint32_t max_rows, std::uint32_t wave_rows) {
  return {.max_rows = max_rows, .wave_rows = wave_rows, .slots = 16, .transit = 1};
}

TEST(MoeBlock, EveryModelInDoublePrecision) {
  for (const std::string& model : golden_names()) {
    for (const char* weights : {"auto", "int8", "int4"}) {
      SCOPED_TRACE(model + " " + weights);
      MoeJob job(golden_container(model, "config.json", weights), all_slots(16, 4));
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        check_block(job, job.spec().next_moe_layer(0), {.rows = 13, .seed = seed});
      }
    }
  }
}

TEST(MoeBlock, AnExpertWithMoreRowsThanABatchIsSplit) {
  for (const char* weights : {"auto", "int8", "int4"}) {
    MoeJob job(golden_container("qwen2_moe", "config.json", weights), all_slots(1200, 64));
    check_block(job, 0, {.rows = 1200, .seed = 3, .alike = true});
  }
}

TEST(MoeBlock, ASharedExpertWithoutAGate) {
  for (const char* weights : {"auto", "int8", "int4"}) {
    MoeJob job(golden_container("qwen2_moe", "config.json", weights), all_slots(16, 4));
    ASSERT_NE(job.dense.layers[0].shared_gate, nullptr);
    job.dense.layers[0].shared_gate = nullptr;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      check_block(job, 0, {.rows = 11, .seed = seed});
    }
  }
}

TEST(MoeBlock, AnUnreadableExpertFailsItsRowsOnly) {
  MoeJob job(golden_container("qwen3_moe", "config.json", "auto"), all_slots(32, 5));
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    check_block(job, 0, {.rows = 32, .seed = seed, .unreadable = {static_cast<std::uint32_t>(seed)}});
  }
}

// Experts shared out between fetches and computes: the shared expert goes with expert 0, stages without an
// expert of the visit are left alone.
TEST(MoeBlock, SeveralComputes) {
  for (const std::string model : {"qwen2_moe", "qwen3_moe"}) {
    MoeJob job(golden_container(model, "config.json", "auto"), all_slots(16, 4));
    const std::vector<std::vector<std::string>> parts = {{"0/2", "1/2"}, {"1-", "0"}, {"2/3", "1/3", "0/3"}, {"all"}};
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE(model + " seed " + std::to_string(seed));
      check_block(job, job.spec().next_moe_layer(0),
                  {.rows = static_cast<std::uint32_t>(1 + seed % 13),
                   .seed = seed,
                   .unreadable = seed % 5 == 4 ? std::set<std::uint32_t>{static_cast<std::uint32_t>(seed % 8)}
                                               : std::set<std::uint32_t>{},
                   .fetches = parts[seed % 4],
                   .computes = parts[seed / 4 % 4]});
    }
  }
}

TEST(MoeBlock, OneRowAndFullStep) {
  MoeJob job(golden_container("olmoe", "config.json", "auto"), all_slots(16, 1));
  for (const std::uint32_t rows : {1U, 16U}) check_block(job, 1, {.rows = rows, .seed = rows});
}

// Of what is there, slots that can be read into afterwards come back first, and those soonest whose experts have
// the fewest rows; what stays in memory follows as it came.
TEST(MoeBlock, SlotsThatAreReadIntoComeBackFirstAndThoseOfFewRowsSoonest) {
  MoeJob job(golden_container("qwen3_moe", "config.json", "auto"), all_slots(16, 16));
  for (const std::uint32_t workers : {1U, 2U}) {
    Step& step = job.begin_step(0, 16);
    std::mt19937_64 random(5);
    std::normal_distribution<float> value;
    for (std::size_t i = 0; i < 16 * job.spec().hidden_size; ++i) step.residual[i] = value(random);
    StageHarness route(kRouteKind, job.services), compute(kComputeKind, job.services, {.workers = workers});
    route.send(1, {.type = MessageType::wave, .object = &step.waves[0]});
    Message routed;
    ASSERT_TRUE(route.take(2, routed));
    Visit& visit = *routed.visit();
    const auto rows = [&](std::uint32_t expert) { return visit.row_offsets[expert + 1] - visit.row_offsets[expert]; };
    std::vector<std::uint32_t> passing, kept;
    for (std::uint32_t expert = 0; expert < job.spec().num_experts; ++expert) {
      if (rows(expert) > 0) (expert % 3 == 0 ? kept : passing).push_back(expert);
    }
    ASSERT_GE(passing.size(), 4U);
    ASSERT_GE(kept.size(), 2U);
    std::stable_sort(passing.begin(), passing.end(), [&](auto a, auto b) { return rows(a) < rows(b); });
    ASSERT_LT(rows(passing.front()), rows(passing.back()));
    std::vector<std::uint32_t> expected = passing;
    expected.insert(expected.end(), kept.rbegin(), kept.rend());
    // The other way round each, one by one.
    std::vector<std::uint32_t> arriving(expected.rbegin(), expected.rend());
    std::reverse(arriving.begin(), arriving.begin() + static_cast<std::ptrdiff_t>(kept.size()));
    for (const std::uint32_t expert : arriving) {
      std::byte* data = job.services.slots.base + expert * job.services.slots.stride;
      const auto bytes = job.record_bytes(0, expert);
      std::memcpy(data, bytes.data(), bytes.size());
      visit.records[expert] = {.data = data, .slot = expert, .kept = expert % 3 == 0};
      compute.send(1, {.type = MessageType::expert, .first = expert, .count = 1, .object = &visit});
    }
    compute.send(0, routed);
    while (compute.last_wait != Wait::none) compute.resume();
    std::vector<std::uint32_t> came_back;
    for (Message message; compute.take(1, message);) {
      for (const Lease& lease : message.leases()) came_back.push_back(rows(lease.expert) * 100 + lease.expert);
    }
    ASSERT_EQ(came_back.size(), expected.size()) << workers << " workers";
    // Experts with equally many rows may come in any order among the first.
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (i < passing.size()) {
        EXPECT_EQ(came_back[i] / 100, rows(expected[i])) << workers << " workers, place " << i;
      } else {
        EXPECT_EQ(came_back[i] % 100, expected[i]) << workers << " workers, place " << i;
      }
    }
  }
}

// A step that starts over uses its two visits in turn, also with an odd number of MoE layers: what is still
// told about the visit before is never about a new one.
TEST(MoeBlock, VisitsAreUsedInTurn) {
  MoeJob job(golden_container("qwen3_moe", "config.json", "auto"), all_slots(8, 8));
  StageHarness route(kRouteKind, job.services);
  Visit* last = nullptr;
  for (int step_number = 0; step_number < 3; ++step_number) {
    Step& step = job.begin_step(0, 8);
    std::fill_n(step.residual, 8 * job.spec().hidden_size, 1.0F);
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      step.waves[0].layer = layer;
      route.send(1, {.type = MessageType::wave, .object = &step.waves[0]});
      Message message;
      ASSERT_TRUE(route.take(2, message));
      EXPECT_NE(message.visit(), last) << "step " << step_number << " layer " << layer;
      last = message.visit();
      EXPECT_EQ(last->layer, layer);
    }
  }
}

TEST(MoeBlock, ARouterValueThatIsNotFiniteFailsItsRow) {
  MoeJob job(golden_container("qwen3_moe", "config.json", "auto"), all_slots(8, 8));
  StageHarness route(kRouteKind, job.services);
  Step& step = job.begin_step(0, 8);
  std::fill_n(step.residual, 8 * job.spec().hidden_size, 1.0F);
  step.residual[3 * job.spec().hidden_size] = std::nanf("");
  step.waves[0].layer = 1;
  route.send(1, {.type = MessageType::wave, .object = &step.waves[0]});
  for (std::uint32_t row = 0; row < 8; ++row) EXPECT_EQ(step.row_status[row].is_ok(), row != 3);
  EXPECT_NE(step.row_status[3].to_string().find("layer 1"), std::string::npos);
}

}  // namespace
}  // namespace colibri::testing
