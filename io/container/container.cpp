// Opening a container and reading its dense part.
#include "io/container/container.hpp"

#include <new>
#include <unordered_map>

#include "io/container/binary_file.hpp"
#include "io/container/checksum.hpp"
#include "io/container/container_files.hpp"
#include "io/container/container_format.hpp"
#include "io/container/dense_layout.hpp"
#include "io/container/expert_parts.hpp"

namespace colibri {
namespace {

// Bytes that are read before they are hashed: while they are still in a cache.
constexpr std::uint64_t kReadPiece = 4U << 20;

class OpenContainer final : public Container {
 public:
  static Result<std::shared_ptr<const Container>> open(const std::filesystem::path& folder);

  OpenContainer(std::filesystem::path folder, ModelSpec spec, ExpertLayout layout, FileHandle model,
                TensorTable dense, std::vector<std::uint64_t> chunk_hashes, const PageTableShape& pages,
                std::string digest)
      : folder_(std::move(folder)),
        spec_(std::move(spec)),
        layout_(layout),
        model_(std::move(model)),
        dense_(std::move(dense)),
        chunk_hashes_(std::move(chunk_hashes)),
        pages_(pages),
        digest_(std::move(digest)),
        expert_files_(expert_file_paths(folder_, pages_.files)) {
    for (const DenseTensor& tensor : dense_.tensors) by_name_.emplace(tensor.name, &tensor);
    moe_ordinals_.reserve(spec_.num_layers());
    for (std::uint32_t layer = 0; layer < spec_.num_layers(); ++layer) {
      moe_ordinals_.push_back(spec_.moe_ordinal(layer));
    }
  }

  const std::filesystem::path& folder() const noexcept override { return folder_; }
  const ModelSpec& spec() const noexcept override { return spec_; }
  const ExpertLayout& layout() const noexcept override { return layout_; }
  std::span<const DenseTensor> dense_tensors() const noexcept override { return dense_.tensors; }
  const DenseTensor* find(std::string_view name) const noexcept override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  std::uint64_t dense_bytes() const noexcept override { return dense_.payload_bytes; }
  Status read_dense(std::span<std::byte> memory, const std::function<bool()>& stopping) const override;
  std::span<const std::filesystem::path> expert_files() const noexcept override { return expert_files_; }
  ExpertRecord record(std::uint32_t layer, std::uint32_t expert) const noexcept override {
    const std::uint64_t index = std::uint64_t{moe_ordinals_[layer]} * spec_.num_experts + expert;
    const RecordPlace place = record_place(spec_, layout_, pages_.files, moe_ordinals_[layer], expert);
    return {place.file, place.offset, layout_.record_bytes,
            std::span(chunk_hashes_).subspan(index * pages_.chunks_per_record, pages_.chunks_per_record)};
  }
  std::uint64_t expert_bytes() const noexcept override { return pages_.records * layout_.record_bytes; }
  std::uint64_t page_table_bytes() const noexcept override {
    return chunk_hashes_.size() * sizeof(std::uint64_t);
  }
  std::filesystem::path tokenizer_path() const override {
    std::filesystem::path path = folder_ / kTokenizerFile;
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored) ? path : std::filesystem::path();
  }
  const std::string& digest() const noexcept override { return digest_; }

 private:
  std::filesystem::path folder_;
  ModelSpec spec_;
  ExpertLayout layout_;
  FileHandle model_;
  TensorTable dense_;
  std::vector<std::uint64_t> chunk_hashes_;  // chunks_per_record for each record
  PageTableShape pages_;
  std::string digest_;
  std::vector<std::filesystem::path> expert_files_;
  std::unordered_map<std::string_view, const DenseTensor*> by_name_;  // views into dense_
  std::vector<std::uint32_t> moe_ordinals_;                           // [layers]
};

Status OpenContainer::read_dense(std::span<std::byte> memory, const std::function<bool()>& stopping) const {
  if (memory.size() != dense_.payload_bytes) {
    return {ErrorCode::internal, "wrong memory for the dense weights, expected " +
                                     std::to_string(dense_.payload_bytes) + " bytes, found " +
                                     std::to_string(memory.size())};
  }
  Xxh3Stream hash;
  std::uint64_t position = 0;
  for (const DenseTensor& tensor : dense_.tensors) {
    const std::uint64_t end = tensor.offset + tensor.bytes;
    hash.reset();
    while (position < end) {
      if (stopping && stopping()) return {ErrorCode::cancelled, "reading the dense weights was stopped"};
      const std::uint64_t begin = std::max(position, tensor.offset);
      const std::uint64_t next = std::min(end, begin + kReadPiece);
      // From `position`, not `begin`: the few bytes between two tensors come along.
      COLIBRI_RETURN_IF_ERROR(
          model_.read_at(kPageBytes + position, memory.subspan(position, next - position)));
      hash.update(memory.subspan(begin, next - begin));
      position = next;
    }
    COLIBRI_RETURN_IF_ERROR(check_tensor_hash(tensor, hash.digest(), model_.path()));
  }
  return model_.read_at(kPageBytes + position, memory.subspan(position));
}

Result<std::shared_ptr<const Container>> OpenContainer::open(const std::filesystem::path& folder) {
  COLIBRI_RETURN_IF_ERROR(check_container_folder(folder));
  const std::filesystem::path spec_path = folder / kSpecFile;
  COLIBRI_ASSIGN_OR_RETURN(const std::string spec_text, read_text_file(spec_path, kMaxSpecBytes));
  const Sha256Digest digest = sha256(std::as_bytes(std::span(spec_text)));
  Result<ModelSpec> parsed = model_spec_from_json(spec_text);
  if (!parsed) return std::move(parsed).status().at("file " + spec_path.string()).in_file(spec_path.string());
  ModelSpec spec = std::move(parsed).value();
  COLIBRI_ASSIGN_OR_RETURN(const ExpertLayout layout,
                           expert_layout(spec.weight_dtype, spec.hidden_size, spec.intermediate_size));

  const std::filesystem::path model_path = folder / kModelFile;
  COLIBRI_ASSIGN_OR_RETURN(BinaryFile model, open_binary(model_path, BinaryKind::model, digest));
  COLIBRI_ASSIGN_OR_RETURN(
      TensorTable dense,
      decode_tensor_table(model.table, model.header.table_offset - kPageBytes, model_path));
  COLIBRI_RETURN_IF_ERROR(check_dense_tensors(spec, dense.tensors, model_path));

  const std::filesystem::path experts_path = folder / kExpertsFile;
  COLIBRI_ASSIGN_OR_RETURN(const BinaryFile experts, open_binary(experts_path, BinaryKind::experts, digest));
  COLIBRI_ASSIGN_OR_RETURN(const PageTableShape pages,
                           page_table_shape(spec, layout, expert_file_count(experts.table, spec)));
  if (experts.header.table_offset != pages.table_offset) {
    return file_error(ErrorCode::corrupt, "the expert records have the wrong size", experts_path,
                      Status::kNoOffset,
                      ", expected the page table at " + std::to_string(pages.table_offset) + ", found " +
                          std::to_string(experts.header.table_offset) + "; convert the model again");
  }
  COLIBRI_ASSIGN_OR_RETURN(std::vector<std::uint64_t> hashes,
                           decode_page_table(experts.table, spec, layout, pages, experts_path));
  if (pages.files > 1) {
    COLIBRI_RETURN_IF_ERROR(check_expert_parts(folder, spec, layout, pages, digest, hashes));
  }
  // The tables hold the checksums of all weights, so this names the weights too, not only their shapes.
  Sha256Stream identity;
  identity.update(std::as_bytes(std::span(spec_text)));
  identity.update(model.table);
  identity.update(experts.table);
  return std::shared_ptr<const Container>(
      std::make_shared<OpenContainer>(folder, std::move(spec), layout, std::move(model.file),
                                      std::move(dense), std::move(hashes), pages, to_hex(identity.digest())));
}

}  // namespace

Result<std::shared_ptr<const Container>> Container::open(const std::filesystem::path& folder) {
  try {
    return OpenContainer::open(folder);
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory, "no memory for the tables of the container: " + folder.string());
  } catch (const std::exception& error) {
    return Status(ErrorCode::internal, "cannot open container: " + folder.string() + ": " + error.what());
  }
}

}  // namespace colibri
