#include "io/read/pread_backend.hpp"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "io/read/backend_thread.hpp"

namespace colibri {
namespace {

class PreadLanes final : public RawLanes {
 public:
  PreadLanes(const ReadFiles& files, std::uint32_t lanes, RawSink& sink)
      : files_(files), sink_(sink), lanes_(lanes) {}

  ~PreadLanes() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      for (Lane& lane : lanes_) lane.wake.notify_one();
    }
    for (Lane& lane : lanes_) {
      if (lane.thread.joinable()) lane.thread.join();
    }
  }

  void start_threads() {
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      lanes_[lane].thread = start_backend_thread("colibri-pread", [this, lane] { run(lane); });
    }
  }

  void start(std::uint32_t lane, const RawRead& read) noexcept override {
    const std::lock_guard lock(mutex_);
    lanes_[lane].read = read;
    lanes_[lane].has_read = true;
    lanes_[lane].wake.notify_one();
  }

  void nudge() noexcept override {
    const std::lock_guard lock(mutex_);
    nudged_ = true;
    // Busy lanes look at the flag before they wait again; an idle one is woken.
    for (Lane& lane : lanes_) {
      if (lane.has_read) continue;
      lane.wake.notify_one();
      return;
    }
  }

 private:
  struct Lane {
    std::thread thread;
    std::condition_variable wake;
    RawRead read;
    bool has_read = false;  // started and not yet reported
  };

  void run(std::uint32_t index) {
    Lane& lane = lanes_[index];
    std::unique_lock lock(mutex_);
    for (;;) {
      lane.wake.wait(lock, [&] { return lane.has_read || nudged_ || stopping_; });
      if (nudged_) {
        nudged_ = false;
        lock.unlock();
        sink_.on_nudge();
        lock.lock();
      } else if (lane.has_read) {
        const RawRead read = lane.read;
        lock.unlock();
        const RawResult result = read_now(read);
        lock.lock();
        lane.has_read = false;
        lock.unlock();
        sink_.on_read(index, result);  // may start this lane's next read
        lock.lock();
      } else {
        return;
      }
    }
  }

  RawResult read_now(const RawRead& read) const {
    if (read.delay.count() > 0) std::this_thread::sleep_for(read.delay);
    const ssize_t bytes =
        ::pread(files_.descriptor(read.file), read.destination, read.length, static_cast<off_t>(read.offset));
    if (bytes < 0) return {errno, 0};
    return {0, static_cast<std::uint64_t>(bytes)};
  }

  const ReadFiles& files_;
  RawSink& sink_;
  std::mutex mutex_;
  std::vector<Lane> lanes_;
  bool nudged_ = false;
  bool stopping_ = false;
};

}  // namespace

Result<std::unique_ptr<RawLanes>> open_pread_lanes(const ReadFiles& files, std::uint32_t lanes,
                                                   RawSink& sink) {
  auto pool = std::make_unique<PreadLanes>(files, lanes, sink);
  try {
    pool->start_threads();
  } catch (const std::system_error& error) {
    return Status(ErrorCode::out_of_memory, "threads for reading were refused: " + std::to_string(lanes) +
                                                " threads, " + error.what() +
                                                "; use fewer lanes or raise the limit (ulimit -u)");
  }
  return std::unique_ptr<RawLanes>(std::move(pool));
}

}  // namespace colibri
