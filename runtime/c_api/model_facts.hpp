// What a container is, in the struct of the C interface.
#pragma once

#include <colibri/colibri.h>

#include "io/container/container.hpp"

namespace colibri::c_api {

// Everything but struct_size.
void fill_spec(const Container& container, colibri_model_spec& filled);

}  // namespace colibri::c_api
