// The kind `block_out`: the end of a pipeline that is the experts alone.
#pragma once

#include <colibri/stage.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kBlockOutInfo;
std::unique_ptr<Stage> create_block_out();

}  // namespace colibri
