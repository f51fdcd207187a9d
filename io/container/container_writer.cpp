// The files of a container, written through the partial folder.
#include "io/container/container_writer.hpp"

#include <sys/stat.h>

#include <limits>

#include "io/container/container_files.hpp"
#include "io/container/container_format.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSpaceReserve = 16U << 20;  // folders, spec, manifest
constexpr std::uint64_t kBlockBytes = 512;          // unit of st_blocks, whatever the file system's own

// Disk space that a file already takes; 0 when it does not exist.
std::uint64_t allocated_bytes(const fs::path& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_blocks) * kBlockBytes : 0;
}

}  // namespace

Result<ContainerWriter> ContainerWriter::open(const fs::path& folder, ContainerPlan plan, bool force,
                                              const OutputFolder::Log& log) {
  COLIBRI_RETURN_IF_ERROR(validate(plan.spec));
  const std::string spec_text = model_spec_to_json(plan.spec);
  const std::string identity =
      "model_spec.json " + to_hex(sha256(std::as_bytes(std::span(spec_text)))) + "\n" + plan.identity;
  COLIBRI_ASSIGN_OR_RETURN(
      const ExpertLayout layout,
      expert_layout(plan.spec.weight_dtype, plan.spec.hidden_size, plan.spec.intermediate_size));
  COLIBRI_ASSIGN_OR_RETURN(const PageTableShape pages, page_table_shape(plan.spec, layout));
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t payload_bytes, place_dense_tensors(plan.tensors));
  COLIBRI_ASSIGN_OR_RETURN(OutputFolder output, OutputFolder::open(folder, identity, force, log));

  ContainerWriter writer(std::move(plan), std::move(output));
  writer.spec_text_ = spec_text;
  writer.layout_ = layout;
  writer.pages_ = pages;
  writer.payload_bytes_ = payload_bytes;
  for (std::uint32_t layer = 0; layer < writer.plan_.spec.num_layers(); ++layer) {
    if (writer.plan_.spec.layers[layer].moe) writer.moe_layers_.push_back(layer);
  }
  if (writer.complete()) return writer;
  if (Status opened = writer.open_files(folder); !opened) {
    if (!writer.resumed()) writer.discard();
    return opened;
  }
  return writer;
}

Status ContainerWriter::open_files(const fs::path& folder) {
  const Sha256Digest digest = sha256(std::as_bytes(std::span(spec_text_)));
  const std::vector<std::byte> tensor_table = encode_tensor_table(plan_.tensors, payload_bytes_);
  const std::uint64_t tensor_table_bytes =
      tensor_table.size() + (plan_.tensors.size() + 1) * sizeof(std::uint64_t);  // hashes and the table's own
  model_length_ = kPageBytes + payload_bytes_ + tensor_table_bytes;
  COLIBRI_RETURN_IF_ERROR(check_free_space(folder));

  const BinaryHeader model_header{BinaryKind::model, digest, kPageBytes + payload_bytes_, tensor_table_bytes,
                                  model_length_};
  COLIBRI_ASSIGN_OR_RETURN(model_,
                           BinaryWriter::open(output_.partial() / kModelFile, model_header, tensor_table));
  const BinaryHeader experts_header{BinaryKind::experts, digest, pages_.table_offset, pages_.table_bytes,
                                    pages_.file_length};
  COLIBRI_ASSIGN_OR_RETURN(experts_, BinaryWriter::open(output_.partial() / kExpertsFile, experts_header,
                                                        encode_page_table(plan_.spec, layout_, pages_)));
  return Status::ok();
}

Status ContainerWriter::check_free_space(const fs::path& folder) const {
  std::uint64_t needed = kSpaceReserve;
  for (const std::uint64_t bytes : {model_length_, pages_.file_length}) {
    needed = checked_add(needed, bytes).value_or(std::numeric_limits<std::uint64_t>::max());
  }
  for (const fs::path& copy : plan_.copies) {
    std::error_code ignored;
    const std::uint64_t bytes = fs::file_size(copy, ignored);
    if (!ignored) needed = checked_add(needed, bytes).value_or(std::numeric_limits<std::uint64_t>::max());
  }
  const std::uint64_t taken =
      allocated_bytes(output_.partial() / kModelFile) + allocated_bytes(output_.partial() / kExpertsFile);
  needed -= std::min(needed, taken);
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= needed) return Status::ok();  // unknown: writing will tell
  return {ErrorCode::io, "not enough free space for the model: " + folder.string() + ", expected " +
                             std::to_string(needed) + " bytes, found " + std::to_string(space.available) +
                             "; free some space or choose another folder"};
}

std::uint64_t ContainerWriter::bytes_done() const noexcept {
  return complete() ? total_bytes() : model_->position() + experts_->position();
}

Status ContainerWriter::write_tensor(const Produce& produce) {
  const DenseTensor& tensor = plan_.tensors[next_tensor_];
  const BinaryUnit unit{kPageBytes + tensor.offset, tensor.bytes, tensor.bytes, next_tensor_};
  const Result<std::vector<std::uint64_t>> hashes = model_->write_unit(unit, produce);
  if (!hashes) return Status(hashes.status()).at("tensor " + tensor.name);
  ++next_tensor_;
  return Status::ok();
}

Status ContainerWriter::write_record(const Produce& produce) {
  const std::uint32_t layer = moe_layers_[next_record_ / plan_.spec.num_experts];
  const auto expert = static_cast<std::uint32_t>(next_record_ % plan_.spec.num_experts);
  const BinaryUnit unit{kPageBytes + next_record_ * layout_.record_bytes, layout_.payload_bytes,
                        plan_.spec.expert_chunk_size, next_record_ * pages_.chunks_per_record};
  const Result<std::vector<std::uint64_t>> hashes = experts_->write_unit(unit, produce);
  if (!hashes) {
    return Status(hashes.status())
        .at("layer " + std::to_string(layer) + ", expert " + std::to_string(expert));
  }
  tree_.add_record(layer, expert, *hashes);
  ++next_record_;
  return Status::ok();
}

Status ContainerWriter::write_side_files() {
  if (next_tensor_ != plan_.tensors.size() || next_record_ != pages_.records) {
    return {ErrorCode::internal, "a container is finished before all of its parts are written"};
  }
  Manifest manifest;
  manifest.expert_records = tree_.records();
  manifest.chunk_tree_root = tree_.root();
  COLIBRI_RETURN_IF_ERROR(write_text_file(output_.partial() / kSpecFile, spec_text_));
  manifest.files.push_back({kSpecFile, spec_text_.size(), sha256(std::as_bytes(std::span(spec_text_)))});
  COLIBRI_ASSIGN_OR_RETURN(const Sha256Digest model_digest, model_->finish());
  manifest.files.push_back({kModelFile, model_length_, model_digest});
  COLIBRI_ASSIGN_OR_RETURN(const Sha256Digest experts_digest, experts_->finish());
  manifest.files.push_back({kExpertsFile, pages_.file_length, experts_digest});
  for (const std::string_view name : kCopiedFiles) {
    for (const fs::path& source : plan_.copies) {
      if (source.filename() != name) continue;
      COLIBRI_ASSIGN_OR_RETURN(const std::string text, read_text_file(source, kMaxCopiedBytes));
      COLIBRI_RETURN_IF_ERROR(write_text_file(output_.partial() / name, text));
      manifest.files.push_back({std::string(name), text.size(), sha256(std::as_bytes(std::span(text)))});
    }
  }
  COLIBRI_RETURN_IF_ERROR(write_text_file(output_.partial() / kManifestFile, manifest_to_json(manifest)));
  std::vector<std::string> names{kManifestFile};
  for (const ManifestFile& file : manifest.files) names.push_back(file.name);
  return output_.mark_complete(std::move(names));
}

Status ContainerWriter::finish() {
  if (!complete()) COLIBRI_RETURN_IF_ERROR(write_side_files());
  return output_.publish();
}

}  // namespace colibri
