// Uses Colibri's headers beside its own of the same name.
#include <colibri/engine.hpp>
#include <colibri/session.hpp>

#include "io/status.hpp"

colibri::Status host_status() {
  return {colibri::ErrorCode::internal,
          std::to_string(kHostStatus) + std::string(colibri::default_pipeline_yaml())};
}
