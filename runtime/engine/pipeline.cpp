#include "runtime/engine/pipeline.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <new>
#include <utility>

#include "runtime/engine/message_credits.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "topology/thread_affinity.hpp"

namespace colibri {
namespace {

// How often a waiting thread looks for actors that wait for a run in vain.
constexpr std::chrono::milliseconds kStallPeriod{50};
// The same where the host allows no thread but those that it has: then nobody else runs them.
constexpr std::chrono::milliseconds kAlonePeriod{1};

double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// A kind's constructor is code of its author: what it throws stays here.
Result<std::unique_ptr<Stage>> create_stage(const StageKind& kind, const std::string& name) {
  try {
    return kind.create();
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory, "no memory to make it; lower the memory settings").in_stage(name);
  } catch (const std::exception& error) {
    return Status(ErrorCode::internal, std::string("exception when it was made: ") + error.what())
        .in_stage(name);
  } catch (...) {
    return Status(ErrorCode::internal, "exception when it was made that is no std::exception").in_stage(name);
  }
}

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::build(const PipelineSpec& spec, const Registry& registry,
                                                  const Services& services,
                                                  std::span<const std::uint64_t> stage_bytes,
                                                  std::span<std::byte> scratch, const Options& options) {
  std::unique_ptr<Pipeline> pipeline(new Pipeline);
  pipeline->stepped_ = options.stepped;
  pipeline->plan_ = options.placement;
  pipeline->on_started_ = options.started;
  pipeline->stopping_ = options.stopping;
  pipeline->alone_ = options.stepped == nullptr && allowed_parallelism() < 2;
  if (options.stepped == nullptr) pipeline->make_placements(*options.placement);
  COLIBRI_RETURN_IF_ERROR(pipeline->make_actors(spec, registry, services, stage_bytes, scratch, options));
  COLIBRI_RETURN_IF_ERROR(pipeline->make_edges(spec, registry, services));
  return pipeline;
}

Pipeline::~Pipeline() {
  // Before stop: what arrives while stages stop, such as the last reads, must not be delivered any more.
  if (phase_ != RunPhase::starting && !all_ended()) {
    abort({ErrorCode::cancelled, "the pipeline was given up before its end"});
    wait();
  }
  stop();
  wait_idle();  // nodes refer to actors: no task may run when these go
  placements_.clear();
  if (stepped_ != nullptr) stepped_->clear();
  for (const Member& member : members_) member.actor->discard_inputs();
}

void Pipeline::make_placements(const PlacementPlan& plan) {
  // More slots than the host allows would only make oneTBB print a warning; Engine tells who asks for more.
  const auto allowed = static_cast<std::uint32_t>(std::max<std::size_t>(allowed_parallelism(), 2) - 1);
  for (const PlannedPlacement& planned : plan.placements) {
    placements_.push_back(std::make_unique<Placement>(PlacementSpec{
        .name = planned.name, .cpus = planned.cpus, .threads = std::min(allowed, planned.threads)}));
  }
}

Status Pipeline::make_actors(const PipelineSpec& spec, const Registry& registry, const Services& services,
                             std::span<const std::uint64_t> stage_bytes, std::span<std::byte> scratch,
                             const Options& options) {
  std::uint64_t used = 0;
  std::map<std::string_view, std::uint32_t> instances;  // by kind
  for (std::size_t i = 0; i < spec.stages.size(); ++i) {
    const StageSpec& stage = spec.stages[i];
    const StageKind* kind = registry.find(stage.kind);
    if (kind == nullptr)
      return {ErrorCode::not_found,
              "unknown stage kind '" + stage.kind + "'; list them with `colibri inspect`"};
    if (scratch.size() - used < stage_bytes[i])
      return {ErrorCode::internal, "the scratch pool is smaller than planned"};
    Member member;
    member.spec = &stage;
    member.place = options.placement->placement_of_stage[i];
    member.executor = options.stepped != nullptr ? static_cast<Executor*>(options.stepped)
                                                 : placements_[member.place].get();
    // Reads outstanding, one post a source may wait for, and room to spare.
    const std::uint64_t completions =
        std::min<std::uint64_t>(std::uint64_t{services.slots.slots} * 2 + 64, kMaximumEdgeCapacity);
    COLIBRI_ASSIGN_OR_RETURN(std::unique_ptr<Stage> created, create_stage(*kind, stage.name));
    member.actor = std::make_unique<Actor>(stage.name, *kind->info, std::move(created), *member.executor,
                                           static_cast<std::uint32_t>(completions));
    member.actor->follow(phase_);
    std::uint32_t workers = options.placement->workers_of_stage[i];
    if (options.stepped == nullptr) workers = std::min(workers, placements_[member.place]->spec().threads);
    member.context = std::make_unique<ActorContext>(stage, *kind->info, instances[stage.kind]++, services,
                                                    scratch.subspan(used, stage_bytes[i]), *member.executor,
                                                    workers, member.actor->completion_port(), options.live);
    used += stage_bytes[i];
    member.actor->on_ended([this] { actor_ended(); });
    member.actor->on_failure([this](Status status) { abort(std::move(status)); });
    if (options.inject_blocking) member.actor->inject_blocking(options.inject_blocking);
    if (options.lose_wakes && options.stepped == nullptr) member.actor->lose_wakes(options.lose_wakes);
    if (options.stepped == nullptr) placements_[member.place]->add(*member.actor);
    members_.push_back(std::move(member));
  }
  return {};
}

Status Pipeline::make_edges(const PipelineSpec& spec, const Registry& registry, const Services& services) {
  const MessageCredits credits = message_credits(services.plan, services.hint_batches.size());
  PipelineProblems problems;
  check_edge_capacities(spec, registry.infos(), credits, problems);
  COLIBRI_RETURN_IF_ERROR(problems.to_status());
  auto port_index = [](std::span<const PortInfo> ports, std::string_view name) {
    const auto found =
        std::find_if(ports.begin(), ports.end(), [&](const PortInfo& port) { return port.name == name; });
    return static_cast<std::uint32_t>(found - ports.begin());
  };
  std::vector<DeclaredEnd> ends;  // [edges]
  for (const EdgeSpec& edge : spec.edges) {
    Member* from = find(edge.from_stage);
    Member* to = find(edge.to_stage);
    if (from == nullptr || to == nullptr)
      return {ErrorCode::internal, "an edge names a stage that does not exist"};
    const std::uint32_t output = port_index(from->actor->info().outputs, edge.from_port);
    const std::uint32_t input = port_index(to->actor->info().inputs, edge.to_port);
    if (output == from->actor->info().outputs.size() || input == to->actor->info().inputs.size()) {
      return {ErrorCode::internal, "an edge names a port that does not exist"};
    }
    const MessageType type = from->actor->info().outputs[output].type;
    auto made = std::make_unique<Edge>(edge.capacity.value_or(automatic_capacity(type, credits)));
    made->name = edge.from_stage + "." + edge.from_port + " -> " + edge.to_stage + "." + edge.to_port;
    made->producer = from->actor.get();
    from->actor->connect_output(output, *made);
    edges_.push_back(std::move(made));
    ends.push_back({to, input});
  }
  for (Member& member : members_) COLIBRI_RETURN_IF_ERROR(ask_passes(member));
  connect_inputs(ends);
  if (services.plan.spec != nullptr) share_out_experts(services.plan.spec->num_experts);
  return {};
}

// Asks the stage where what comes on its inputs goes past it. A host's kind may answer anything.
Status Pipeline::ask_passes(Member& member) {
  const StageInfo& info = member.actor->info();
  std::span<const std::uint32_t> outputs;
  try {
    outputs = member.actor->stage().passes_to(*member.context);
  } catch (...) {
    return Status(ErrorCode::internal, "exception in passes_to").in_stage(member.spec->name);
  }
  bool right = outputs.empty() || outputs.size() == info.inputs.size();
  for (std::size_t input = 0; right && input < outputs.size(); ++input) {
    right =
        outputs[input] < info.outputs.size() && info.outputs[outputs[input]].type == info.inputs[input].type;
  }
  if (!right) {
    return Status(ErrorCode::internal,
                  "passes_to must name an output of the same type for each input, or none at all")
        .in_stage(member.spec->name);
  }
  // All of its inputs or none: the order in which it would see them may matter to those around it.
  const bool single = std::all_of(outputs.begin(), outputs.end(), [&](std::uint32_t output) {
    return member.actor->output_edges(output).size() == 1;
  });
  if (single) member.passes = outputs;
  return {};
}

// Leads each edge to its end, past stages that would only pass on what comes.
void Pipeline::connect_inputs(const std::vector<DeclaredEnd>& ends) {
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    Edge& edge = *edges_[i];
    DeclaredEnd end = ends[i];
    // Not round in a circle of them.
    for (std::size_t passed = 0; passed < members_.size() && !end.to->passes.empty(); ++passed) {
      if (passed == 0) {
        edge.passed = end.to->actor.get();
        end.to->actor->connect_passing(end.input, edge);
      }
      const Edge* next = end.to->actor->output_edges(end.to->passes[end.input]).front();
      const auto which =
          std::find_if(edges_.begin(), edges_.end(), [&](const auto& e) { return e.get() == next; });
      end = ends[static_cast<std::size_t>(which - edges_.begin())];
    }
    edge.consumer = end.to->actor.get();
    edge.crosses_placements = find(edge.producer->name())->executor != end.to->executor;
    end.to->actor->connect_input(end.input, edge);
  }
}

// Tables for the outputs from which several edges start: which one leads to the owner of an expert. That each
// expert has one was checked when the model was opened.
void Pipeline::share_out_experts(std::uint32_t num_experts) {
  for (const Member& member : members_) {
    for (std::uint32_t port = 0; port < member.actor->info().outputs.size(); ++port) {
      const std::vector<Edge*>& edges = member.actor->output_edges(port);
      if (edges.size() < 2) continue;
      std::vector<std::uint16_t> owners(num_experts, Actor::kNoOwner);
      for (std::size_t i = 0; i < edges.size(); ++i) {
        const Actor& declared = *(edges[i]->passed != nullptr ? edges[i]->passed : edges[i]->consumer);
        const ActorContext& consumer = *find(declared.name())->context;
        for (std::uint32_t expert = 0; expert < num_experts; ++expert) {
          if (consumer.owns(expert)) owners[expert] = static_cast<std::uint16_t>(i);
        }
      }
      member.actor->share_out(port, std::move(owners));
    }
  }
}

Pipeline::Member* Pipeline::find(std::string_view name) noexcept {
  const auto found =
      std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.spec->name == name; });
  return found == members_.end() ? nullptr : &*found;
}

Status Pipeline::start() {
  for (Member& member : members_) {
    if (Status status = go_on_starting(); !status) return give_up_start(std::move(status));
    // Counted before the call: stop undoes also what a failed start has taken.
    ++started_;
    Status status = start_stage(member);
    if (!status || phase_ != RunPhase::starting) return give_up_start(std::move(status));
  }
  if (Status status = go_on_starting(); !status) return give_up_start(std::move(status));
  if (on_started_) {
    if (Status status = on_started_(); !status) return give_up_start(std::move(status));
  }
  RunPhase starting = RunPhase::starting;
  phase_.compare_exchange_strong(starting, RunPhase::running);
  for (Member& member : members_) member.actor->wake(true);
  return {};
}

Status Pipeline::go_on_starting() const {
  return stopping_ && stopping_()
             ? Status(ErrorCode::cancelled, "the job was stopped while its stages started")
             : Status();
}

// A status that is ok: something else has aborted already.
Status Pipeline::give_up_start(Status status) {
  if (!status) abort(std::move(status));
  wait();
  stop();
  return this->status();
}

// On the CPUs of its placement: memory that the stage touches comes from near them, and threads that it makes
// (those of reads) stay there.
Status Pipeline::start_stage(Member& member) {
  const AffinityScope restored;
  Status status;
  try {
    if (stepped_ == nullptr) status = pin_this_thread(plan_->placements[member.place].cpus);
    if (status) status = member.actor->stage().start(*member.context);
  } catch (const std::bad_alloc&) {
    status = {ErrorCode::out_of_memory, "no memory at its start; lower the memory settings"};
  } catch (const std::exception& error) {
    status = {ErrorCode::internal, std::string("exception at its start: ") + error.what()};
  } catch (...) {
    status = {ErrorCode::internal, "exception at its start that is no std::exception"};
  }
  return status ? Status() : std::move(status).in_stage(member.spec->name);
}

void Pipeline::wait() {
  if (stepped_ != nullptr) {
    stepped_->run_until([this] { return all_ended(); });
    return;
  }
  while (!wait_for(kStallPeriod)) {
  }
}

bool Pipeline::wait_for(std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const Clock::time_point next =
          std::min(deadline, Clock::now() + (alone_ ? kAlonePeriod : kStallPeriod));
      if (all_ended_.wait_until(lock, next, [this] { return ended_ == members_.size(); })) return true;
    }
    help_stalled();
    if (Clock::now() >= deadline) return false;
  }
}

// oneTBB before 2022.0 may miss the signal that a task was enqueued: its workers then sleep on, with a task
// at hand and an actor due. An actor that is due, does not run and has not run since the last look is such a
// case, or a processor much too busy: the waiting thread schedules it once more, and works in its arena until
// that is idle.
// One that gave way may have to wait for as long as others run.
void Pipeline::help_stalled() {
  const bool others_run = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.actor->turn() != member.seen_turn;
  });
  for (Member& member : members_) {
    const bool due = member.actor->due();
    const std::uint32_t turn = member.actor->turn();
    const bool seen = alone_ || (member.seen_due && turn == member.seen_turn);
    const bool stalled = due && seen && turn % 2 == 0 && !(others_run && member.actor->gave_way());
    member.seen_due = due;
    member.seen_turn = turn;
    if (!stalled) continue;
    member.actor->wake_again();
    placements_[member.place]->wait_idle();
  }
}

bool Pipeline::all_ended() const {
  const std::lock_guard lock(mutex_);
  return ended_ == members_.size();
}

void Pipeline::actor_ended() {
  const std::lock_guard lock(mutex_);
  ++ended_;
  all_ended_.notify_all();
}

void Pipeline::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (status_.is_ok()) status_ = std::move(status);
  failed_.store(true, std::memory_order_release);
}

void Pipeline::abort(Status status) {
  fail(std::move(status));
  phase_.store(RunPhase::aborted);
  for (const Member& member : members_) member.actor->wake(true);
}

Status Pipeline::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Pipeline::wait_idle() noexcept {
  for (const auto& placement : placements_) placement->wait_idle();
  for (const Member& member : members_) member.actor->after_last_run();
}

void Pipeline::stop() noexcept {
  wait_idle();
  while (started_ > 0) members_[--started_].actor->stage().stop();
}

std::vector<StageReport> Pipeline::report() const {
  static constexpr const char* kReasons[kWaitReasons] = {"",       "input",  "output_space",
                                                         "expert", "device", "memory"};
  std::vector<StageReport> reports;
  for (const Member& member : members_) {
    const Actor::Metrics& metrics = member.actor->metrics();
    StageReport report;
    report.name = member.spec->name;
    report.kind = member.spec->kind;
    report.items = metrics.items.get();
    report.busy_seconds = seconds(metrics.busy_ns.get());
    report.messages = metrics.messages.get();
    report.hop_seconds = seconds(metrics.hop_ns.get());
    for (std::size_t reason = 1; reason < kWaitReasons; ++reason) {
      report.blocked_seconds.emplace_back(kReasons[reason], seconds(metrics.blocked_ns[reason].get()));
    }
    report.p50_seconds = seconds(metrics.service.quantile(0.5));
    report.p95_seconds = seconds(metrics.service.quantile(0.95));
    report.p99_seconds = seconds(metrics.service.quantile(0.99));
    report.max_seconds = seconds(metrics.service.max());
    report.queue_p50_seconds = seconds(metrics.queue.quantile(0.5));
    report.queue_p95_seconds = seconds(metrics.queue.quantile(0.95));
    report.queue_p99_seconds = seconds(metrics.queue.quantile(0.99));
    report.queue_max_seconds = seconds(metrics.queue.max());
    for (const auto& port : member.actor->inputs()) {
      for (const Edge* edge : port)
        report.queue_high_water = std::max(report.queue_high_water, edge->high_water());
    }
    report.metrics = member.context->metric_values();
    reports.push_back(std::move(report));
  }
  return reports;
}

std::string Pipeline::describe() const {
  std::string text;
  for (const Member& member : members_) text += member.actor->describe() + "\n";
  return text;
}

}  // namespace colibri
