// fetch: owns the page table and the slots; reads every record once per visit.
#pragma once

#include <colibri/registry.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kFetchInfo;
std::unique_ptr<Stage> create_fetch();

}  // namespace colibri
