// combine: adds the results of each row in one order and sends the wave on.
#pragma once

#include <memory>

#include <colibri/registry.hpp>

namespace colibri {

extern const StageInfo kCombineInfo;
std::unique_ptr<Stage> create_combine();

}  // namespace colibri
