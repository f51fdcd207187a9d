// State of a conversion or a copy on disk.
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

constexpr char kPartialSuffix[] = ".partial";
constexpr char kIdentityFile[] = "identity";
constexpr char kCompleteFile[] = "complete";
constexpr std::uint64_t kMaxStateBytes = 64U << 20;
constexpr std::size_t kNamesInMessage = 5;

Status io_failure(const std::string& what, const fs::path& path, const std::error_code& error) {
  return {ErrorCode::io, what + ": " + path.string() + ": " + error.message()};
}

// What lies in the folder besides the partial one, sorted by name.
Result<std::vector<std::string>> other_content(const fs::path& folder, std::string_view partial) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() != partial) names.push_back(entry->path().filename().string());
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

bool is_container_file(const std::string& name) { return name == kManifestFile || is_listed_file(name); }

fs::path partial_target(const fs::path& target) {
  fs::path partial = target;
  return partial += kPartialSuffix;
}

// The unfinished file that a link in the partial folder points to; empty for what is no such link.
fs::path unfinished_target(const fs::path& link) {
  std::error_code error;
  fs::path target = fs::read_symlink(link, error);
  return !error && target.extension() == kPartialSuffix ? target : fs::path();
}

// Nothing is there, not even a link that leads nowhere.
bool is_absent(const fs::path& path) {
  std::error_code ignored;
  return !fs::exists(fs::symlink_status(path, ignored));
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
      outside_(std::move(other.outside_)),
      work_(other.work_),
      files_(std::move(other.files_)),
      resumed_(other.resumed_),
      created_(other.created_),
      lock_(std::exchange(other.lock_, -1)) {}

OutputFolder& OutputFolder::operator=(OutputFolder&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(partial_, other.partial_);
  std::swap(outside_, other.outside_);
  std::swap(work_, other.work_);
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
  return {ErrorCode::invalid_input, "another " + std::string(work_.noun) + " is writing to this folder: " +
                                        folder_.string() + "; wait for it, or choose another folder"};
}

Result<OutputFolder> OutputFolder::open(const fs::path& folder, const std::string& identity, bool force,
                                        const Log& log, std::vector<OutsideFile> outside,
                                        const OutputWork& work) {
  OutputFolder output(folder, std::move(outside), work);
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    return Status(ErrorCode::invalid_input, "output is not a folder: " + folder.string());
  }
  output.created_ = !fs::exists(folder, error);
  // Whatever is refused must be refused before the first folder is made.
  if (!fs::exists(output.partial_ / kIdentityFile, error)) {
    COLIBRI_RETURN_IF_ERROR(output.check_content(force));
  }
  fs::create_directories(output.partial_, error);
  if (error) return io_failure("cannot create folder", output.partial_, error);
  COLIBRI_RETURN_IF_ERROR(output.lock());
  COLIBRI_RETURN_IF_ERROR(output.take_up(identity, force, log));
  return output;
}

Status OutputFolder::check_content(bool force) const {
  if (force) return Status::ok();
  std::error_code ignored;
  if (fs::exists(folder_, ignored)) {
    COLIBRI_ASSIGN_OR_RETURN(const std::vector<std::string> names, other_content(folder_, work_.partial));
    if (!names.empty()) return refuse_content(folder_, names);
  }
  for (const OutsideFile& file : outside_) {
    if (is_absent(file.target)) continue;
    return {ErrorCode::invalid_input,
            "a file lies where a part of the experts goes: " + file.target.string() +
                "; move it away, choose other directories, or use --force to "
                "replace it"};
  }
  return Status::ok();
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
    COLIBRI_RETURN_IF_ERROR(check_content(force));
    if (log) log("continuing the unfinished " + std::string(work_.noun) + " in " + partial_.string());
    name_parts_left(log);
    return link_outside_files();
  }
  if (!stored.empty()) {
    if (!force) {
      return {ErrorCode::invalid_input, "output folder holds an unfinished " + std::string(work_.noun) + " " +
                                            std::string(work_.of_another) + ": " + partial_.string() +
                                            "; use --force to start over, or choose another folder"};
    }
    if (log) log("discarding the unfinished " + std::string(work_.noun) + " in " + partial_.string());
  }
  COLIBRI_RETURN_IF_ERROR(empty_partial());
  name_parts_left(log);
  COLIBRI_RETURN_IF_ERROR(link_outside_files());
  return write_text_file(partial_ / kIdentityFile, identity);
}

Status OutputFolder::empty_partial() {
  // The identity goes first: what follows it is never taken for a part of something else.
  std::error_code error;
  fs::remove(partial_ / kIdentityFile, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(partial_, error)) {
    std::error_code ignored;
    if (const fs::path target = unfinished_target(entry.path()); !target.empty()) fs::remove(target, ignored);
    fs::remove_all(entry.path(), ignored);
  }
  if (error) return io_failure("cannot empty folder", partial_, error);
  // What a partial folder that is gone has left: nobody knows what it is a part of.
  for (const OutsideFile& file : outside_) fs::remove(partial_target(file.target), error);
  return Status::ok();
}

Status OutputFolder::link_outside_files() {
  for (const OutsideFile& file : outside_) {
    const fs::path link = partial_ / file.name;
    if (unfinished_target(link) == partial_target(file.target)) continue;
    std::error_code error;
    fs::remove(link, error);
    fs::create_symlink(partial_target(file.target), link, error);
    if (error) return io_failure("cannot create link", link, error);
  }
  return Status::ok();
}

void OutputFolder::name_parts_left(const Log& log) const {
  if (!log) return;
  for (std::uint32_t part = 0; part < kMaxExpertFiles; ++part) {
    std::error_code error;
    const fs::path target = fs::read_symlink(folder_ / expert_part_name(part), error);
    const auto same = [&target](const OutsideFile& file) { return file.target == target; };
    if (error || std::any_of(outside_.begin(), outside_.end(), same)) continue;
    log("the replaced model leaves a part of its experts behind, remove it when nothing else uses it: " +
        (folder_ / target).string());
  }
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
    for (const std::string& name : listed_files()) {
      if (!listed(name)) fs::remove(folder_ / name, error);
    }
    for (const std::string& name : files_) {
      if (name == kSpecFile || is_absent(partial_ / name)) continue;
      if (!unfinished_target(partial_ / name).empty()) {
        COLIBRI_RETURN_IF_ERROR(publish_outside_file(name));
        continue;
      }
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

Status OutputFolder::publish_outside_file(const std::string& name) {
  const fs::path link = partial_ / name;
  const fs::path unfinished = unfinished_target(link);
  const fs::path target = fs::path(unfinished).replace_extension();
  std::error_code error;
  if (fs::exists(unfinished, error)) {  // else a former run was stopped after this move
    fs::rename(unfinished, target, error);
    if (error) return io_failure("cannot rename a part of the experts", unfinished, error);
    COLIBRI_RETURN_IF_ERROR(sync_folder(target.parent_path()));
  }
  const fs::path final_link = partial_ / (name + ".link");
  fs::remove(final_link, error);
  fs::create_symlink(target, final_link, error);
  if (error) return io_failure("cannot create link", final_link, error);
  fs::rename(final_link, folder_ / name, error);
  if (error) return io_failure("cannot move link into the output folder", final_link, error);
  fs::remove(link, error);
  return Status::ok();
}

void OutputFolder::discard() noexcept {
  std::error_code ignored;
  for (const OutsideFile& file : outside_) fs::remove(partial_target(file.target), ignored);
  fs::remove_all(partial_, ignored);
  if (created_) fs::remove(folder_, ignored);  // only when it is empty
}

}  // namespace colibri
