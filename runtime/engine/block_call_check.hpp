// What a call of a BlockSession must be, before anything of it is touched.
#pragma once

#include <colibri/block_session.hpp>

#include "io/container/model_spec.hpp"

namespace colibri {

// BlockSession::check for a model. Reads the input to its end.
Status check_block_call(const BlockCall& call, const ModelSpec& spec);
// The part that looks at no memory: layer and rows.
Status check_block_shape(const BlockCall& call, const ModelSpec& spec);
// The part that is about the input.
Status check_block_input(const BlockCall& call, const ModelSpec& spec);

}  // namespace colibri
