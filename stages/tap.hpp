// The kind `tap`: writes what passes, and hands it on as it is.
#pragma once

#include <colibri/stage.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kTapInfo;
std::unique_ptr<Stage> create_tap();

}  // namespace colibri
