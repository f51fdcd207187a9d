// A container's steps, slots and services, for tests that drive core stages one by one.
#pragma once

#include <colibri/services.hpp>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "io/container/container.hpp"
#include "io/read/aligned_region.hpp"
#include "runtime/memory/step_buffers.hpp"
#include "stages/dense_weights.hpp"

namespace colibri::testing {

struct MoeJobOptions {
  std::uint32_t max_rows = 16;
  std::uint32_t wave_rows = 4;
  std::uint32_t in_flight = 1;
  std::uint32_t slots = 1;
  std::uint32_t transit = 1;
  std::uint64_t hint_batches = 4;
};

class MoeJob {
 public:
  MoeJob(const std::filesystem::path& folder, const MoeJobOptions& options);

  const ModelSpec& spec() const { return container->spec(); }
  // Starts over: step `index` has `rows` rows of position 0, 1, ... of one sequence, in waves, with all flags off.
  Step& begin_step(std::uint32_t index, std::uint32_t rows);
  // A visit without rows, for tests of `fetch`: demands are what the test puts into it.
  Visit& begin_visit(Step& step, std::uint32_t which, std::uint32_t layer);
  // The bytes of a record as they lie in the file.
  std::vector<std::byte> record_bytes(std::uint32_t layer, std::uint32_t expert) const;

  std::shared_ptr<const Container> container;
  Services services;
  DenseWeights dense;             // what services.dense points to
  std::vector<Status> failures;   // of the job, as stages reported them
  int leaks = 0;                  // calls of Services::leak_slots

 private:
  AlignedRegion dense_memory_, step_memory_, slot_memory_;
  std::unique_ptr<StepPool> pool_;
  Sequence sequence_;
  std::uint64_t next_step_ = 1;
  std::uint64_t next_visit_ = 1;
};

}  // namespace colibri::testing
