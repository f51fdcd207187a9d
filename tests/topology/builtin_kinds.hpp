// The kinds of the program itself, for tests of files that use them.
#pragma once

#include <colibri/registry.hpp>
#include <vector>

#include "topology/pipeline_spec.hpp"

namespace colibri::testing {

inline StageInfos builtin_kinds() {
  static const std::vector<const StageInfo*> infos = builtin_registry().infos();
  return infos;
}

}  // namespace colibri::testing
