// ContainerWriter: writes a container, tensor by tensor and record by record.
//
// The spec and the formats of all tensors are fixed at open; with them every offset is known.
// Tensors are written in the order of dense_slots(spec), then records in (layer, expert) order.
// See output_folder.hpp for what happens when a run is interrupted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/container/binary_writer.hpp"
#include "io/container/container.hpp"
#include "io/container/hash_tree.hpp"
#include "io/container/manifest.hpp"
#include "io/container/output_folder.hpp"
#include "io/status.hpp"

namespace colibri {

struct ContainerPlan {
  ModelSpec spec;
  std::vector<DenseTensor> tensors;  // as dense_slots(spec), with formats; offsets are set by the writer
  std::vector<std::filesystem::path> copies;  // tokenizer files, copied under their own names
  std::string identity;                       // of the source: a changed checkpoint must not be mixed
  std::vector<std::filesystem::path> stripe;  // directories for the parts of the experts; empty: experts.bin
};

class ContainerWriter {
 public:
  using Produce = BinaryWriter::Produce;

  static Result<ContainerWriter> open(const std::filesystem::path& folder, ContainerPlan plan, bool force,
                                      const OutputFolder::Log& log);

  const ExpertLayout& layout() const noexcept { return layout_; }
  const std::vector<DenseTensor>& tensors() const noexcept { return plan_.tensors; }
  std::uint64_t dense_bytes() const noexcept { return payload_bytes_; }
  std::uint64_t expert_bytes() const noexcept { return pages_.records * layout_.record_bytes; }
  std::uint64_t total_bytes() const noexcept { return model_length_ + expert_file_bytes_; }
  std::uint64_t bytes_done() const noexcept;
  // A former run left finished parts that are kept, or everything.
  bool resumed() const noexcept { return output_.resumed(); }
  // Nothing is left to write; finish() may be called at once.
  bool complete() const noexcept { return output_.complete(); }

  // In order, each once.
  Status write_tensor(const Produce& produce);
  Status write_record(const Produce& produce);
  // Writes manifest and spec, copies the tokenizer and makes the container valid.
  Status finish();
  // Removes what was written; for failures that another run would meet again.
  void discard() noexcept { output_.discard(); }

 private:
  ContainerWriter(ContainerPlan plan, OutputFolder output)
      : plan_(std::move(plan)), output_(std::move(output)) {}
  Status open_files(const std::filesystem::path& folder);
  Status check_space(const std::filesystem::path& folder) const;
  Status write_side_files();
  Status finish_experts(Manifest& manifest);

  ContainerPlan plan_;
  OutputFolder output_;
  std::string spec_text_;
  ExpertLayout layout_;
  PageTableShape pages_;
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t model_length_ = 0;
  std::optional<BinaryWriter> model_;
  std::vector<OutsideFile> parts_;             // of a striped model
  std::vector<PageTableShape> expert_shapes_;  // of experts.bin, or of each part
  std::uint64_t expert_file_bytes_ = 0;
  std::vector<BinaryWriter> experts_;        // one per shape
  std::vector<std::uint64_t> chunk_hashes_;  // of all records, for the table of a striped model
  std::size_t next_tensor_ = 0;
  std::uint64_t next_record_ = 0;
  std::vector<std::uint32_t> moe_layers_;
  HashTree tree_;
};

}  // namespace colibri
