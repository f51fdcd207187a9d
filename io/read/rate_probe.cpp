#include "io/read/rate_probe.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "io/read/aligned_region.hpp"

namespace colibri {
namespace {

using Clock = std::chrono::steady_clock;

// Reads that wait behind those in flight, so that no lane waits for us.
constexpr std::uint32_t kMaxQueued = 8;
constexpr std::chrono::milliseconds kPeriod{20};

// Keeps a backend full: each completion submits the next read. Its state is guarded by the mutex, since
// completions come from several threads.
class Load {
 public:
  Load(const RateProbe& probe, std::vector<std::uint64_t> blocks, AlignedRegion memory)
      : probe_(probe), blocks_(std::move(blocks)), memory_(std::move(memory)), random_(probe.seed) {}

  std::span<std::byte> memory() const { return memory_.bytes(); }

  void start(ReadBackend& backend, std::uint32_t reads) {
    const std::lock_guard lock(mutex_);
    backend_ = &backend;
    count_from_ = Clock::now() + probe_.duration / 5;
    until_ = Clock::now() + probe_.duration / 5 + probe_.duration;
    for (std::uint32_t slot = 0; slot < reads; ++slot) submit(slot);
  }

  void completed(ReadCompletion&& done) {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    --outstanding_;
    if (!done.status && status_.is_ok()) status_ = std::move(done.status);
    // From one completion to another: what is in flight at either end does not count.
    if (now >= count_from_ && now <= until_) {
      if (first_ == Clock::time_point{}) {
        first_ = now;
      } else {
        ++reads_;
      }
      last_ = now;
    }
    if (now < until_ && !stopped_ && status_.is_ok()) submit(static_cast<std::uint32_t>(done.tag));
    if (outstanding_ == 0) ended_.notify_all();
  }

  Result<ReadRate> wait() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kPeriod, [this] { return outstanding_ == 0; })) {
      stopped_ = stopped_ || (probe_.cancelled && probe_.cancelled());
    }
    COLIBRI_RETURN_IF_ERROR(Status(status_));
    if (stopped_) return Status(ErrorCode::cancelled, "measuring was stopped");
    ReadRate rate;
    rate.reads = reads_;
    const double seconds = std::chrono::duration<double>(last_ - first_).count();
    if (reads_ == 0 || seconds <= 0) {
      return Status(ErrorCode::timeout, "too few reads ended to tell a rate; measure for longer than " +
                                            std::to_string(probe_.duration.count()) + " ms");
    }
    rate.bytes_per_second = static_cast<double>(reads_ * probe_.read_bytes) / seconds;
    return rate;
  }

 private:
  // splitmix64 (Steele, Lea, Flood 2014).
  std::uint64_t random() noexcept {
    std::uint64_t z = (random_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  void submit(std::uint32_t slot) {
    ReadRequest request;
    request.tag = slot;
    request.file = static_cast<std::uint32_t>(random() % blocks_.size());
    request.offset = random() % blocks_[request.file] * probe_.read_bytes;
    request.destination = memory_.data() + std::uint64_t{slot} * probe_.read_bytes;
    request.length = probe_.read_bytes;
    request.demand = true;
    if (Status submitted = backend_->submit(request); !submitted) {
      if (status_.is_ok()) status_ = std::move(submitted);
      return;
    }
    ++outstanding_;
  }

  const RateProbe& probe_;
  const std::vector<std::uint64_t> blocks_;  // [files] reads that fit into each
  const AlignedRegion memory_;
  std::mutex mutex_;
  std::condition_variable ended_;
  ReadBackend* backend_ = nullptr;
  std::uint64_t random_;
  std::uint32_t outstanding_ = 0;
  std::uint64_t reads_ = 0;
  bool stopped_ = false;
  Status status_;
  Clock::time_point count_from_, until_, first_, last_;
};

Result<std::vector<std::uint64_t>> blocks_of(const RateProbe& probe) {
  if (probe.read_bytes == 0 || probe.read_bytes % kReadAlignment != 0 || probe.files.empty() ||
      probe.depth == 0 || probe.depth > kMaxReadLanes) {
    return Status(ErrorCode::invalid_input,
                  "reads must be of a multiple of 4096 bytes, 1 to " + std::to_string(kMaxReadLanes) +
                      " at a time, of at least one file: found " + std::to_string(probe.read_bytes) +
                      " bytes, depth " + std::to_string(probe.depth));
  }
  std::vector<std::uint64_t> blocks;
  for (const std::filesystem::path& file : probe.files) {
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(file, error);
    if (error) return Status(ErrorCode::io, "cannot read file: " + file.string() + ": " + error.message());
    blocks.push_back(bytes / probe.read_bytes);
    if (blocks.back() > 0) continue;
    return Status(ErrorCode::invalid_input, "file is smaller than a read: " + file.string() + " has " +
                                                std::to_string(bytes) + " bytes, reads have " +
                                                std::to_string(probe.read_bytes) +
                                                "; measure smaller reads or a larger file");
  }
  return blocks;
}

}  // namespace

Result<ReadRate> measure_read_rate(const RateProbe& probe) {
  COLIBRI_ASSIGN_OR_RETURN(std::vector<std::uint64_t> blocks, blocks_of(probe));
  const std::uint32_t reads = probe.depth + std::min(probe.depth, kMaxQueued);
  COLIBRI_ASSIGN_OR_RETURN(AlignedRegion memory, AlignedRegion::create(reads * probe.read_bytes));
  Load load(probe, std::move(blocks), std::move(memory));
  ReadBackendOptions options;
  options.kind = probe.kind;
  options.direct = probe.direct;
  options.lanes = probe.depth;
  options.max_outstanding = reads;
  options.inflight_bytes = UINT64_MAX;
  options.read_bytes = probe.read_bytes;
  options.registered_region = load.memory();
  options.log = probe.log;
  COLIBRI_ASSIGN_OR_RETURN(const std::unique_ptr<ReadBackend> backend,
                           open_read_backend(probe.files, options, [&load](ReadCompletion&& done) {
                             load.completed(std::move(done));
                           }));
  load.start(*backend, reads);
  Result<ReadRate> rate = load.wait();
  if (rate) rate.value().description = backend->description();
  return rate;
}

}  // namespace colibri
