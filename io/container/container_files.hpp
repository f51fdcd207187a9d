// The files of a container folder: their names, and what is wrong with a folder that is none.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>

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
// Every file that the manifest may list, in its order.
inline constexpr std::array<std::string_view, 6> kListedFiles = {
    kSpecFile, kModelFile, kExpertsFile, kTokenizerFile, "tokenizer_config.json", "generation_config.json"};

inline constexpr std::uint64_t kMaxSpecBytes = 64U << 20;
inline constexpr std::uint64_t kMaxManifestBytes = 1U << 20;
// tokenizer.json of a large vocabulary has about 20 MB.
inline constexpr std::uint64_t kMaxCopiedBytes = 512U << 20;

// Not ok when `folder` is no folder or has no model_spec.json; says what it looks like instead.
Status check_container_folder(const std::filesystem::path& folder);

}  // namespace colibri
