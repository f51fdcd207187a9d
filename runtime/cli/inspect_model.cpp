// What a container holds, for people and as JSON.
#include "runtime/cli/inspect_model.hpp"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/container/container.hpp"
#include "io/container/file_system.hpp"
#include "io/text/json_output.hpp"
#include "kernels/number_format.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

struct ModelSizes {
  std::uint64_t dense_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t record_bytes = 0;
  std::uint64_t experts = 0;                 // routed experts of all layers
  std::uint64_t dense_bytes_per_token = 0;   // weights that every token reads
  std::uint64_t expert_bytes_per_token = 0;  // records that a token alone picks
};

// Every token reads all dense tensors, but of an embedding that is not also the head only one row.
std::uint64_t dense_bytes_per_token(const Container& container) {
  std::uint64_t bytes = 0;
  for (const DenseTensor& tensor : container.dense_tensors()) {
    const bool looked_up = tensor.name == "embedding.weight" && !container.spec().tied_head;
    bytes += looked_up ? tensor.bytes / tensor.rows : tensor.bytes;
  }
  return bytes;
}

ModelSizes sizes_of(const Container& container) {
  const ModelSpec& spec = container.spec();
  ModelSizes sizes;
  sizes.dense_bytes = container.dense_bytes();
  sizes.expert_bytes = container.expert_bytes();
  sizes.record_bytes = container.layout().record_bytes;
  sizes.experts = std::uint64_t{spec.num_moe_layers()} * spec.num_experts;
  sizes.dense_bytes_per_token = dense_bytes_per_token(container);
  sizes.expert_bytes_per_token =
      std::uint64_t{spec.num_moe_layers()} * spec.num_experts_per_token * sizes.record_bytes;
  return sizes;
}

class Report {
 public:
  void line(const char* name, const std::string& value) {
    char label[32];
    std::snprintf(label, sizeof(label), "%-24s", name);
    text_.append(label).append(value).append("\n");
  }
  void count(const char* name, std::uint64_t value) { line(name, std::to_string(value)); }
  void bytes(const char* name, std::uint64_t value) {
    line(name, format_bytes(value) + " (" + std::to_string(value) + " bytes)");
  }
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

std::string layers_text(const ModelSpec& spec) {
  std::uint32_t windowed = 0;
  for (const LayerSpec& layer : spec.layers) windowed += layer.sliding_window > 0 ? 1 : 0;
  const std::uint32_t moe = spec.num_moe_layers();
  std::string text = std::to_string(spec.num_layers()) + " (" + std::to_string(moe) + " with experts, " +
                     std::to_string(spec.num_layers() - moe) + " dense";
  if (windowed > 0) text += ", " + std::to_string(windowed) + " with a sliding window";
  return text + ")";
}

std::string attention_text(const AttentionSpec& attention) {
  return std::to_string(attention.num_heads) + " heads, " + std::to_string(attention.num_kv_heads) +
         " key-value heads, " + std::to_string(attention.head_dim) + " per head";
}

// One file with expert records: experts.bin, or a part of a striped model.
struct ExpertFile {
  std::string name;
  std::string target;  // of a link, else empty
  std::uint64_t records = 0;
  FileSystem file_system;
};

std::vector<ExpertFile> expert_files_of(const Container& container) {
  std::vector<ExpertFile> files;
  for (const std::filesystem::path& path : container.expert_files()) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    files.push_back(
        {path.filename().string(), error ? std::string() : target.string(), 0, file_system_of(path)});
  }
  const ModelSpec& spec = container.spec();
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    for (std::uint32_t expert = 0; spec.layers[layer].moe && expert < spec.num_experts; ++expert) {
      ++files[container.record(layer, expert).file].records;
    }
  }
  return files;
}

std::string describe(const Container& container) {
  const ModelSpec& spec = container.spec();
  const ModelSizes sizes = sizes_of(container);
  Report report;
  report.line("family", spec.family);
  report.line("weights", std::string(kernels::weight_format_name(spec.weight_dtype)) +
                             " (asked for: " + spec.weights_option + ")");
  report.line("layers", layers_text(spec));
  report.count("hidden_size", spec.hidden_size);
  report.line("attention", attention_text(spec.attention));
  report.count("vocab_size", spec.vocab_size);
  report.count("max_seq_len", spec.max_seq_len);
  report.count("num_experts", spec.num_experts);
  report.count("num_experts_per_token", spec.num_experts_per_token);
  report.count("intermediate_size", spec.intermediate_size);
  if (spec.shared_expert.intermediate_size > 0) {
    report.count("shared expert size", spec.shared_expert.intermediate_size);
  }
  report.line("tokenizer", container.tokenizer_path().empty() ? "none (token ids only)" : "yes");
  report.bytes("dense weights", sizes.dense_bytes);
  report.bytes("experts", sizes.expert_bytes);
  report.bytes("expert record", sizes.record_bytes);
  report.count("expert records", sizes.experts);
  const std::vector<ExpertFile> files = expert_files_of(container);
  for (std::size_t i = 0; files.size() > 1 && i < files.size(); ++i) {
    report.line(files[i].name.c_str(), (files[i].target.empty() ? "" : "-> " + files[i].target + ", ") +
                                           std::to_string(files[i].records) + " records, " +
                                           format_bytes(files[i].records * sizes.record_bytes) +
                                           ", experts " + std::to_string(i) + "/" +
                                           std::to_string(files.size()));
  }
  std::string kinds;
  std::string advice;
  for (const ExpertFile& file : files) {
    kinds += (kinds.empty() ? "" : ", ") + file.file_system.name;
    if (advice.empty()) advice = network_advice(file.file_system, container.folder() / file.name);
  }
  report.line("file system", kinds);
  if (!advice.empty()) report.line("advice", advice);
  report.bytes("dense bytes per token", sizes.dense_bytes_per_token);
  report.bytes("expert bytes per token", sizes.expert_bytes_per_token);
  report.line("digest", container.digest());
  return report.text();
}

std::string describe_as_json(const Container& container) {
  const ModelSizes sizes = sizes_of(container);
  std::string json = "{\"digest\": ";
  append_json_string(json, container.digest());
  const auto number = [&json](std::string_view name, std::uint64_t value) {
    json.append(", \"").append(name).append("\": ");
    append_json_number(json, value);
  };
  number("num_layers", container.spec().num_layers());
  number("num_moe_layers", container.spec().num_moe_layers());
  number("dense_bytes", sizes.dense_bytes);
  number("expert_bytes", sizes.expert_bytes);
  number("expert_record_bytes", sizes.record_bytes);
  number("expert_records", sizes.experts);
  number("dense_bytes_per_token", sizes.dense_bytes_per_token);
  number("expert_bytes_per_token", sizes.expert_bytes_per_token);
  json += container.tokenizer_path().empty() ? ", \"tokenizer\": false" : ", \"tokenizer\": true";
  json += ", \"expert_files\": [";
  for (const ExpertFile& file : expert_files_of(container)) {
    json += json.back() == '[' ? "{\"name\": " : ", {\"name\": ";
    append_json_string(json, file.name);
    json += ", \"target\": ";
    if (file.target.empty()) json += "null";
    if (!file.target.empty()) append_json_string(json, file.target);
    number("records", file.records);
    number("bytes", file.records * sizes.record_bytes);
    json += ", \"file_system\": ";
    append_json_string(json, file.file_system.name);
    json += file.file_system.network ? ", \"network\": true" : ", \"network\": false";
    json += "}";
  }
  json += "]";
  return json + ", \"spec\": " + model_spec_to_json(container.spec()) + "}\n";
}

}  // namespace

Result<std::string> describe_model(const std::string& folder, bool json) {
  COLIBRI_ASSIGN_OR_RETURN(const std::shared_ptr<const Container> container, Container::open(folder));
  return json ? describe_as_json(*container) : describe(*container);
}

}  // namespace colibri::cli
