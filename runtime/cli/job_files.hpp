// The files of one run of the program: none that is written may be another one of them, or lie in
// the model's folder. Looked at before anything is written, because a slip of a flag would
// otherwise destroy a user's data without a word.
#pragma once

#include <span>
#include <string>

#include "io/status.hpp"

namespace colibri::cli {

struct JobFile {
  std::string role;  // "the requests", "--profile"
  std::string path;  // empty and "-" are no files
  bool written = false;
};

Status check_job_files(const std::string& model_folder, std::span<const JobFile> files);

}  // namespace colibri::cli
