// The files of a container, written through the partial folder.
#include "io/container/container_writer.hpp"

#include <algorithm>

#include "io/container/container_files.hpp"
#include "io/container/container_format.hpp"
#include "io/container/free_space.hpp"
#include "io/container/stripe_targets.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

// All expert files of the model: experts.bin, or the parts.
Result<std::vector<PageTableShape>> shapes_of(const ModelSpec& spec, const ExpertLayout& layout,
                                              const PageTableShape& pages) {
  if (pages.files == 1) return std::vector{pages};
  std::vector<PageTableShape> shapes;
  for (std::uint32_t part = 0; part < pages.files; ++part) {
    COLIBRI_ASSIGN_OR_RETURN(PageTableShape shape, part_table_shape(spec, layout, pages.files, part));
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace

Result<ContainerWriter> ContainerWriter::open(const fs::path& folder, ContainerPlan plan, bool force,
                                              const OutputFolder::Log& log) {
  COLIBRI_RETURN_IF_ERROR(validate(plan.spec));
  const std::string spec_text = model_spec_to_json(plan.spec);
  std::string identity =
      "model_spec.json " + to_hex(sha256(std::as_bytes(std::span(spec_text)))) + "\n" + plan.identity;
  COLIBRI_ASSIGN_OR_RETURN(
      const ExpertLayout layout,
      expert_layout(plan.spec.weight_dtype, plan.spec.hidden_size, plan.spec.intermediate_size));
  const auto files = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(plan.stripe.size()));
  std::vector<OutsideFile> parts;
  if (!plan.stripe.empty()) {
    COLIBRI_ASSIGN_OR_RETURN(const std::vector<fs::path> targets,
                             stripe_targets(folder, plan.stripe, plan.spec.num_experts));
    for (const fs::path& target : targets) {
      parts.push_back({expert_part_name(static_cast<std::uint32_t>(parts.size())), target});
      identity += "part " + target.string() + "\n";
    }
  }
  COLIBRI_ASSIGN_OR_RETURN(const PageTableShape pages, page_table_shape(plan.spec, layout, files));
  COLIBRI_ASSIGN_OR_RETURN(std::vector<PageTableShape> shapes, shapes_of(plan.spec, layout, pages));
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t payload_bytes, place_dense_tensors(plan.tensors));
  COLIBRI_ASSIGN_OR_RETURN(OutputFolder output, OutputFolder::open(folder, identity, force, log, parts));

  ContainerWriter writer(std::move(plan), std::move(output));
  writer.spec_text_ = spec_text;
  writer.layout_ = layout;
  writer.pages_ = pages;
  writer.parts_ = std::move(parts);
  writer.expert_shapes_ = std::move(shapes);
  for (const PageTableShape& shape : writer.expert_shapes_) writer.expert_file_bytes_ += shape.file_length;
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
  COLIBRI_RETURN_IF_ERROR(check_space(folder));

  const BinaryHeader model_header{BinaryKind::model, digest, kPageBytes + payload_bytes_, tensor_table_bytes,
                                  model_length_};
  COLIBRI_ASSIGN_OR_RETURN(model_,
                           BinaryWriter::open(output_.partial() / kModelFile, model_header, tensor_table));
  for (const PageTableShape& shape : expert_shapes_) {
    const BinaryKind kind = shape.part ? BinaryKind::expert_part : BinaryKind::experts;
    const BinaryHeader header{
        kind, digest, shape.table_offset, shape.table_bytes, shape.file_length, shape.part.value_or(0)};
    const fs::path path = output_.partial() / (shape.part ? expert_part_name(*shape.part) : kExpertsFile);
    COLIBRI_ASSIGN_OR_RETURN(BinaryWriter writer,
                             BinaryWriter::open(path, header, encode_page_table(plan_.spec, layout_, shape)));
    experts_.push_back(std::move(writer));
  }
  return Status::ok();
}

Status ContainerWriter::check_space(const fs::path& folder) const {
  FreeSpace space;
  space.need(folder, kSpaceReserve);
  space.need(folder, model_length_, output_.partial() / kModelFile);
  for (const PageTableShape& shape : expert_shapes_) {
    if (!shape.part) space.need(folder, shape.file_length, output_.partial() / kExpertsFile);
    if (shape.part) {
      space.need(parts_[*shape.part].target.parent_path(), shape.file_length,
                 output_.partial() / expert_part_name(*shape.part));
    }
  }
  if (pages_.files > 1) space.need(folder, pages_.file_length);
  for (const fs::path& copy : plan_.copies) {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(copy, error);
    if (!error) space.need(folder, bytes);
  }
  return space.check();
}

std::uint64_t ContainerWriter::bytes_done() const noexcept {
  if (complete()) return total_bytes();
  std::uint64_t bytes = model_->position();
  for (const BinaryWriter& writer : experts_) bytes += writer.position();
  return bytes;
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
  const auto ordinal = static_cast<std::uint32_t>(next_record_ / plan_.spec.num_experts);
  const std::uint32_t layer = moe_layers_[ordinal];
  const auto expert = static_cast<std::uint32_t>(next_record_ % plan_.spec.num_experts);
  const RecordPlace place = record_place(plan_.spec, layout_, pages_.files, ordinal, expert);
  const std::uint64_t index_in_file = (place.offset - kPageBytes) / layout_.record_bytes;
  const BinaryUnit unit{place.offset, layout_.payload_bytes, plan_.spec.expert_chunk_size,
                        index_in_file * pages_.chunks_per_record};
  const Result<std::vector<std::uint64_t>> hashes = experts_[place.file].write_unit(unit, produce);
  if (!hashes) {
    return Status(hashes.status())
        .at("layer " + std::to_string(layer) + ", expert " + std::to_string(expert));
  }
  tree_.add_record(layer, expert, *hashes);
  if (pages_.files > 1) chunk_hashes_.insert(chunk_hashes_.end(), hashes->begin(), hashes->end());
  ++next_record_;
  return Status::ok();
}

// experts.bin, and the parts when there are any.
Status ContainerWriter::finish_experts(Manifest& manifest) {
  if (pages_.files == 1) {
    COLIBRI_ASSIGN_OR_RETURN(const Sha256Digest digest, experts_.front().finish());
    manifest.files.push_back({kExpertsFile, pages_.file_length, digest});
    return Status::ok();
  }
  const Sha256Digest spec_digest = sha256(std::as_bytes(std::span(spec_text_)));
  const auto header = encode_header(
      {BinaryKind::experts, spec_digest, pages_.table_offset, pages_.table_bytes, pages_.file_length});
  const std::vector<std::byte> table = encode_whole_table(plan_.spec, layout_, pages_, chunk_hashes_);
  std::string text(reinterpret_cast<const char*>(header.data()), header.size());
  text.append(reinterpret_cast<const char*>(table.data()), table.size());
  COLIBRI_RETURN_IF_ERROR(write_text_file(output_.partial() / kExpertsFile, text));
  manifest.files.push_back({kExpertsFile, text.size(), sha256(std::as_bytes(std::span(text)))});
  for (std::size_t part = 0; part < experts_.size(); ++part) {
    COLIBRI_ASSIGN_OR_RETURN(const Sha256Digest digest, experts_[part].finish());
    manifest.files.push_back({parts_[part].name, expert_shapes_[part].file_length, digest});
  }
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
  COLIBRI_RETURN_IF_ERROR(finish_experts(manifest));
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
