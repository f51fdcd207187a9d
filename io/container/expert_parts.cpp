// Checking the parts of a striped model against its page table.
#include "io/container/expert_parts.hpp"

#include <algorithm>

#include "io/container/binary_file.hpp"
#include "io/container/container_files.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

std::string part_text(std::uint32_t part, const PageTableShape& pages) {
  return "part " + std::to_string(part) + " of " + std::to_string(pages.files);
}

// The part's hashes are those of experts.bin for its records: it holds the same weights.
bool has_hashes_of(std::span<const std::uint64_t> part_hashes, const ModelSpec& spec,
                   const PageTableShape& pages, std::uint32_t part, std::span<const std::uint64_t> all) {
  const std::uint64_t chunks = pages.chunks_per_record;
  std::uint64_t next = 0;
  for (std::uint64_t layer = 0; layer < spec.num_moe_layers(); ++layer) {
    for (std::uint64_t expert = part; expert < spec.num_experts; expert += pages.files, ++next) {
      const auto own = part_hashes.subspan(next * chunks, chunks);
      const auto expected = all.subspan((layer * spec.num_experts + expert) * chunks, chunks);
      if (!std::equal(own.begin(), own.end(), expected.begin())) return false;
    }
  }
  return true;
}

Status check_part(const fs::path& link, const ModelSpec& spec, const ExpertLayout& layout,
                  const PageTableShape& pages, std::uint32_t part, const Sha256Digest& spec_digest,
                  std::span<const std::uint64_t> chunk_hashes) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(link, ignored))) {
    return file_error(ErrorCode::not_found, "a part of the experts is missing", link, Status::kNoOffset,
                      ", expected a link to " + part_text(part, pages) +
                          "; link it to where the part lies: ln -s FILE " + link.string());
  }
  COLIBRI_ASSIGN_OR_RETURN(const BinaryFile file, open_binary(link, BinaryKind::expert_part, spec_digest));
  const auto wrong = [&link](const std::string& what, const std::string& rest) {
    return file_error(ErrorCode::corrupt, "a part of the experts " + what, link, Status::kNoOffset, rest);
  };
  if (file.header.part != part) {
    return wrong("is in the place of another", ", expected " + part_text(part, pages) + ", found part " +
                                                   std::to_string(file.header.part) +
                                                   "; point the links to the right files");
  }
  // 1 is what a damaged table gives; decoding it says more.
  if (const std::uint32_t files = expert_file_count(file.table, spec); files > 1 && files != pages.files) {
    return wrong("is of a model with another number of parts", ", expected " + part_text(part, pages) +
                                                                   ", found one of " + std::to_string(files) +
                                                                   "; point the link to the right file");
  }
  COLIBRI_ASSIGN_OR_RETURN(const PageTableShape shape, part_table_shape(spec, layout, pages.files, part));
  COLIBRI_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> hashes,
                           decode_page_table(file.table, spec, layout, shape, link));
  if (file.header.table_offset != shape.table_offset) {
    return wrong("has the wrong size", ", expected the page table at " + std::to_string(shape.table_offset) +
                                           ", found " + std::to_string(file.header.table_offset) +
                                           "; convert the model again");
  }
  if (has_hashes_of(hashes, spec, pages, part, chunk_hashes)) return Status::ok();
  return wrong("holds other weights than experts.bin says",
               ", expected " + part_text(part, pages) +
                   " of this model, found one of another conversion; point the link to the "
                   "right file, or convert the model again");
}

}  // namespace

std::vector<fs::path> expert_file_paths(const fs::path& folder, std::uint32_t files) {
  if (files == 1) return {folder / kExpertsFile};
  std::vector<fs::path> paths;
  for (std::uint32_t part = 0; part < files; ++part) paths.push_back(folder / expert_part_name(part));
  return paths;
}

Status check_expert_parts(const fs::path& folder, const ModelSpec& spec, const ExpertLayout& layout,
                          const PageTableShape& pages, const Sha256Digest& spec_digest,
                          std::span<const std::uint64_t> chunk_hashes) {
  for (std::uint32_t part = 0; part < pages.files; ++part) {
    COLIBRI_RETURN_IF_ERROR(
        check_part(folder / expert_part_name(part), spec, layout, pages, part, spec_digest, chunk_hashes));
  }
  return Status::ok();
}

}  // namespace colibri
