// The stage contract. This header is the manual; the executor is invisible to a stage.
//
// A stage is a piece of the pipeline that owns its state and talks by messages. An actor
// calls it, never from two threads at once (not always the same thread), in this order:
//
//   start                       take memory, files, threads from the context; a slow one asks
//                               services().stopping and answers ErrorCode::cancelled when that is true
//   on_message / resume ...     one bounded piece of work each; never block
//   end_of_input                once, after every input port has ended and is empty
//   stop                        give back what start took; also after a failed start of a later stage
//
// The smallest stage:
//
//   class Count : public Stage {
//    public:
//     Status start(StageContext& context) override { seen_ = context.counter("seen_total"); return {}; }
//     Wait on_message(Message& message, Emitter& out) override {
//       seen_->add(1);
//       out.emit(0, message);            // output port 0, in the order of StageInfo::outputs
//       return Wait::none;
//     }
//     ...
//   };
//
// Emits never fail: before each call the executor made sure that every output port has room for
// StageInfo::max_emits messages. Work that threads share goes through context.parallel(tiles, fn).
//
// Kinds that work on experts may be partitioned: each of several stages then has some of the experts, and
// messages about an expert are addressed to its owner (Emitter::emit_to).
//
// Failures of a request or a record are messages. An exception that leaves a stage is a bug, and is
// contained: the job ends with the error "stage NAME: what was thrown", no stage is called again except for
// its stop, messages on their way are dropped, and the engine can run the next job.
#pragma once

#include <atomic>
#include <colibri/messages.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "io/status.hpp"
#include "topology/stage_info.hpp"

namespace colibri {

// Why a stage cannot go on. Accounted as blocked time by reason.
enum class Wait : std::uint8_t {
  none = 0,          // done with this piece; send the next message
  input = 1,         // took the message, would rather work with more: further messages follow if there are
                     // any, else resume. A source says with it that it has nothing until it is posted to.
  output_space = 2,  // resume when all outputs have room; nothing is delivered before
  // The message is kept. What is named here is still delivered, and each delivery is followed by resume,
  // until that answers something else:
  expert = 3,  // messages on any input, and the completion port
  device = 4,  // the completion port
  memory = 5,  // messages on ports more urgent than the one that was answered, and the completion port
};
inline constexpr int kWaitReasons = 6;

// A counter that one stage writes and anybody may read.
class Counter {
 public:
  void add(std::uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Sends messages; valid only during the call it was passed to.
class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual void emit(std::uint32_t output_port, const Message& message) = 0;
  // Messages that the port can still take in this call (for stages with many emits).
  virtual std::uint32_t room(std::uint32_t output_port) const = 0;
  // Ports marked by_expert: the stages behind one share out the experts. They are numbered from 0; a port
  // without an edge has none. `owner` is the one that has the expert, which must be one of this stage's own.
  // Messages about an expert go to it alone: another stage could still look at what they point to when that
  // is in use again. max_emits holds for each owner.
  virtual std::uint32_t owners(std::uint32_t output_port) const = 0;
  virtual std::uint32_t owner(std::uint32_t output_port, std::uint32_t expert) const = 0;
  virtual void emit_to(std::uint32_t output_port, std::uint32_t owner, const Message& message) = 0;
  // Says that this stage will emit no more (sources, and stages whose inputs never end by themselves).
  virtual void end() = 0;
};

// Where foreign threads (reads, devices) deliver messages; they arrive at on_message with
// port == kCompletionPort. Thread-safe; never blocks; holds at most `capacity` messages.
inline constexpr std::uint8_t kCompletionPort = 255;
class CompletionPort {
 public:
  virtual ~CompletionPort() = default;
  virtual void post(const Message& message) noexcept = 0;
};

struct Services;  // services.hpp: the model, the pools and the job of the built-in stages

class StageContext {
 public:
  virtual ~StageContext() = default;
  virtual std::string_view name() const = 0;
  virtual const Services& services() const = 0;
  // Which of the stages of its kind this is, from 0, in the order of the file.
  virtual std::uint32_t instance() const = 0;
  // Whether the expert is among those of this stage; all are, unless the kind is partitioned. Not for hot
  // paths.
  virtual bool owns(std::uint32_t expert) const = 0;

  // Effective parameters, already checked against StageInfo; asking for an undeclared one is a bug. One that
  // is marked while_running may be another the next time: ask at each use. The others never change.
  virtual std::uint64_t integer(std::string_view param) const = 0;  // integer, bytes
  virtual double number(std::string_view param) const = 0;
  virtual bool boolean(std::string_view param) const = 0;
  virtual std::string_view text(std::string_view param) const = 0;  // choice, text
  virtual bool is_auto(std::string_view param) const = 0;

  // Memory of the size that the kind asked for at registration; 64-byte aligned, valid until stop.
  virtual std::span<std::byte> memory() = 0;
  // A metric declared in StageInfo; valid until stop.
  virtual Counter* counter(std::string_view metric) = 0;
  virtual CompletionPort& completion_port() = 0;

  // Threads that parallel uses at most.
  virtual std::uint32_t workers() const = 0;
  // Calls fn(tile) for tile in [0, tiles), spread over the placement's threads; returns when all are done.
  // Isolated: a waiting thread never starts another stage. What a tile throws is thrown again here when no
  // tile runs any more; tiles that had not begun are left out.
  template <class Fn>
  void parallel(std::size_t tiles, Fn&& fn) {
    using Plain = std::remove_reference_t<Fn>;
    run_parallel(
        tiles, [](void* body, std::size_t tile) { (*static_cast<Plain*>(body))(tile); },
        const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

 protected:
  virtual void run_parallel(std::size_t tiles, void (*body)(void*, std::size_t), void* object) = 0;
};

class Stage {
 public:
  virtual ~Stage() = default;
  // [inputs] When all that comes on an input would leave on one output as it is, all through the job: that
  // output, for each input. If one edge starts at each of these, messages go past the stage, straight to
  // where those lead, and it is told only of the end. Empty: it must see its messages. Asked before start;
  // what it answers must last.
  virtual std::span<const std::uint32_t> passes_to(const StageContext&) const { return {}; }
  virtual Status start(StageContext& context) = 0;
  virtual Wait on_message(Message& message, Emitter& out) = 0;
  virtual Wait resume(Emitter&) { return Wait::none; }
  virtual void end_of_input(Emitter&) {}
  virtual void stop() noexcept {}
};

}  // namespace colibri
