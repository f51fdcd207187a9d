// State of a conversion on disk.
#include "io/container/output_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <utility>

#include "io/container/container_files.hpp"
#include "io/container/file_handle.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

constexpr char kPartialFolder[] = "convert.partial";
constexpr char kIdentityFile[] = "identity";
constexpr char kCompleteFile[] = "complete";
constexpr std::uint64_t kMaxStateBytes = 64U << 20;
constexpr std::size_t kNamesInMessage = 5;

Status io_failure(const std::string& what, const fs::path& path, const std::error_code& error) {
  return {ErrorCode::io, what + ": " + path.string() + ": " + error.message()};
}

// What lies in the folder besides the partial conversion, sorted by name.
Result<std::vector<std::string>> other_content(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() != kPartialFolder) names.push_back(entry->path().filename().string());
  }
  if (error) return io_failure("cannot list folder", folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

Status refuse_content(const fs::path& folder, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), kSpecFile) != names.end()) {
    return {ErrorCode::invalid_input, "output folder holds a converted model: " + folder.string() +
                                          "; choose another folder, or use --force to replace it"};
  }
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesInMessage); ++i)
    list += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesInMessage)
    list += " and " + std::to_string(names.size() - kNamesInMessage) + " more";
  return {ErrorCode::invalid_input, "output folder is not empty: " + folder.string() + " holds " + list +
                                        "; choose another folder, or use --force to write into it"};
}

bool is_container_file(const std::string& name) {
  return name == kManifestFile ||
         std::find(kListedFiles.begin(), kListedFiles.end(), name) != kListedFiles.end();
}

// The text of a state file, or nothing when it does not exist.
Result<std::string> read_state(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::string();
  return read_text_file(path, kMaxStateBytes);
}

}  // namespace

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      partial_(std::move(other.partial_)),
      files_(std::move(other.files_)),
      resumed_(other.resumed_),
      created_(other.created_),
      lock_(std::exchange(other.lock_, -1)) {}

OutputFolder& OutputFolder::operator=(OutputFolder&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(partial_, other.partial_);
  std::swap(files_, other.files_);
  std::swap(resumed_, other.resumed_);
  std::swap(created_, other.created_);
  std::swap(lock_, other.lock_);
  return *this;
}

OutputFolder::~OutputFolder() {
  if (lock_ >= 0) ::close(lock_);
}

Status OutputFolder::lock() {
  lock_ = ::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) {
    return io_failure("cannot open folder", partial_, std::error_code(errno, std::generic_category()));
  }
  // File systems without locks (ENOLCK, EOPNOTSUPP) are written without one.
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return Status::ok();
  return {ErrorCode::invalid_input, "another conversion is writing to this folder: " + folder_.string() +
                                        "; wait for it, or choose another folder"};
}

Result<OutputFolder> OutputFolder::open(const fs::path& folder, const std::string& identity, bool force,
                                        const Log& log) {
  OutputFolder output(folder, folder / kPartialFolder);
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    return Status(ErrorCode::invalid_input, "output is not a folder: " + folder.string());
  }
  output.created_ = !fs::exists(folder, error);
  // Whatever is refused must be refused before the first folder is made.
  if (!output.created_ && !fs::exists(output.partial_ / kIdentityFile, error)) {
    COLIBRI_ASSIGN_OR_RETURN(const std::vector<std::string> names, other_content(folder));
    if (!names.empty() && !force) return refuse_content(folder, names);
  }
  fs::create_directories(output.partial_, error);
  if (error) return io_failure("cannot create folder", output.partial_, error);
  COLIBRI_RETURN_IF_ERROR(output.lock());
  COLIBRI_RETURN_IF_ERROR(output.take_up(identity, force, log));
  return output;
}

Status OutputFolder::take_up(const std::string& identity, bool force, const Log& log) {
  COLIBRI_ASSIGN_OR_RETURN(const std::string stored, read_state(partial_ / kIdentityFile));
  if (stored == identity) {
    resumed_ = true;
    COLIBRI_ASSIGN_OR_RETURN(const std::string complete, read_state(partial_ / kCompleteFile));
    std::istringstream lines(complete);
    for (std::string name; std::getline(lines, name);) {
      if (is_container_file(name)) files_.push_back(name);
    }
    if (!files_.empty()) return Status::ok();  // what lies in the folder is the first part of the moves
    COLIBRI_ASSIGN_OR_RETURN(const std::vector<std::string> names, other_content(folder_));
    if (!names.empty() && !force) return refuse_content(folder_, names);
    if (log) log("continuing the unfinished conversion in " + partial_.string());
    return Status::ok();
  }
  if (!stored.empty()) {
    if (!force) {
      return {ErrorCode::invalid_input,
              "output folder holds an unfinished conversion of another checkpoint or with other options: " +
                  partial_.string() + "; use --force to start over, or choose another folder"};
    }
    if (log) log("discarding the unfinished conversion in " + partial_.string());
  }
  // The identity goes first: what follows it is never taken for a part of another conversion.
  std::error_code error;
  fs::remove(partial_ / kIdentityFile, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(partial_, error)) {
    std::error_code ignored;
    fs::remove_all(entry.path(), ignored);
  }
  if (error) return io_failure("cannot empty folder", partial_, error);
  return write_text_file(partial_ / kIdentityFile, identity);
}

Status OutputFolder::mark_complete(std::vector<std::string> files) {
  std::string text;
  for (const std::string& name : files) text += name + "\n";
  COLIBRI_RETURN_IF_ERROR(sync_folder(partial_));
  COLIBRI_RETURN_IF_ERROR(write_text_file(partial_ / kCompleteFile, text));
  files_ = std::move(files);
  return sync_folder(partial_);
}

Status OutputFolder::publish() {
  std::error_code error;
  const auto listed = [this](const std::string& name) {
    return std::find(files_.begin(), files_.end(), name) != files_.end();
  };
  if (fs::exists(partial_ / kSpecFile, error)) {
    // An old model_spec.json goes first: half-replaced files must not pass for a container.
    fs::remove(folder_ / kSpecFile, error);
    for (const std::string_view name : kListedFiles) {
      if (!listed(std::string(name))) fs::remove(folder_ / name, error);
    }
    for (const std::string& name : files_) {
      if (name == kSpecFile || !fs::exists(partial_ / name, error)) continue;
      fs::rename(partial_ / name, folder_ / name, error);
      if (error) return io_failure("cannot move file into the output folder", partial_ / name, error);
    }
    COLIBRI_RETURN_IF_ERROR(sync_folder(folder_));
    fs::rename(partial_ / kSpecFile, folder_ / kSpecFile, error);
    if (error) return io_failure("cannot move file into the output folder", partial_ / kSpecFile, error);
    COLIBRI_RETURN_IF_ERROR(sync_folder(folder_));
  }
  fs::remove_all(partial_, error);
  if (error) return io_failure("cannot remove folder", partial_, error);
  return Status::ok();
}

void OutputFolder::discard() noexcept {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  if (created_) fs::remove(folder_, ignored);  // only when it is empty
}

}  // namespace colibri
