#include "runtime/engine/placement.hpp"

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <type_traits>
#include <utility>

#include "runtime/engine/actor.hpp"
#include "topology/thread_affinity.hpp"

namespace colibri {

// Pins threads while they are in the arena. The pipeline pins its own thread to the same CPUs before any
// stage starts, and fails by name when that is refused; here there is nobody to tell.
class PinObserver final : public tbb::task_scheduler_observer {
 public:
  PinObserver(tbb::task_arena& arena, const std::vector<std::uint32_t>& cpus)
      : tbb::task_scheduler_observer(arena), mask_(affinity_mask(cpus)) {
    // Orders the making of this object before what workers do with it; observe hides that from sanitizers.
    inside_.store(0, std::memory_order_release);
    observe(true);
  }
  // Workers look for work a moment longer than there is some. Those still inside when observation ends would
  // never be told that they leave, and stay pinned wherever oneTBB sends them next.
  ~PinObserver() override {
    const auto limit = std::chrono::steady_clock::now() + kLeaveLimit;
    while (inside_.load(std::memory_order_acquire) > 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(kLookAgain);
    }
    observe(false);
  }

  void on_scheduler_entry(bool) override {
    static_cast<void>(inside_.load(std::memory_order_acquire));
    inside_.fetch_add(1, std::memory_order_relaxed);
    get_thread_affinity(previous());
    set_thread_affinity(mask_);
  }
  void on_scheduler_exit(bool) override {
    if (!previous().empty()) set_thread_affinity(previous());
    inside_.fetch_sub(1, std::memory_order_release);
  }

 private:
  static constexpr std::chrono::seconds kLeaveLimit{5};
  static constexpr std::chrono::microseconds kLookAgain{50};
  // What to give back belongs to the thread, not to the arena.
  static AffinityMask& previous() {
    thread_local AffinityMask mask;
    return mask;
  }
  const AffinityMask mask_;
  std::atomic<int> inside_{0};  // threads
};

namespace {

// Runs of one task, each handed over to by the one before; then another thread may take over.
constexpr int kRunsInARow = 16;

using Wake = tbb::flow::continue_msg;

// Tiles that several threads share out: each takes the next one until none is left. `next` and `done` also
// state the order of memory between the caller and the runners, which the scheduler's own synchronisation
// hides from sanitizers.
struct TileJob {
  std::size_t tiles;
  void (*body)(void*, std::size_t);
  void* object;
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error{};  // of the tile that failed first

  // Exceptions stay out of the scheduler, which would cancel more than these tiles.
  void run() noexcept {
    for (std::size_t tile = next.fetch_add(1, std::memory_order_acq_rel); tile < tiles;
         tile = next.fetch_add(1, std::memory_order_acq_rel)) {
      if (failed.load(std::memory_order_relaxed)) break;
      try {
        body(object, tile);
      } catch (...) {
        if (!failed.exchange(true, std::memory_order_acq_rel)) error = std::current_exception();
      }
    }
    done.fetch_add(1, std::memory_order_acq_rel);
  }
};

// What tasks of oneTBB refer to: written by one thread and read by another, so it is an atomic.
class Runner {
 public:
  explicit Runner(TileJob& job) noexcept { job_.store(&job, std::memory_order_release); }
  void operator()(std::size_t) const { job_.load(std::memory_order_acquire)->run(); }

 private:
  std::atomic<TileJob*> job_;
};

// Calls `work` in the arena; on a worker of it when the arena is full. Orders memory as Runner does.
template <class Work>
void call_in(tbb::task_arena& arena, Work&& work) {
  struct Call {
    std::atomic<std::remove_reference_t<Work>*> work;
    mutable std::atomic<bool> done;
    void operator()() const {
      (*work.load(std::memory_order_acquire))();
      done.store(true, std::memory_order_release);
    }
  } call;
  call.work.store(&work, std::memory_order_release);
  arena.execute(call);
  static_cast<void>(call.done.load(std::memory_order_acquire));
}

}  // namespace

// An actor's place in the graph: the node that runs it, and the gateway by which threads outside the arena
// wake it.
struct Placement::Node {
  Node(Placement& placement, tbb::flow::graph& graph, Actor& actor)
      // Not serial: an actor sees to that itself, since it may also run in the task of one that woke it.
      : run(graph, tbb::flow::unlimited, [&](const Wake&) { placement.run_in_a_row(actor); }),
        gate(graph, tbb::flow::unlimited,
             [](const Wake&, tbb::flow::async_node<Wake, Wake>::gateway_type&) {}) {
    tbb::flow::make_edge(gate, run);
  }
  tbb::flow::function_node<Wake> run;
  tbb::flow::async_node<Wake, Wake> gate;
};

struct Placement::Impl {
  explicit Impl(const PlacementSpec& spec) : arena(static_cast<int>(spec.threads), 0) {
    arena.initialize();
    if (!spec.cpus.empty()) observer = std::make_unique<PinObserver>(arena, spec.cpus);
    call_in(arena, [this] { graph = std::make_unique<tbb::flow::graph>(); });
  }
  tbb::task_arena arena;
  std::unique_ptr<PinObserver> observer;
  std::unique_ptr<tbb::flow::graph> graph;
  std::unordered_map<const Actor*, std::unique_ptr<Node>> nodes;
};

Placement::Placement(PlacementSpec spec) : spec_(std::move(spec)), impl_(std::make_unique<Impl>(spec_)) {}

Placement::~Placement() {
  wait_idle();
  call_in(impl_->arena, [this] {
    impl_->nodes.clear();
    impl_->graph.reset();
  });
}

void Placement::add(Actor& actor) {
  call_in(impl_->arena,
          [&] { impl_->nodes.emplace(&actor, std::make_unique<Node>(*this, *impl_->graph, actor)); });
}

void Placement::run_in_a_row(Actor& actor) {
  Actor* next = actor.run();
  for (int runs = 1; next != nullptr && runs < kRunsInARow; ++runs) next = next->run();
  if (next != nullptr) schedule(*next, false);
}

void Placement::schedule(Actor& actor, bool foreign) {
  Node& node = *impl_->nodes.find(&actor)->second;
  if (foreign) {
    node.gate.gateway().try_put(Wake{});
  } else {
    node.run.try_put(Wake{});
  }
}

void Placement::parallel(std::size_t tiles, std::size_t workers, void (*body)(void*, std::size_t),
                         void* object) {
  const std::size_t runners = std::min({tiles, workers, static_cast<std::size_t>(spec_.threads)});
  if (runners <= 1) {
    for (std::size_t tile = 0; tile < tiles; ++tile) body(object, tile);
    return;
  }
  TileJob job{.tiles = tiles, .body = body, .object = object};
  tbb::this_task_arena::isolate(
      [&] { tbb::parallel_for(std::size_t{0}, runners, Runner(job), tbb::simple_partitioner()); });
  static_cast<void>(job.done.load(std::memory_order_acquire));
  if (job.error) std::rethrow_exception(job.error);
}

void Placement::wait_idle() {
  call_in(impl_->arena, [this] { impl_->graph->wait_for_all(); });
}

std::size_t allowed_parallelism() {
  return tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
}

}  // namespace colibri
