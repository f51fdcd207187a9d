#include <chrono>
#include <colibri/engine.hpp>
#include <utility>

#include "io/read/aligned_region.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/engine/live_parameters.hpp"
#include "runtime/engine/pipeline.hpp"
#include "runtime/memory/step_buffers.hpp"
#include "stages/dense_weights.hpp"
#include "topology/machine.hpp"

namespace colibri {
namespace {

constexpr std::chrono::milliseconds kProgressPeriod{100};

Result<const kernels::KernelTable*> choose_kernels(const std::string& name) {
  if (name.empty()) return &kernels::best_kernel_table();
  if (const kernels::KernelTable* table = kernels::find_kernel_table(name)) return table;
  std::string known;
  for (const kernels::KernelTable* table : kernels::all_kernel_tables()) {
    if (table->supported()) known += (known.empty() ? "" : ", ") + std::string(table->name);
  }
  return Status(ErrorCode::invalid_input, "unknown kernels '" + name + "'; this processor has: " + known);
}

// Totals over all stages of a kind that the report as a whole shows.
void sum_up(RunReport& report) {
  for (const StageReport& stage : report.stages) {
    if (stage.kind == "fetch") {
      report.bytes_read += stage.metric("bytes_read_total");
      report.distinct_bytes += stage.metric("distinct_bytes_total");
      report.wasted_hint_bytes += stage.metric("wasted_hint_bytes_total");
      report.demands += stage.metric("demands_total");
      report.hits += stage.metric("hits_total");
    }
    if (stage.kind == "admit") {
      report.prompt_tokens += stage.metric("prompt_rows_total");
      report.steps += stage.metric("steps_total");
    }
    if (stage.kind == "sample") report.generated_tokens += stage.metric("generated_tokens_total");
  }
}

}  // namespace

struct Engine::State {
  PipelineSpec pipeline;
  EngineOptions options;
  Registry own_registry;
  const Registry* registry = nullptr;
  Machine machine;
  std::shared_ptr<const Container> container;
  std::shared_ptr<const Tokenizer> tokenizer;
  const kernels::KernelTable* kernels = nullptr;
  MemoryPlan plan;
  AlignedRegion static_pool, kv_pool, step_pool, scratch_pool, slots;
  DenseWeights dense;
  std::uint32_t worker_slots = 0;
  std::unique_ptr<LiveParameters> parameters;

  void log(std::string line) const {
    if (options.log) options.log(std::move(line));
  }
  Status allocate();
  RunReport report(const Pipeline& running, double wall_seconds) const;
};

Status Engine::State::allocate() {
  auto make = [](AlignedRegion& region, std::uint64_t bytes) -> Status {
    if (bytes == 0) return {};
    COLIBRI_ASSIGN_OR_RETURN(region, AlignedRegion::create(bytes));
    return {};
  };
  COLIBRI_RETURN_IF_ERROR(make(static_pool, plan.static_bytes));
  COLIBRI_RETURN_IF_ERROR(make(kv_pool, plan.kv_pages * plan.kv_page_bytes));
  COLIBRI_RETURN_IF_ERROR(make(step_pool, plan.inputs.in_flight * plan.step_bytes +
                                              plan.hint_batches * hint_batch_bytes(plan.inputs)));
  COLIBRI_RETURN_IF_ERROR(make(scratch_pool, plan.scratch_bytes));
  return make(slots, plan.slots * plan.slot_bytes);
}

RunReport Engine::State::report(const Pipeline& running, double wall_seconds) const {
  RunReport report;
  report.wall_seconds = wall_seconds;
  report.planned_bytes = plan.total_bytes;
  report.peak_rss_bytes = peak_resident_bytes();
  report.kernels = kernels->name;
  report.stages = running.report();
  sum_up(report);
  return report;
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const std::filesystem::path& model, PipelineSpec pipeline,
                                             EngineOptions options) {
  auto state = std::make_unique<State>();
  state->pipeline = std::move(pipeline);
  state->options = std::move(options);
  state->own_registry = builtin_registry();
  state->registry = state->options.registry != nullptr ? state->options.registry : &state->own_registry;
  state->parameters = std::make_unique<LiveParameters>(state->pipeline, state->registry->infos());
  COLIBRI_ASSIGN_OR_RETURN(state->kernels, choose_kernels(state->options.kernels));
  COLIBRI_ASSIGN_OR_RETURN(state->machine, read_machine());
  COLIBRI_ASSIGN_OR_RETURN(state->container, Container::open(model));
  if (const std::filesystem::path path = state->container->tokenizer_path(); !path.empty()) {
    COLIBRI_ASSIGN_OR_RETURN(state->tokenizer, Tokenizer::load(path));
  }
  COLIBRI_ASSIGN_OR_RETURN(state->plan, plan_memory(*state->container, state->pipeline, *state->registry,
                                                    state->machine, resident_bytes()));
  if (state->options.before_loading)
    COLIBRI_RETURN_IF_ERROR(state->options.before_loading(*state->container));
  COLIBRI_RETURN_IF_ERROR(state->allocate());
  COLIBRI_RETURN_IF_ERROR(
      state->container->read_dense(state->static_pool.bytes().first(state->container->dense_bytes())));
  COLIBRI_ASSIGN_OR_RETURN(state->dense, bind_dense_weights(*state->container, state->static_pool.data()));
  state->worker_slots = state->plan.inputs.threads;
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Result<RunReport> Engine::run(const Job& job) {
  State& state = *state_;
  if (state.slots.data() == nullptr) {
    return Status(
        ErrorCode::io,
        "the drive of the experts hung in an earlier job; check it with `dmesg` and open the model again");
  }
  StepPool pool(state.plan.inputs, state.plan.hint_batches, state.step_pool.bytes());
  Services services;
  services.plan = state.plan.inputs;
  services.container = state.container.get();
  services.kernels = state.kernels;
  services.dense = &state.dense;
  services.tokenizer = state.tokenizer.get();
  services.kv = {.format = state.plan.inputs.kv_format,
                 .base = state.kv_pool.data(),
                 .page_stride = state.plan.kv_page_bytes,
                 .layer_stride = state.plan.kv_layer_bytes,
                 .pages = static_cast<std::uint32_t>(state.plan.kv_pages)};
  services.slots = {.base = state.slots.data(),
                    .stride = state.plan.slot_bytes,
                    .slots = static_cast<std::uint32_t>(state.plan.slots),
                    .shares = {}};
  for (const PlannedShare& planned : state.plan.slot_shares) services.slots.shares.push_back(planned.share);
  services.steps = pool.steps();
  services.hint_batches = pool.hint_batches();
  services.source = job.source;
  services.sink = job.sink;
  services.trace = job.trace;
  services.read_faults = job.read_faults;
  services.leak_slots = [&state] { state.slots.leak(); };
  services.log = [&state](std::string line) { state.log(std::move(line)); };
  // The pipeline is built with the services, which tell stages how to end it.
  Pipeline* running = nullptr;
  services.fail_job = [&running](Status status) { running->fail(std::move(status)); };
  services.stopping = [&running, &job] { return running->failed() || (job.stopping && job.stopping()); };

  Pipeline::Options options;
  options.machine = &state.machine;
  options.live = state.parameters.get();
  options.stepped = job.stepped;
  options.inject_blocking = job.inject_blocking;
  COLIBRI_ASSIGN_OR_RETURN(std::unique_ptr<Pipeline> pipeline,
                           Pipeline::build(state.pipeline, *state.registry, services, state.plan.stage_bytes,
                                           state.scratch_pool.bytes(), options));
  running = pipeline.get();
  if (job.stepped == nullptr) {
    state.worker_slots = pipeline->worker_slots();
    if (const std::size_t allowed = allowed_parallelism(); allowed < std::size_t{1} + state.worker_slots) {
      state.log("tbb::global_control::max_allowed_parallelism is " + std::to_string(allowed) +
                ", the pipeline wants " + std::to_string(1 + state.worker_slots) +
                "; it runs with fewer threads: raise the limit in the program");
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  auto elapsed = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  COLIBRI_RETURN_IF_ERROR(pipeline->start());
  if (job.progress && job.stepped == nullptr) {
    while (!pipeline->wait_for(kProgressPeriod)) job.progress(state.report(*pipeline, elapsed()));
  }
  pipeline->wait();
  const double wall_seconds = elapsed();
  pipeline->stop();
  COLIBRI_RETURN_IF_ERROR(pipeline->status());
  return state.report(*pipeline, wall_seconds);
}

Status Engine::set_parameter(std::string_view path, std::string_view value) {
  return state_->parameters->set(path, value);
}

const ModelSpec& Engine::spec() const noexcept { return state_->container->spec(); }
const Container& Engine::container() const noexcept { return *state_->container; }
const Tokenizer* Engine::tokenizer() const noexcept { return state_->tokenizer.get(); }
const MemoryPlan& Engine::plan() const noexcept { return state_->plan; }
const kernels::KernelTable& Engine::kernels() const noexcept { return *state_->kernels; }
std::uint32_t Engine::worker_slots() const noexcept { return state_->worker_slots; }

Result<MemoryPlan> plan_model(const std::filesystem::path& model, const PipelineSpec& pipeline,
                              const Registry& registry) {
  COLIBRI_ASSIGN_OR_RETURN(const std::shared_ptr<const Container> container, Container::open(model));
  COLIBRI_ASSIGN_OR_RETURN(const Machine machine, read_machine());
  // The plan shown must be the plan of a run: the tokenizer is part of the process then.
  std::shared_ptr<const Tokenizer> tokenizer;
  if (const std::filesystem::path path = container->tokenizer_path(); !path.empty()) {
    COLIBRI_ASSIGN_OR_RETURN(tokenizer, Tokenizer::load(path));
  }
  auto plan = plan_memory(*container, pipeline, registry, machine, resident_bytes());
  if (plan) plan->inputs.spec = nullptr;  // the container goes now
  return plan;
}

}  // namespace colibri
