// combine: adds the results of each row in one order and sends the wave on.
#pragma once

#include <colibri/registry.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kCombineInfo;
std::unique_ptr<Stage> create_combine();

}  // namespace colibri
