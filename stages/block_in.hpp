// The kind `block_in`: the source of a pipeline that is the experts alone.
#pragma once

#include <colibri/stage.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kBlockInInfo;
std::unique_ptr<Stage> create_block_in();

}  // namespace colibri
