// fetch: owns the page table and the slots; reads every record once per visit.
#pragma once

#include <memory>

#include <colibri/registry.hpp>

namespace colibri {

extern const StageInfo kFetchInfo;
std::unique_ptr<Stage> create_fetch();

}  // namespace colibri
