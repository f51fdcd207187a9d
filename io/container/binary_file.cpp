// Opening the .bin files of a container.
#include "io/container/binary_file.hpp"

#include "io/container/container_files.hpp"

namespace colibri {

Result<BinaryFile> open_binary(const std::filesystem::path& path, BinaryKind kind,
                               const Sha256Digest& spec_digest) {
  COLIBRI_ASSIGN_OR_RETURN(FileHandle file, FileHandle::open_for_reading(path));
  if (file.size() < kPageBytes) {
    return file_error(ErrorCode::corrupt, "file is too short for a header", path, file.size(),
                      ", expected at least " + std::to_string(kPageBytes) + " bytes, found " +
                          std::to_string(file.size()) + "; copy or convert it again");
  }
  std::array<std::byte, kPageBytes> page;
  COLIBRI_RETURN_IF_ERROR(file.read_at(0, page));
  COLIBRI_ASSIGN_OR_RETURN(const BinaryHeader header, decode_header(page, kind, file.size(), path));
  if (header.spec_digest != spec_digest) {
    return file_error(ErrorCode::corrupt, "the file belongs to another model_spec.json", path, kSpecDigestAt,
                      ", expected digest " + to_hex(spec_digest) + ", found " + to_hex(header.spec_digest) +
                          "; files of two conversions were mixed, or model_spec.json was changed");
  }
  // The table ends where the file ends (checked), so this allocation is bounded by the file's size.
  std::vector<std::byte> table(header.table_bytes);
  COLIBRI_RETURN_IF_ERROR(file.read_at(header.table_offset, table));
  return BinaryFile{std::move(file), header, std::move(table)};
}

}  // namespace colibri
