#include "moe_job.hpp"

#include <algorithm>
#include <fstream>

namespace colibri::testing {

MoeJob::MoeJob(const std::filesystem::path& folder, const MoeJobOptions& options)
    : container(Container::open(folder).value()) {
  services.plan.spec = &container->spec();
  services.plan.max_rows = options.max_rows;
  services.plan.wave_rows = options.wave_rows;
  services.plan.in_flight = options.in_flight;
  services.plan.threads = 2;
  services.container = container.get();
  services.kernels = &kernels::best_kernel_table();
  dense_memory_ = AlignedRegion::create(container->dense_bytes()).value();
  if (!container->read_dense(dense_memory_.bytes().first(container->dense_bytes()))) std::abort();
  dense = bind_dense_weights(*container, dense_memory_.data()).value();
  services.dense = &dense;
  step_memory_ = AlignedRegion::create(options.in_flight * step_bytes(services.plan) +
                                       options.hint_batches * hint_batch_bytes(services.plan))
                     .value();
  pool_ = std::make_unique<StepPool>(services.plan, options.hint_batches, step_memory_.bytes());
  services.steps = pool_->steps();
  services.hint_batches = pool_->hint_batches();
  const std::uint64_t stride = container->layout().record_bytes;
  slot_memory_ = AlignedRegion::create(options.slots * stride).value();
  services.slots = {.base = slot_memory_.data(), .stride = stride, .slots = options.slots,
                    .shares = {{.first = 0, .slots = options.slots, .transit = options.transit}}};
  services.fail_job = [this](Status status) { failures.push_back(std::move(status)); };
  services.leak_slots = [this] {
    ++leaks;
    slot_memory_.leak();
  };
}

Step& MoeJob::begin_step(std::uint32_t index, std::uint32_t rows) {
  Step& step = services.steps[index];
  step.serial = next_step_++;
  step.rows = rows;
  step.wave_count = (rows + services.plan.wave_rows - 1) / services.plan.wave_rows;
  for (std::uint32_t wave = 0; wave < step.wave_count; ++wave) {
    const std::uint32_t begin = wave * services.plan.wave_rows;
    step.waves[wave] = {.step = &step, .index = wave, .row_begin = begin,
                        .row_end = std::min(rows, begin + services.plan.wave_rows)};
  }
  for (std::uint32_t row = 0; row < rows; ++row) {
    step.sequences[row] = &sequence_;
    step.positions[row] = row;
    step.flags[row] = kRowNone;
    step.row_status[row] = Status();
  }
  return step;
}

Visit& MoeJob::begin_visit(Step& step, std::uint32_t which, std::uint32_t layer) {
  Visit& visit = step.visits[which];
  visit.step = &step;
  visit.layer = layer;
  visit.serial = next_visit_++;
  visit.expert_count = 0;
  return visit;
}

std::vector<std::byte> MoeJob::record_bytes(std::uint32_t layer, std::uint32_t expert) const {
  const ExpertRecord record = container->record(layer, expert);
  std::vector<std::byte> bytes(record.length);
  std::ifstream file(container->expert_files()[record.file], std::ios::binary);
  file.seekg(static_cast<std::streamoff>(record.offset));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

}  // namespace colibri::testing
