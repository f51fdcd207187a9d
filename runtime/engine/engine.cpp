#include <algorithm>
#include <chrono>
#include <colibri/engine.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "io/container/file_system.hpp"
#include "io/read/aligned_region.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/engine/contained.hpp"
#include "runtime/engine/home_process.hpp"
#include "runtime/engine/kernel_choice.hpp"
#include "runtime/engine/live_parameters.hpp"
#include "runtime/engine/pipeline.hpp"
#include "runtime/memory/step_buffers.hpp"
#include "runtime/memory/usage_file.hpp"
#include "stages/dense_weights.hpp"
#include "stages/kv_pages.hpp"
#include "topology/machine.hpp"
#include "topology/machine_check.hpp"
#include "topology/memory_binding.hpp"
#include "topology/value_notes.hpp"

namespace colibri {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kProgressPeriod{100};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Totals over all stages of a kind that the report as a whole shows.
void sum_up(RunReport& report) {
  for (const StageReport& stage : report.stages) {
    report.messages += stage.messages;
    report.hop_seconds += stage.hop_seconds;
    if (stage.kind == "fetch") {
      report.bytes_read += stage.metric("bytes_read_total");
      report.distinct_bytes += stage.metric("distinct_bytes_total");
      report.wasted_hint_bytes += stage.metric("wasted_hint_bytes_total");
      report.prewarm_bytes += stage.metric("prewarm_bytes_total");
      report.floor_bytes += stage.metric("floor_bytes_total");
      report.small_step_bytes += stage.metric("small_step_bytes_total");
      report.demands += stage.metric("demands_total");
      report.hits += stage.metric("hits_total");
    }
    if (stage.kind == "admit") {
      report.prompt_tokens += stage.metric("prompt_rows_total");
      report.steps += stage.metric("steps_total");
      report.small_step_seconds += 1e-9 * static_cast<double>(stage.metric("small_steps_nanoseconds"));
    }
    if (stage.kind == "block_in") report.steps += stage.metric("steps_total");
    if (stage.kind == "sample") report.generated_tokens += stage.metric("generated_tokens_total");
  }
}

Status job_cancelled() { return {ErrorCode::cancelled, "the job was cancelled"}; }

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
  std::optional<UsageFile> usage_file;  // none: the host has named no folder
  UsageSnapshot usage;                  // what earlier jobs left there
  std::unique_ptr<LiveParameters> parameters;

  const HomeProcess process;  // that opened it

  std::mutex mutex;  // of what follows, by which other threads end a job and look at it
  std::condition_variable job_ended;
  bool job_runs = false;
  bool cancelled = false;              // the running job
  bool closing = false;                // the engine goes
  Pipeline* running = nullptr;         // of the running job, from its building to its end
  const Pipeline* measured = nullptr;  // the same, from the start of its stages on
  Clock::time_point job_begin;         // of what is measured
  RunReport last_report;               // of the last job that came so far

  void log(std::string line) const {
    if (options.log) options.log(std::move(line));
  }
  void cancel();
  void cancel_locked();  // the caller holds the mutex
  bool was_cancelled();
  void close();
  Status begin_job();
  void end_job();
  struct Registration;
  void set_running(Pipeline* pipeline);
  void set_measured(const Pipeline& pipeline, Clock::time_point begin);
  RunReport keep(RunReport report);
  RunReport stats();
  Status open(const std::filesystem::path& model);
  static Result<RunReport> run(State& state, const Job& job);
  Status allocate();
  void read_usage();
  void write_usage() const;
  void bind_memory_to_nodes() const;
  RunReport report(const Pipeline& running, double wall_seconds) const;
};

Status Engine::State::allocate() {
  const bool own = !options.memory.allocate;
  auto make = [this, own](AlignedRegion& region, std::uint64_t bytes) -> Status {
    if (bytes == 0) return {};
    COLIBRI_ASSIGN_OR_RETURN(
        region, own ? AlignedRegion::create(bytes) : AlignedRegion::create(bytes, options.memory));
    return {};
  };
  COLIBRI_RETURN_IF_ERROR(make(static_pool, plan.static_bytes));
  COLIBRI_RETURN_IF_ERROR(make(kv_pool, plan.kv_pages * plan.kv_page_bytes));
  COLIBRI_RETURN_IF_ERROR(make(step_pool, plan.inputs.in_flight * plan.step_bytes +
                                              plan.hint_batches * hint_batch_bytes(plan.inputs)));
  COLIBRI_RETURN_IF_ERROR(make(scratch_pool, plan.scratch_bytes));
  COLIBRI_RETURN_IF_ERROR(make(slots, plan.slots * plan.slot_bytes));
  bind_memory_to_nodes();
  return {};
}

// Before anything is touched. Where the kernel refuses, as in many containers, all of it stays where it
// falls.
void Engine::State::bind_memory_to_nodes() const {
  Status refused;
  auto bind = [&refused](std::span<const std::byte> range, const MemoryBinding& binding) {
    if (refused.is_ok()) refused = bind_memory(range.data(), range.size(), binding.nodes);
  };
  const PlacementPlan& placement = plan.placement;
  bind(static_pool.bytes(), placement.dense);
  bind(kv_pool.bytes(), placement.kv);
  bind(step_pool.bytes(), placement.steps);
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const MemoryBinding& own = placement.memory_of_stage[i];
    bind(scratch_pool.bytes().subspan(used, plan.stage_bytes[i]), own);
    used += plan.stage_bytes[i];
    for (const PlannedShare& planned : plan.slot_shares) {
      if (planned.stage != pipeline.stages[i].name) continue;
      bind(
          slots.bytes().subspan(planned.share.first * plan.slot_bytes, planned.share.slots * plan.slot_bytes),
          own);
    }
  }
  if (!refused.is_ok()) log(refused.to_string());
}

// Lets cancel and stats reach the pipeline of the running job while it lives.
struct Engine::State::Registration {
  Registration(State& state, Pipeline& pipeline) : state(state) { state.set_running(&pipeline); }
  ~Registration() { state.set_running(nullptr); }
  State& state;
};

void Engine::State::cancel() {
  const std::lock_guard lock(mutex);
  cancel_locked();
}

bool Engine::State::was_cancelled() {
  const std::lock_guard lock(mutex);
  return cancelled;
}

void Engine::State::cancel_locked() {
  cancelled = job_runs;
  if (running != nullptr) running->abort(job_cancelled());
}

// A job that begins after the cancel must find the engine closing: one critical section for both.
void Engine::State::close() {
  std::unique_lock lock(mutex);
  closing = true;
  cancel_locked();
  job_ended.wait(lock, [this] { return !job_runs; });
}

Status Engine::State::begin_job() {
  const std::lock_guard lock(mutex);
  if (job_runs) {
    return {ErrorCode::invalid_input,
            "a job runs on this engine already; wait for its end, or open the model a second time"};
  }
  if (closing) return job_cancelled();
  job_runs = true;
  cancelled = false;
  return {};
}

void Engine::State::end_job() {
  const std::lock_guard lock(mutex);
  job_runs = false;
  job_ended.notify_all();
}

void Engine::State::set_running(Pipeline* pipeline) {
  const std::lock_guard lock(mutex);
  running = pipeline;
  measured = nullptr;
  if (running != nullptr && cancelled) running->abort(job_cancelled());
}

void Engine::State::set_measured(const Pipeline& pipeline, Clock::time_point begin) {
  const std::lock_guard lock(mutex);
  measured = &pipeline;
  job_begin = begin;
}

// As what stats tells when the job has gone.
RunReport Engine::State::keep(RunReport report) {
  const std::lock_guard lock(mutex);
  last_report = report;
  return report;
}

RunReport Engine::State::stats() {
  const std::lock_guard lock(mutex);
  return measured == nullptr ? last_report : report(*measured, seconds_since(job_begin));
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
Engine::~Engine() {
  if (forked()) {
    (void)state_.release();  // its threads, which would have to end first, are in another process
  } else {
    state_->close();
  }
}

Result<std::unique_ptr<Engine>> Engine::open(const std::filesystem::path& model, PipelineSpec pipeline,
                                             EngineOptions options) {
  return contained([&]() -> Result<std::unique_ptr<Engine>> {
    auto state = std::make_unique<State>();
    state->pipeline = std::move(pipeline);
    state->options = std::move(options);
    COLIBRI_RETURN_IF_ERROR(state->open(model));
    return std::unique_ptr<Engine>(new Engine(std::move(state)));
  });
}

Status Engine::State::open(const std::filesystem::path& model) {
  own_registry = builtin_registry();
  registry = options.registry != nullptr ? options.registry : &own_registry;
  parameters = std::make_unique<LiveParameters>(pipeline, registry->infos());
  COLIBRI_ASSIGN_OR_RETURN(kernels, choose_kernels(options.kernels));
  COLIBRI_ASSIGN_OR_RETURN(machine, read_machine());
  COLIBRI_ASSIGN_OR_RETURN(container, Container::open(model));
  if (const std::filesystem::path path = container->tokenizer_path(); !path.empty()) {
    COLIBRI_ASSIGN_OR_RETURN(tokenizer, Tokenizer::load(path));
  }
  PipelineProblems problems;
  check_placement(pipeline, machine, problems);
  COLIBRI_RETURN_IF_ERROR(problems.to_status());
  Workload workload;
  if (options.workload) {
    COLIBRI_ASSIGN_OR_RETURN(workload, options.workload(*container, tokenizer.get()));
  }
  COLIBRI_ASSIGN_OR_RETURN(plan,
                           plan_memory(*container, pipeline, *registry, machine, resident_bytes(), workload));
  if (options.before_loading) COLIBRI_RETURN_IF_ERROR(options.before_loading(*container));
  COLIBRI_RETURN_IF_ERROR(allocate());
  COLIBRI_RETURN_IF_ERROR(
      container->read_dense(static_pool.bytes().first(container->dense_bytes()), options.stopping));
  COLIBRI_ASSIGN_OR_RETURN(dense, bind_dense_weights(*container, static_pool.data()));
  if (!plan.placement.note.empty()) log(plan.placement.note);
  read_usage();
  for (const std::filesystem::path& file : container->expert_files()) {
    const std::string advice = network_advice(file_system_of(file), file);
    if (advice.empty()) continue;
    log(advice);
    break;  // the advice holds for all of them
  }
  if (const std::string advice = threads_advice(pipeline, machine); !advice.empty()) log(advice);
  if (pipeline.steps.wave_rows.value_or(0) > plan.inputs.wave_rows) {
    log("steps.wave_rows is " + std::to_string(*pipeline.steps.wave_rows) + ", a step has at most " +
        std::to_string(plan.inputs.max_rows) + " rows: so have its waves");
  }
  return {};
}

// Nothing depends on it but what is read early: a job runs without it, too.
void Engine::State::read_usage() {
  if (pipeline.state_dir.empty()) return;
  const ModelSpec& spec = container->spec();
  usage_file.emplace(pipeline.state_dir, container->digest(), spec.num_moe_layers(), spec.num_experts);
  auto found = usage_file->read();
  if (found) {
    usage = std::move(found).value();
  } else {
    log(found.status().to_string());
  }
}

void Engine::State::write_usage() const {
  if (!usage_file || usage.empty()) return;
  if (Status written = usage_file->write(usage); !written) log(written.to_string());
}

Result<RunReport> Engine::run(const Job& job) {
  if (forked()) return HomeProcess::forked_status();
  COLIBRI_RETURN_IF_ERROR(state_->begin_job());
  auto report = contained([&] { return State::run(*state_, job); });
  state_->end_job();
  return report;
}

void Engine::cancel() {
  if (!forked()) state_->cancel();
}

RunReport Engine::stats() const { return forked() ? RunReport() : state_->stats(); }

std::string Engine::describe() const {
  if (forked()) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->running == nullptr ? std::string() : state_->running->describe();
}

Result<RunReport> Engine::State::run(State& state, const Job& job) {
  if (state.slots.data() == nullptr) {
    return Status(
        ErrorCode::io,
        "the drive of the experts hung in an earlier job; check it with `dmesg` and open the model again");
  }
  if (job.virtual_device != nullptr && job.stepped == nullptr) {
    return Status(
        ErrorCode::invalid_input,
        "nobody moves the clock of the virtual device; give the job a scheduler that does (stepped)");
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
                 .block_stride = state.plan.kv_layer_bytes,
                 .pages = static_cast<std::uint32_t>(state.plan.kv_pages),
                 .layer_in_run = {}};
  describe_kv_layers(state.container->spec(), services.kv);
  services.slots = {.base = state.slots.data(),
                    .stride = state.plan.slot_bytes,
                    .slots = static_cast<std::uint32_t>(state.plan.slots),
                    .shares = {}};
  for (const PlannedShare& planned : state.plan.slot_shares) services.slots.shares.push_back(planned.share);
  services.steps = pool.steps();
  services.hint_batches = pool.hint_batches();
  services.source = job.source;
  services.sink = job.sink;
  services.hidden_source = job.hidden_source;
  services.hidden_sink = job.hidden_sink;
  services.usage = state.usage_file ? &state.usage : nullptr;
  services.trace = job.trace;
  services.read_faults = job.read_faults;
  services.read_drives = job.read_drives;
  services.virtual_device = job.virtual_device;
  services.leak_slots = [&state] { state.slots.leak(); };
  services.log = [&state](std::string line) { state.log(std::move(line)); };
  // The pipeline is built with the services, which tell stages how to end it.
  Pipeline* built = nullptr;
  services.fail_job = [&built](Status status) { built->fail(std::move(status)); };
  services.stopping = [&built, &job] { return built->failed() || (job.stopping && job.stopping()); };

  Pipeline::Options options;
  options.placement = &state.plan.placement;
  options.live = state.parameters.get();
  Clock::time_point begin;
  options.started = [&] {
    state.set_measured(*built, begin);
    return job.started ? job.started() : Status();
  };
  options.stopping = job.stopping;
  options.stepped = job.stepped;
  options.inject_blocking = job.inject_blocking;
  options.lose_wakes = job.lose_wakes;
  COLIBRI_ASSIGN_OR_RETURN(std::unique_ptr<Pipeline> pipeline,
                           Pipeline::build(state.pipeline, *state.registry, services, state.plan.stage_bytes,
                                           state.scratch_pool.bytes(), options));
  built = pipeline.get();
  const Registration registration(state, *pipeline);
  if (job.stepped == nullptr) {
    const std::size_t wanted = std::size_t{1} + state.plan.placement.threads();
    if (const std::size_t allowed = allowed_parallelism(); allowed < wanted) {
      state.log("tbb::global_control::max_allowed_parallelism is " + std::to_string(allowed) +
                ", the pipeline wants " + std::to_string(wanted) +
                "; it runs with fewer threads: raise the limit in the program");
    }
  }
  begin = Clock::now();
  if (Status started = pipeline->start(); !started) {
    // Stopped and not cancelled: the host asked for what it got.
    const bool stopped = started.code() == ErrorCode::cancelled && job.stopping && job.stopping();
    if (!stopped || state.was_cancelled()) return started;
    return state.keep(state.report(*pipeline, seconds_since(begin)));
  }
  if (job.progress && job.stepped == nullptr) {
    while (!pipeline->wait_for(kProgressPeriod)) job.progress(state.report(*pipeline, seconds_since(begin)));
  }
  pipeline->wait();
  const double wall_seconds = seconds_since(begin);
  pipeline->stop();
  RunReport report = state.keep(state.report(*pipeline, wall_seconds));
  COLIBRI_RETURN_IF_ERROR(pipeline->status());
  state.write_usage();
  return report;
}

Status Engine::set_parameter(std::string_view path, std::string_view value) {
  if (forked()) return HomeProcess::forked_status();
  return state_->parameters->set(path, value);
}

Status Engine::embedding_rows(std::span<const std::int32_t> tokens, std::span<float> rows) const {
  if (forked()) return HomeProcess::forked_status();
  const ModelSpec& model = spec();
  if (rows.size() != tokens.size() * model.hidden_size) {
    return {ErrorCode::invalid_input,
            "memory for embeddings of another size: " + std::to_string(rows.size()) + " values, expected " +
                std::to_string(model.hidden_size) + " for each of " + std::to_string(tokens.size()) +
                " tokens"};
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<std::uint32_t>(tokens[i]) >= model.vocab_size) {
      return {ErrorCode::invalid_input, "token is not in the vocabulary: " + std::to_string(tokens[i]) +
                                            ", expected 0 to " + std::to_string(model.vocab_size - 1)};
    }
    kernels::unpack_row(state_->dense.embedding, static_cast<std::uint32_t>(tokens[i]),
                        rows.data() + i * model.hidden_size);
  }
  return {};
}

const ModelSpec& Engine::spec() const noexcept { return state_->container->spec(); }
const Container& Engine::container() const noexcept { return *state_->container; }
const Tokenizer* Engine::tokenizer() const noexcept { return state_->tokenizer.get(); }
const MemoryPlan& Engine::plan() const noexcept { return state_->plan; }
const PipelineSpec& Engine::pipeline() const noexcept { return state_->pipeline; }
const kernels::KernelTable& Engine::kernels() const noexcept { return *state_->kernels; }
bool Engine::forked() const noexcept { return state_->process.forked(); }
std::uint32_t Engine::worker_slots() const noexcept { return state_->plan.placement.threads(); }

bool takes_hidden_states(const PipelineSpec& pipeline) {
  return std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [](const StageSpec& stage) { return stage.kind == "block_in"; });
}

Result<MemoryPlan> plan_model(const std::filesystem::path& model, const PipelineSpec& pipeline,
                              const Registry& registry, const Machine& machine, PipelineProblems* problems) {
  COLIBRI_ASSIGN_OR_RETURN(const std::shared_ptr<const Container> container, Container::open(model));
  // The plan shown must be the plan of a run: the tokenizer is part of the process then.
  std::shared_ptr<const Tokenizer> tokenizer;
  if (const std::filesystem::path path = container->tokenizer_path(); !path.empty()) {
    COLIBRI_ASSIGN_OR_RETURN(tokenizer, Tokenizer::load(path));
  }
  auto plan = plan_memory(*container, pipeline, registry, machine, resident_bytes(), {}, problems);
  if (plan) plan->inputs.spec = nullptr;  // the container goes now
  return plan;
}

}  // namespace colibri
