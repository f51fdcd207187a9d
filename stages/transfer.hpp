// transfer: brings a record to the memory of the stage that computes with it.
#pragma once

#include <colibri/registry.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kTransferInfo;
std::unique_ptr<Stage> create_transfer();
std::uint64_t transfer_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
