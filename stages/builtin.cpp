// The list of built-in stage kinds: one line each. Adding a kind ends with a line here.
#include <colibri/registry.hpp>
#include <utility>

#include "stages/admit.hpp"
#include "stages/attend.hpp"
#include "stages/block_in.hpp"
#include "stages/block_out.hpp"
#include "stages/combine.hpp"
#include "stages/compute.hpp"
#include "stages/embed.hpp"
#include "stages/fetch.hpp"
#include "stages/predict.hpp"
#include "stages/read.hpp"
#include "stages/route.hpp"
#include "stages/sample.hpp"
#include "stages/tap.hpp"
#include "stages/transfer.hpp"
#include "stages/write.hpp"

namespace colibri {

Status Registry::add(const StageKind& kind) {
  if (find(kind.info->kind) != nullptr) {
    return {ErrorCode::invalid_input, "a stage kind named '" + std::string(kind.info->kind) +
                                          "' is registered already; give the new one another name"};
  }
  for (const ParamInfo& param : kind.info->params) {
    if (!param.while_running || param.type != ParamType::text) continue;
    return {ErrorCode::invalid_input, "a text cannot change while a pipeline runs: parameter '" +
                                          std::string(param.name) + "' of stage kind '" +
                                          std::string(kind.info->kind) + "'; make it a choice or a number"};
  }
  kinds_.push_back(kind);
  return {};
}

const StageKind* Registry::find(std::string_view kind) const noexcept {
  for (const StageKind& known : kinds_) {
    if (known.info->kind == kind) return &known;
  }
  return nullptr;
}

std::vector<const StageInfo*> Registry::infos() const {
  std::vector<const StageInfo*> infos;
  for (const StageKind& kind : kinds_) infos.push_back(kind.info);
  return infos;
}

Registry builtin_registry() {
  Registry registry;
  const StageKind kinds[] = {
      {&kReadInfo, create_read, nullptr},
      {&kAdmitInfo, create_admit, admit_memory_bytes},
      {&kEmbedInfo, create_embed, embed_memory_bytes},
      {&kAttendInfo, create_attend, attend_memory_bytes},
      {&kRouteInfo, create_route, route_memory_bytes},
      {&kPredictInfo, create_predict, predict_memory_bytes},
      {&kFetchInfo, create_fetch, nullptr},
      {&kTransferInfo, create_transfer, transfer_memory_bytes},
      {&kComputeInfo, create_compute, compute_memory_bytes},
      {&kCombineInfo, create_combine, nullptr},
      {&kSampleInfo, create_sample, sample_memory_bytes},
      {&kWriteInfo, create_write, nullptr},
      {&kBlockInInfo, create_block_in, nullptr},
      {&kBlockOutInfo, create_block_out, nullptr},
      {&kTapInfo, create_tap, nullptr},
  };
  for (const StageKind& kind : kinds) static_cast<void>(registry.add(kind));  // names differ
  return registry;
}

}  // namespace colibri
