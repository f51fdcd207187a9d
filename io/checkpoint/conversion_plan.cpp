// Matching a checkpoint's tensors with the slots of a container.
#include "io/checkpoint/conversion_plan.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "io/checkpoint/problem_list.hpp"
#include "io/checkpoint/weights_option.hpp"
#include "io/container/dense_layout.hpp"

namespace colibri {
namespace {

using kernels::WeightFormat;

constexpr std::uint64_t kComparePiece = 1U << 20;

// The name of a layer's tensor for one expert.
std::string expert_name(std::string_view pattern, std::uint32_t expert) {
  constexpr std::string_view kExpertMark = "{e}";
  std::string name(pattern);
  if (const std::size_t at = name.find(kExpertMark); at != std::string::npos) {
    name.replace(at, kExpertMark.size(), std::to_string(expert));
  }
  return name;
}

// "layers.3.qkv.weight" -> 3 and "qkv.weight"; names without a layer stay as they are.
struct SlotName {
  std::optional<std::string> layer;
  std::string_view suffix;
};
SlotName split_slot(std::string_view slot) {
  constexpr std::string_view kLayers = "layers.";
  if (!slot.starts_with(kLayers)) return {std::nullopt, slot};
  const std::size_t dot = slot.find('.', kLayers.size());
  return {std::string(slot.substr(kLayers.size(), dot - kLayers.size())), slot.substr(dot + 1)};
}

// The format of a matrix: what was asked for, or what keeps all bits.
WeightFormat chosen_format(const std::string& weights, bool stored_as_bf16) {
  if (const auto asked = weights_option_format(weights)) return *asked;
  return stored_as_bf16 ? WeightFormat::bf16 : WeightFormat::f32;
}

class Planner {
 public:
  Planner(const ParsedConfig& config, const CheckpointFolder& checkpoint, const std::string& weights)
      : family_(*config.family), checkpoint_(checkpoint), weights_(weights) {
    plan_.spec = config.spec;
  }

  Result<ConversionPlan> run(std::uint32_t chunk_bytes) {
    plan_.spec.weights_option = weights_;
    plan_.spec.expert_chunk_size = chunk_bytes;
    decide_embedding();
    plan_experts();
    plan_dense();
    const bool tied_in_file = checkpoint_.find("lm_head.weight").file != nullptr && config_ties_head_;
    if (tied_in_file) COLIBRI_RETURN_IF_ERROR(check_tied_head());
    count_the_rest();
    if (!problems_.empty()) return all_problems();
    return std::move(plan_);
  }

 private:
  void problem(std::string sentence) { problems_.push_back(std::move(sentence)); }

  // The stored tensor if it has the shape and a dtype that can be read; else a problem and nothing.
  std::optional<StoredTensor> take(const std::string& name, const std::vector<std::uint64_t>& shape) {
    const StoredTensor stored = checkpoint_.find(name);
    if (stored.file == nullptr) {
      if (missing_.insert(name).second) problem("missing " + name + " " + shape_to_string(shape));
      return std::nullopt;
    }
    const bool first_use = used_.insert(stored.info->name).second;
    if (stored.info->shape != shape) {
      if (first_use) {
        problem(name + ", expected " + shape_to_string(shape) + ", found " +
                shape_to_string(stored.info->shape));
      }
      return std::nullopt;
    }
    if (stored.info->dtype == TensorDtype::other) {
      if (first_use) problem(name + ", expected F32, F16 or BF16, found " + stored.info->dtype_name);
      return std::nullopt;
    }
    return stored;
  }

  // The parts of a slot, stacked along the rows.
  MatrixSource stack(const DenseSlot& slot, const std::vector<std::string>& parts,
                     const std::vector<std::uint32_t>& part_rows) {
    MatrixSource source{{}, slot.rows, slot.columns};
    const bool vector = slot.role == DenseRole::vector;
    if (vector && parts.size() > 1) source = {{}, slot.columns, 1};  // biases: the parts follow each other
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::vector<std::uint64_t> shape{part_rows[i], slot.columns};
      if (vector) shape = {parts.size() > 1 ? part_rows[i] : slot.columns};
      // A gate with one output is stored as a matrix of one row.
      const StoredTensor stored = checkpoint_.find(parts[i]);
      if (vector && stored.file != nullptr && stored.info->shape.size() == 2) shape.insert(shape.begin(), 1);
      if (const auto tensor = take(parts[i], shape)) source.slices.push_back({*tensor, 0, part_rows[i]});
    }
    return source;
  }

  MatrixSource dense_source(const DenseSlot& slot) {
    const SlotName name = split_slot(slot.name);
    const std::string prefix = name.layer ? std::string(kLayerPrefix) + *name.layer + "." : std::string();
    if (slot.role == DenseRole::router) {
      const auto layer = static_cast<std::size_t>(std::stoul(*name.layer));
      return stack(slot, {prefix + std::string(layer_names_[layer]->router)}, {slot.rows});
    }
    // A tied head that needs a format of its own is a second copy of the embedding.
    const std::string_view wanted =
        slot.name == "head.weight" && config_ties_head_ ? "embedding.weight" : name.suffix;
    const auto row = std::find_if(family_.tensors.begin(), family_.tensors.end(),
                                  [wanted](const TensorNames& names) { return names.slot == wanted; });
    if (row == family_.tensors.end()) {
      problem("no name is known for " + slot.name + " in this family");
      return {};
    }
    std::vector<std::string> parts;
    for (const std::string_view part : row->parts) {
      if (!part.empty()) parts.push_back(prefix + std::string(part));
    }
    std::vector<std::uint32_t> part_rows{slot.rows};
    if (parts.size() == 3) {  // q, k, v
      const AttentionSpec& attention = plan_.spec.attention;
      part_rows = {attention.query_size(), attention.kv_size(), attention.kv_size()};
    }
    return stack(slot, parts, part_rows);
  }

  // Embedding and head decide whether a tied head needs a tensor of its own.
  void decide_embedding() {
    ModelSpec& spec = plan_.spec;
    config_ties_head_ = spec.tied_head;
    const StoredTensor embedding = checkpoint_.find("model.embed_tokens.weight");
    const bool bf16 = embedding.file != nullptr && embedding.info->dtype == TensorDtype::bf16;
    spec.embedding_dtype = bf16 ? WeightFormat::bf16 : WeightFormat::f32;
    spec.tied_head = config_ties_head_ && chosen_format(weights_, bf16) == spec.embedding_dtype;
  }

  void plan_dense() {
    for (const DenseSlot& slot : dense_slots(plan_.spec)) {
      MatrixSource source = dense_source(slot);
      DenseTensor tensor{slot.name, slot.role != DenseRole::vector, WeightFormat::f32, slot.rows,
                         slot.columns};
      if (slot.role == DenseRole::embedding) tensor.format = plan_.spec.embedding_dtype;
      if (slot.role == DenseRole::matrix) tensor.format = chosen_format(weights_, source.all_bf16());
      plan_.tensors.push_back(std::move(tensor));
      plan_.sources.push_back(std::move(source));
    }
  }

  // The alternative of which most names are there; the hub's when none is.
  const ExpertNames& names_of_layer(const std::string& prefix) const {
    const ExpertNames* best = &family_.expert_names.front();
    std::uint32_t most = 0;
    for (const ExpertNames& names : family_.expert_names) {
      std::uint32_t present = 0;
      for (std::uint32_t expert = 0; expert < plan_.spec.num_experts; ++expert) {
        for (const std::string_view pattern : {names.gate, names.up, names.down}) {
          present += checkpoint_.find(prefix + expert_name(pattern, expert)).file != nullptr;
        }
        present += checkpoint_.find(prefix + std::string(names.router)).file != nullptr;
      }
      if (present > most) {
        most = present;
        best = &names;
      }
    }
    return *best;
  }

  void plan_experts() {
    const ModelSpec& spec = plan_.spec;
    layer_names_.resize(spec.num_layers(), nullptr);
    bool all_bf16 = true;
    for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
      if (!spec.layers[layer].moe) continue;
      const std::string prefix = std::string(kLayerPrefix) + std::to_string(layer) + ".";
      const ExpertNames& names = names_of_layer(prefix);
      layer_names_[layer] = &names;
      for (std::uint32_t expert = 0; expert < spec.num_experts; ++expert) {
        ExpertSource source =
            names.fused ? fused_expert(prefix, names, expert) : single_expert(prefix, names, expert);
        all_bf16 = all_bf16 && source.gate.all_bf16() && source.up.all_bf16() && source.down.all_bf16();
        plan_.experts.push_back(std::move(source));
      }
    }
    plan_.spec.weight_dtype = chosen_format(weights_, all_bf16);
  }

  ExpertSource single_expert(const std::string& prefix, const ExpertNames& names, std::uint32_t expert) {
    const std::uint32_t hidden = plan_.spec.hidden_size;
    const std::uint32_t width = plan_.spec.intermediate_size;
    const auto matrix = [&](std::string_view pattern, std::uint32_t rows, std::uint32_t columns) {
      MatrixSource source{{}, rows, columns};
      if (const auto tensor = take(prefix + expert_name(pattern, expert), {rows, columns})) {
        source.slices.push_back({*tensor, 0, rows});
      }
      return source;
    };
    return {matrix(names.gate, width, hidden), matrix(names.up, width, hidden),
            matrix(names.down, hidden, width)};
  }

  // gate_up [experts, 2 * width, hidden], down [experts, hidden, width]
  ExpertSource fused_expert(const std::string& prefix, const ExpertNames& names, std::uint32_t expert) {
    const std::uint64_t experts = plan_.spec.num_experts;
    const std::uint64_t hidden = plan_.spec.hidden_size;
    const std::uint64_t width = plan_.spec.intermediate_size;
    const auto slice = [](const std::optional<StoredTensor>& tensor, std::uint64_t first_row,
                          std::uint64_t rows, std::uint64_t columns) {
      MatrixSource source{{}, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns)};
      if (tensor) source.slices.push_back({*tensor, first_row * columns, source.rows});
      return source;
    };
    const auto gate_up = take(prefix + std::string(names.gate), {experts, 2 * width, hidden});
    const auto down = take(prefix + std::string(names.down), {experts, hidden, width});
    return {slice(gate_up, expert * 2 * width, width, hidden),
            slice(gate_up, expert * 2 * width + width, width, hidden),
            slice(down, expert * hidden, hidden, width)};
  }

  // transformers 4 ties a stored head anyway, 5 does not when it differs: only equal ones are unambiguous.
  Status check_tied_head() {
    const StoredTensor head = checkpoint_.find("lm_head.weight");
    const StoredTensor embedding = checkpoint_.find("model.embed_tokens.weight");
    used_.insert(head.info->name);
    ++plan_.spec.ignored_tensors;
    bool equal = embedding.file != nullptr && head.info->shape == embedding.info->shape &&
                 head.info->dtype_name == embedding.info->dtype_name;
    std::vector<std::byte> a(kComparePiece);
    std::vector<std::byte> b(kComparePiece);
    for (std::uint64_t done = 0; equal && done < head.info->bytes; done += kComparePiece) {
      const std::uint64_t piece = std::min(kComparePiece, head.info->bytes - done);
      COLIBRI_RETURN_IF_ERROR(head.file->file().read_at(head.info->offset + done, std::span(a).first(piece)));
      COLIBRI_RETURN_IF_ERROR(
          embedding.file->file().read_at(embedding.info->offset + done, std::span(b).first(piece)));
      equal = std::memcmp(a.data(), b.data(), piece) == 0;
    }
    if (!equal) {
      problem(
          "lm_head.weight differs from model.embed_tokens.weight although tie_word_embeddings is true; set "
          "it "
          "to false, or remove lm_head.weight");
    }
    return Status::ok();
  }

  // Every tensor that has no use must be known to be ignorable.
  void count_the_rest() {
    std::vector<std::string> extra;
    for (const SafetensorsFile& shard : checkpoint_.shards()) {
      for (const TensorInfo& tensor : shard.tensors()) {
        if (used_.contains(tensor.name)) continue;
        if (is_ignorable_tensor(tensor.name, plan_.spec.num_layers())) {
          ++plan_.spec.ignored_tensors;
        } else {
          extra.push_back("unexpected " + tensor.name + " " + shape_to_string(tensor.shape));
        }
      }
    }
    problems_.insert(problems_.end(), extra.begin(), extra.end());
  }

  Status all_problems() const {
    return {ErrorCode::invalid_input, "the tensors do not fit the config: " + checkpoint_.folder().string() +
                                          ": " + std::to_string(problems_.size()) +
                                          (problems_.size() == 1 ? " problem: " : " problems: ") +
                                          list_problems(problems_)};
  }

  const FamilyRow& family_;
  const CheckpointFolder& checkpoint_;
  const std::string& weights_;
  bool config_ties_head_ = false;
  ConversionPlan plan_;
  std::vector<const ExpertNames*> layer_names_;  // [layers], null for dense ones
  std::vector<std::string> problems_;
  std::unordered_set<std::string> missing_;
  std::unordered_set<std::string_view> used_;  // names that lie in the shards
};

}  // namespace

Result<ConversionPlan> plan_conversion(const ParsedConfig& config, const CheckpointFolder& checkpoint,
                                       const std::string& weights, std::uint32_t chunk_bytes) {
  return Planner(config, checkpoint, weights).run(chunk_bytes);
}

}  // namespace colibri
