// What `colibri inspect DIR` says about a container.
#pragma once

#include <string>

#include "io/status.hpp"

namespace colibri::cli {

// Several lines, or one JSON object.
Result<std::string> describe_model(const std::string& folder, bool json);

}  // namespace colibri::cli
