// PipelineSpec: the pipeline that a config file declares, as plain data.
//
// parse_pipeline reads YAML, applies overrides and reports every problem at once;
// check_pipeline proves that the graph can run. The runtime builds exactly this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/status.hpp"
#include "kernels/export.hpp"
#include "topology/stage_info.hpp"

namespace colibri {

// Where an effective value came from, for `check --dump` and error texts.
struct Origin {
  enum class Kind : std::uint8_t {
    default_value,
    file,
    environment,
    command_line
  } kind = Kind::default_value;
  std::string file;  // or the variable's or flag's name
  int line = 0;      // 1-based; 0: none
  int column = 0;
};

// A size: a number of bytes, a share of what is available, the least possible, or automatic.
struct SizeSetting {
  enum class Kind : std::uint8_t { automatic, bytes, percent, minimum } kind = Kind::automatic;
  std::uint64_t bytes = 0;
  double percent = 0;
  Origin origin;
};

struct MemorySpec {
  SizeSetting static_pool, dynamic, scratch;  // kept as given; auto = what the model and steps need
  SizeSetting experts;                        // expert slots: bytes, "25%" of all experts, min or auto
};

struct StepsSpec {
  std::optional<std::uint32_t> max_rows;   // rows of a step; nullopt: auto
  std::optional<std::uint32_t> wave_rows;  // rows of a wave; nullopt: auto
  std::optional<std::uint32_t> in_flight;  // steps at a time; nullopt: auto
  Origin max_rows_origin, wave_rows_origin, in_flight_origin;
};

struct StageSpec {
  std::string name;
  std::string kind;
  std::optional<std::uint32_t>
      workers;  // threads that context.parallel may use; nullopt: all of the placement
  std::optional<std::uint32_t> numa_node;
  std::vector<std::uint32_t> cpus;                               // empty: not given
  std::map<std::string, std::pair<std::string, Origin>> params;  // only those given; text as in the file
  Origin origin;                                                 // of the name
  Origin kind_origin, workers_origin, numa_node_origin, cpus_origin;
};

struct EdgeSpec {
  std::string from_stage, from_port, to_stage, to_port;
  std::optional<std::uint32_t> capacity;  // messages; nullopt: auto
  Origin origin;
  Origin from_origin, to_origin, capacity_origin;
};

struct ProfileSpec {
  std::string output;  // file for the JSON profile; empty: none
  Origin origin;
};

struct PipelineSpec {
  std::string name;   // file name, or "built-in"
  std::string model;  // container folder as given; empty: none. See model_path
  Origin model_origin;
  std::optional<std::uint32_t> threads;  // worker threads of the default placement; nullopt: auto
  Origin threads_origin;
  // The file is for another machine: its CPUs and NUMA nodes stand for those here, in turn.
  bool virtual_placement = false;
  Origin virtual_placement_origin;
  std::string state_dir;  // folder for what jobs learn about models; empty: nothing is written
  Origin state_dir_origin;
  MemorySpec memory;
  StepsSpec steps;
  std::vector<StageSpec> stages;  // in file order
  std::vector<EdgeSpec> edges;
  ProfileSpec profile;
};

// A value set from outside the file: path "stages.fetch.lanes", text "16".
struct Override {
  std::string path;
  std::string value;
  Origin origin;
};

// The kinds that may be used: built-in ones and the host's.
using StageInfos = std::span<const StageInfo* const>;

// All problems of one file, each as file:line:column: path: what; expected; nearest name.
struct COLIBRI_API PipelineProblems {
  std::vector<std::string> lines;
  std::string file;  // the first that a problem is in; empty: none is in a file
  // Adds "<where>: path: what". A line that is there already is not repeated; past kMaximumProblems only
  // the fact that there are more is kept.
  void add(const Origin& origin, std::string_view path, std::string_view what);
  Status to_status() const;  // ok when there is none; else invalid_input with all lines
};
inline constexpr std::size_t kMaximumProblems = 200;

// Limits on a file, checked before anything is built from it.
inline constexpr std::size_t kMaximumPipelineBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaximumStages = 256;
inline constexpr std::size_t kMaximumEdges = 4096;
// What the rings of an edge can hold.
inline constexpr std::uint32_t kMaximumEdgeCapacity = 65534;

// Parses text. On problems returns them all in `problems`, and a spec that holds what could be understood:
// fit for check_pipeline, which then adds the problems of the graph, but not to be run.
// Precedence: overrides in order (environment first, command line last), then the file, then defaults.
COLIBRI_API PipelineSpec parse_pipeline(std::string_view yaml, std::string_view file_name, StageInfos kinds,
                                        std::span<const Override> overrides, PipelineProblems& problems);
// COLIBRI_* variables as overrides: COLIBRI_STAGES_FETCH_LANES=16, COLIBRI_MEMORY_EXPERTS, COLIBRI_THREADS.
COLIBRI_API std::vector<Override> overrides_from_environment(const char* const* environment);

// Adds every problem of the graph: unknown kinds, ports, dangling or doubly fed ports, types, cycles, and
// experts that no stage or more than one has.
COLIBRI_API void check_pipeline(const PipelineSpec& spec, StageInfos kinds, PipelineProblems& problems);
// The part about experts alone. With the model's number of experts it is exact; 0: not known yet.
COLIBRI_API void check_partitions(const PipelineSpec& spec, StageInfos kinds, std::uint32_t num_experts,
                                  PipelineProblems& problems);

// How many messages of each type circulate at most, by MessageType; 0: unknown, nothing is checked.
using MessageCredits = std::array<std::uint32_t, kMessageTypes>;
// Adds a problem for each edge on a cycle whose capacity is below the credits of its message type: an emit
// on a cycle must never wait. The runtime calls this once it knows the sizes of the model and the steps.
COLIBRI_API void check_edge_capacities(const PipelineSpec& spec, StageInfos kinds,
                                       const MessageCredits& credits, PipelineProblems& problems);

// Effective text of a parameter of the stage's kind, `experts` of partitioned kinds among them: the given one,
// else the default.
COLIBRI_API std::string_view effective_param(const StageSpec& stage, const StageInfo& info,
                                             std::string_view name);

// The container that the pipeline names: a relative path in a file counts from that file's folder, one from
// elsewhere from the working directory. Empty: none is named.
COLIBRI_API std::string model_path(const PipelineSpec& spec);

// The graph in Graphviz's language.
COLIBRI_API std::string draw_pipeline_dot(const PipelineSpec& spec, StageInfos kinds);
// What automatic values come to, and why, by path: "threads" -> "2: a thread for each of 2 CPUs"; for edges
// "edges[3].capacity".
using ValueNotes = std::map<std::string, std::string, std::less<>>;
// Every effective value with its origin as a comment, and what the notes say of it; itself a file that parses
// to the same values.
COLIBRI_API std::string dump_pipeline(const PipelineSpec& spec, StageInfos kinds,
                                      const ValueNotes& notes = {});

// configs/batch.yaml, compiled in.
COLIBRI_API std::string_view default_pipeline_yaml() noexcept;
// configs/block.yaml, compiled in.
COLIBRI_API std::string_view block_pipeline_yaml() noexcept;

// "4GiB", "128KiB", "1000", "1.5GB" -> bytes. Overflow-safe.
COLIBRI_API Result<std::uint64_t> parse_bytes(std::string_view text);
COLIBRI_API std::string format_bytes(std::uint64_t bytes);  // "1.50 GiB"

}  // namespace colibri
