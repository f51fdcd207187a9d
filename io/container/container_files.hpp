// The files of a container folder: their names, and what is wrong with a folder that is none.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"

namespace colibri {

inline constexpr char kSpecFile[] = "model_spec.json";
inline constexpr char kModelFile[] = "model.bin";
inline constexpr char kExpertsFile[] = "experts.bin";
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kTokenizerFile[] = "tokenizer.json";
// Copied from the checkpoint when they are there.
inline constexpr std::array<std::string_view, 3> kCopiedFiles = {kTokenizerFile, "tokenizer_config.json",
                                                                 "generation_config.json"};
// Where an unfinished conversion and an unfinished copy of a model lie, in the folder that they make.
inline constexpr char kConversionFolder[] = "convert.partial";
inline constexpr char kCopyFolder[] = "stage.partial";
// Drives that the experts of a model may be striped over.
inline constexpr std::uint32_t kMaxExpertFiles = 32;

// "experts.0.bin": in the container folder, a link to a part of the experts.
std::string expert_part_name(std::uint32_t part);
// Every file that a container may have besides its manifest, in the manifest's order.
std::vector<std::string> listed_files();
bool is_listed_file(std::string_view name);
// "LINK -> TARGET" for a link, else the path: how errors name a file that may lie elsewhere.
std::string with_link_target(const std::filesystem::path& path);
// "WHAT: FILE" and the rest of the sentence; tells the file and the offset in it as data, too.
Status file_error(ErrorCode code, const std::string& what, const std::filesystem::path& file,
                  std::uint64_t offset, const std::string& rest);

inline constexpr std::uint64_t kMaxSpecBytes = 64U << 20;
inline constexpr std::uint64_t kMaxManifestBytes = 1U << 20;
// tokenizer.json of a large vocabulary has about 20 MB.
inline constexpr std::uint64_t kMaxCopiedBytes = 512U << 20;

// Not ok when `folder` is no folder or has no model_spec.json; says what it looks like instead.
Status check_container_folder(const std::filesystem::path& folder);

}  // namespace colibri
