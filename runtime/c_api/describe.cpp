// colibri_version and its like, colibri_model_spec_load, colibri_model_size_estimate: what can be said
// without opening a model.
#include "runtime/c_api/configuration.hpp"
#include "runtime/c_api/model_facts.hpp"
#include "topology/machine.hpp"

namespace colibri::c_api {
namespace {

const char* sentence_of(colibri_code code) noexcept {
  switch (code) {
    case COLIBRI_OK: return "no error";
    case COLIBRI_ERROR_INVALID_INPUT: return "an argument, a request or a file breaks its rules";
    case COLIBRI_ERROR_NOT_FOUND: return "a file, tensor, stage or name does not exist";
    case COLIBRI_ERROR_CORRUPT: return "a file contradicts itself";
    case COLIBRI_ERROR_UNSUPPORTED: return "well-formed, but not supported here";
    case COLIBRI_ERROR_IO: return "the operating system refused or failed a read or write";
    case COLIBRI_ERROR_OUT_OF_MEMORY: return "there is no room in memory";
    case COLIBRI_ERROR_CAPACITY: return "it can never fit what was configured";
    case COLIBRI_ERROR_CANCELLED: return "ended on request";
    case COLIBRI_ERROR_TIMEOUT: return "a deadline passed";
    case COLIBRI_ERROR_INTERNAL: return "a bug in Colibri";
    case COLIBRI_ERROR_FORKED: return "called in a child process that fork made";
    case COLIBRI_ERROR_BUFFER_TOO_SMALL: return "a buffer is too small; the needed size is told";
    case COLIBRI_ERROR_BUSY: return "something else uses the model";
    case COLIBRI_PENDING: return "not answered yet";
    default: return "unknown code";
  }
}

Status load_moe_layers(const char* path, std::vector<std::uint32_t>& layers) {
  COLIBRI_ASSIGN_OR_RETURN(const std::string folder, read_path(path, "path"));
  COLIBRI_ASSIGN_OR_RETURN(const std::shared_ptr<const Container> container, Container::open(folder));
  const ModelSpec& spec = container->spec();
  for (std::uint32_t layer = spec.next_moe_layer(0); layer < spec.num_layers();
       layer = spec.next_moe_layer(layer + 1)) {
    layers.push_back(layer);
  }
  return {};
}

void fill_estimate(const MemoryPlan& plan, colibri_size_estimate& estimate) {
  estimate.static_bytes = plan.static_bytes;
  estimate.dynamic_bytes = plan.dynamic_bytes;
  estimate.scratch_bytes = plan.scratch_bytes;
  estimate.expert_slots = plan.slots;
  estimate.slot_bytes = plan.slot_bytes;
  estimate.process_bytes = plan.process_bytes;
  estimate.total_bytes = plan.total_bytes;
  estimate.usable_bytes = plan.usable_bytes;
  estimate.max_positions = plan.longest_request();
  estimate.max_rows = plan.inputs.max_rows;
  estimate.wave_rows = plan.inputs.wave_rows;
  estimate.worker_slots = plan.placement.threads();
  estimate.reserved = 0;
}

}  // namespace

void fill_spec(const Container& container, colibri_model_spec& filled) {
  const ModelSpec& spec = container.spec();
  filled.num_layers = spec.num_layers();
  filled.num_moe_layers = spec.num_moe_layers();
  filled.num_experts = spec.num_experts;
  filled.num_experts_per_token = spec.num_experts_per_token;
  filled.hidden_size = spec.hidden_size;
  filled.intermediate_size = spec.intermediate_size;
  filled.vocab_size = spec.vocab_size;
  filled.max_seq_len = spec.max_seq_len;
  filled.has_tokenizer = container.tokenizer_path().empty() ? 0 : 1;
  filled.reserved = 0;
  filled.dense_bytes = container.dense_bytes();
  filled.expert_bytes = container.expert_bytes();
  filled.record_bytes = container.layout().record_bytes;
  copy_text(filled.family, sizeof filled.family, spec.family);
  copy_text(filled.weight_dtype, sizeof filled.weight_dtype, kernels::weight_format_name(spec.weight_dtype));
}

}  // namespace colibri::c_api

using namespace colibri;
using namespace colibri::c_api;

const char* colibri_error_string(colibri_code code) { return sentence_of(code); }
const char* colibri_version(void) { return COLIBRI_VERSION_TEXT; }
uint32_t colibri_abi_version(void) { return COLIBRI_ABI_VERSION; }

colibri_code colibri_error_init(colibri_error* error, uint64_t struct_size) {
  return contain(nullptr, [&] { return init_struct(error, struct_size, "error"); });
}

colibri_code colibri_config_init(colibri_config* config, uint64_t struct_size) {
  return contain(nullptr, [&] { return init_struct(config, struct_size, "config"); });
}

colibri_code colibri_model_spec_load(const char* path, colibri_model_spec* spec, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_struct(spec, "spec"));
    const auto folder = read_path(path, "path");
    if (!folder) return folder.status();
    const auto container = Container::open(*folder);
    if (!container) return container.status();
    fill_spec(**container, *spec);
    return {};
  });
}

colibri_code colibri_model_spec_moe_layers(const char* path, uint32_t* layers, uint64_t capacity,
                                           uint64_t* count, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_pointer(count, alignof(uint64_t), "count"));
    if (capacity > 0) COLIBRI_C_RETURN_IF_ERROR(check_pointer(layers, alignof(uint32_t), "layers"));
    std::vector<std::uint32_t> found;
    COLIBRI_C_RETURN_IF_ERROR(load_moe_layers(path, found));
    *count = found.size();
    return copy_elements<std::uint32_t>(found, layers, capacity, "layers");
  });
}

colibri_code colibri_model_size_estimate(const char* path, const colibri_config* config,
                                         colibri_size_estimate* estimate, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_struct(estimate, "estimate"));
    const auto folder = read_path(path, "path");
    if (!folder) return folder.status();
    auto read = read_configuration(config, *folder);
    if (!read) return read.status();
    const auto machine = read_machine();
    if (!machine) return machine.status();
    const auto plan = plan_model(*folder, read->pipeline, builtin_registry(), *machine);
    if (!plan) return plan.status();
    fill_estimate(*plan, *estimate);
    return {};
  });
}
