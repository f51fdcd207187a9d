// StageInfo: what a stage kind is, as plain constexpr data.
//
// One table per kind drives validation of config files, `colibri inspect`, the JSON
// Schema, the documentation and the metric names. Nothing repeats what stands here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kernels/export.hpp"

namespace colibri {

// What travels over an edge. An edge joins ports of one type.
enum class MessageType : std::uint8_t {
  request,        // Sequence*: a parsed request, tokenized
  wave,           // Wave*: rows of a step, on their way through the layers
  step_done,      // Step*: it may be used again; null: results of the one before are out
  outcome,        // Outcome*: a finished result, or a streamed piece of one
  demand,         // Visit*: experts that a wave needs now
  visit,          // Visit*: all waves are routed, rows per expert are known
  residual_copy,  // HintBatch*: residual rows for the predictor
  hint,           // HintBatch*: experts that a later visit may need
  expert,         // Visit*: records lie in slots
  slot,           // slots whose leases ended
  expert_done,    // an expert's rows are computed
  host,           // types of the host program
};
inline constexpr std::size_t kMessageTypes = static_cast<std::size_t>(MessageType::host) + 1;
COLIBRI_API std::string_view message_type_name(MessageType type) noexcept;

struct PortInfo {
  std::string_view name;
  MessageType type;
  std::string_view help;
  bool required = true;   // must be connected; an output that is not required is never waited for:
                          // its stage looks at Emitter::room and drops what does not fit
  bool many = false;      // inputs: several edges may end here
  bool feedback = false;  // inputs: on a cycle on purpose; its capacity must hold all credits
  // What the messages have been through, where one type is not enough to tell: an edge joins ports of equal
  // state, or a port without one.
  std::string_view state = {};
  // outputs: each message is about experts of one owner. Several edges may start here, to stages that share
  // out the experts (StageInfo::partitioned); a message goes to the stage that has its experts, never to all.
  bool by_expert = false;
};

// The state of ports of a stage that changes nothing: its input takes any state, its outputs of the same type
// send what arrives there. The checker looks through such a stage.
inline constexpr std::string_view kSameState = "same";

// A value of a choice parameter that makes sense only for messages in certain states; for stages whose input
// has kSameState.
struct StateNeed {
  std::string_view param, value;
  std::string_view states;  // "routed|combined"
};

// Unit of text parameters that name a file which the stage writes: a program can see beforehand that it is
// none of its other files.
inline constexpr std::string_view kOutputFileUnit = "file to write";

enum class ParamType : std::uint8_t { boolean, integer, number, bytes, choice, text };

// Units of text parameters that have a form of their own, and may be YAML lists too.
inline constexpr std::string_view kCpuListUnit = "CPU list";
inline constexpr std::string_view kExpertListUnit = "list of experts";
inline constexpr std::string_view kLayerListUnit = "list of layers";

struct ParamInfo {
  std::string_view name;
  ParamType type;
  std::string_view unit;           // "rows", "bytes", "" ...
  std::string_view default_value;  // as it would stand in a file; may be "auto" when allow_auto
  double minimum = 0;
  double maximum = std::numeric_limits<double>::infinity();
  std::string_view choices = {};  // "none|next_router" for ParamType::choice
  bool allow_auto = false;
  bool required = false;  // must be given, and not empty; for text without a default
  bool while_running =
      false;  // may change while the pipeline runs: the stage asks for it at each use; no text
  std::string_view help;
};

struct MetricInfo {
  std::string_view name;  // base units in names: _seconds, _bytes, _total
  std::string_view help;
};

// Large memory that stages share, and that a kind works in. It is bound to the NUMA nodes of its users.
struct MemoryUse {
  bool dense = false;  // dense weights
  bool kv = false;     // KV pages
  bool steps = false;  // rows of the steps: hidden states, picks, results of experts
  bool slots = false;  // owns expert slots
};

struct StageInfo {
  std::string_view kind;
  std::string_view help;
  std::span<const PortInfo> inputs;  // in order of priority: earlier ports are served first
  std::span<const PortInfo> outputs;
  std::span<const ParamInfo> params;
  std::span<const MetricInfo> metrics;
  // The most messages that one call of on_message, resume or end_of_input emits on any one output
  // port. A call is made only when each output has that much room, so an emit never fails.
  // 0: as many as the port's credits (the edge's capacity holds them all by construction).
  std::uint32_t max_emits = 1;
  // Makes messages by itself: resumed until it reports Wait::input, and again after each message. Its inputs,
  // if any, are feedback.
  bool source = false;
  // Lets others go first after each Wait::output_space: what it does then is not urgent.
  bool gives_way = false;
  // Takes the parameter `experts`: several stages of the kind may share out the experts of the model.
  bool partitioned = false;
  std::span<const StateNeed> state_needs = {};
  MemoryUse memory = {};
};

// Parameters that every stage has (documented once): workers, numa_node, cpus.
COLIBRI_API std::span<const ParamInfo> common_stage_params() noexcept;
// The parameter that stages of partitioned kinds have beside these: experts. None for other kinds.
COLIBRI_API std::span<const ParamInfo> partition_params(const StageInfo& info) noexcept;

}  // namespace colibri
