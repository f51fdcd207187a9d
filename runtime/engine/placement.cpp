#include "runtime/engine/placement.hpp"

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/engine/actor.hpp"

namespace colibri {
namespace {

using Wake = tbb::flow::continue_msg;

// Pins threads while they are in the arena.
class PinObserver final : public tbb::task_scheduler_observer {
 public:
  PinObserver(tbb::task_arena& arena, const std::vector<std::uint32_t>& cpus) : tbb::task_scheduler_observer(arena) {
    CPU_ZERO(&mask_);
    for (const std::uint32_t cpu : cpus) CPU_SET(cpu, &mask_);
    observe(true);
  }
  ~PinObserver() override { observe(false); }

  void on_scheduler_entry(bool) override {
    cpu_set_t& old = previous();
    if (sched_getaffinity(0, sizeof old, &old) != 0) CPU_ZERO(&old);
    sched_setaffinity(0, sizeof mask_, &mask_);
  }
  void on_scheduler_exit(bool) override {
    if (CPU_COUNT(&previous()) > 0) sched_setaffinity(0, sizeof(cpu_set_t), &previous());
  }

 private:
  // What to give back belongs to the thread, not to the arena.
  static cpu_set_t& previous() {
    thread_local cpu_set_t mask{};
    return mask;
  }
  cpu_set_t mask_{};
};

}  // namespace

// An actor's place in the graph: the node that runs it, and the gateway by which threads outside the arena
// wake it.
struct Placement::Node {
  Node(tbb::flow::graph& graph, Actor& actor)
      : run(graph, tbb::flow::serial, [&actor](const Wake&) { actor.run(); }),
        gate(graph, tbb::flow::unlimited, [](const Wake&, tbb::flow::async_node<Wake, Wake>::gateway_type&) {}) {
    tbb::flow::make_edge(gate, run);
  }
  tbb::flow::function_node<Wake> run;
  tbb::flow::async_node<Wake, Wake> gate;
};

struct Placement::Impl {
  explicit Impl(const PlacementSpec& spec) : arena(static_cast<int>(spec.threads), 0) {
    arena.initialize();
    if (!spec.cpus.empty()) observer = std::make_unique<PinObserver>(arena, spec.cpus);
    arena.execute([this] { graph = std::make_unique<tbb::flow::graph>(); });
  }
  tbb::task_arena arena;
  std::unique_ptr<PinObserver> observer;
  std::unique_ptr<tbb::flow::graph> graph;
  std::unordered_map<const Actor*, std::unique_ptr<Node>> nodes;
};

Placement::Placement(PlacementSpec spec) : spec_(std::move(spec)), impl_(std::make_unique<Impl>(spec_)) {}

Placement::~Placement() {
  wait_idle();
  impl_->arena.execute([this] {
    impl_->nodes.clear();
    impl_->graph.reset();
  });
}

void Placement::add(Actor& actor) {
  impl_->arena.execute([&] { impl_->nodes.emplace(&actor, std::make_unique<Node>(*impl_->graph, actor)); });
}

void Placement::schedule(Actor& actor, bool foreign) {
  Node& node = *impl_->nodes.find(&actor)->second;
  if (foreign) {
    node.gate.gateway().try_put(Wake{});
  } else {
    node.run.try_put(Wake{});
  }
}

void Placement::parallel(std::size_t tiles, std::size_t workers, void (*body)(void*, std::size_t), void* object) {
  const std::size_t runners = std::min({tiles, workers, static_cast<std::size_t>(spec_.threads)});
  if (runners <= 1) {
    for (std::size_t tile = 0; tile < tiles; ++tile) body(object, tile);
    return;
  }
  // Each runner takes the next tile until none is left. `next` and `done` also state the order of memory
  // between the caller and the runners, which the scheduler's own synchronisation hides from sanitizers.
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  next.store(0, std::memory_order_release);
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        std::size_t{0}, runners,
        [&](std::size_t) {
          for (std::size_t tile = next.fetch_add(1, std::memory_order_acq_rel); tile < tiles;
               tile = next.fetch_add(1, std::memory_order_acq_rel)) {
            body(object, tile);
          }
          done.fetch_add(1, std::memory_order_acq_rel);
        },
        tbb::simple_partitioner());
  });
  static_cast<void>(done.load(std::memory_order_acquire));
}

void Placement::wait_idle() {
  impl_->arena.execute([this] { impl_->graph->wait_for_all(); });
}

std::size_t allowed_parallelism() {
  return tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
}

}  // namespace colibri
