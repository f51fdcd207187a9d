// ReadScheduler: the ReadBackend over any RawLanes.
//
// Splits requests into pieces of whole chunks, hands pieces to free lanes (demands first, to
// the drive with the fewest bytes in flight, within the bound on all of them), lets PieceRead deal with every
// result, and delivers one completion per request when its last piece has come back. One mutex guards the
// queue; hashing and completions run outside it. Internal to io/read.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "io/read/device_model.hpp"
#include "io/read/piece_read.hpp"
#include "io/read/raw_lanes.hpp"
#include "io/read/read_backend.hpp"
#include "io/read/read_files.hpp"
#include "io/read/request_queue.hpp"

namespace colibri {

class ReadScheduler final : public ReadBackend, public RawSink {
 public:
  ReadScheduler(std::unique_ptr<ReadFiles> files, const ReadBackendOptions& options, OnComplete on_complete);
  ~ReadScheduler() override;

  ReadFiles& files() { return *files_; }
  // By which lanes keep to limit_bandwidth.
  const std::shared_ptr<DeviceModel>& limit() const { return limit_; }
  // Once, before the first submit. `name` is the first word of the description.
  void attach(std::unique_ptr<RawLanes> lanes, std::uint32_t lane_count, std::string_view name);

  Status submit(const ReadRequest& request) override;
  bool promote(std::uint64_t tag) override;
  bool cancel(std::uint64_t tag) override;
  bool close(std::chrono::milliseconds limit) override;
  void limit_bandwidth(std::uint64_t bytes_per_second) override;
  ReadStats stats() const override;
  std::string_view description() const override;

  void on_read(std::uint32_t lane, const RawResult& result) override;
  void on_nudge() override;

 private:
  using Clock = std::chrono::steady_clock;
  using Line = RequestQueue::Line;
  struct Lane {
    PieceRead piece;
    std::uint32_t entry = RequestQueue::kNone;
    std::uint32_t file = 0;  // whose bytes in flight the piece counts to
  };

  Status check(const ReadRequest& request) const;
  // Of the next piece, with `left` bytes of the request to go.
  std::uint64_t piece_bytes(const ReadRequest& request, std::uint64_t left) const;
  // These are called with the mutex held.
  void issue();
  std::uint32_t least_busy_copy(std::uint32_t file) const;
  void charge(Lane& lane);
  void refuse_and_cancel();
  void cancel_line(Line line);
  ReadCompletion finish(std::uint32_t index);
  void deliver(ReadCompletion&& completion);  // without the mutex

  double seconds_since(Clock::time_point start) const;

  std::unique_ptr<ReadFiles> files_;
  const std::uint64_t inflight_bytes_max_;
  const std::uint64_t read_bytes_;
  const bool checked_;  // by the checksums that requests carry
  const std::shared_ptr<DeviceModel> limit_;
  const std::uint32_t files_per_copy_;
  OnComplete on_complete_;
  std::string descriptions_[3];  // by DirectState

  mutable std::mutex mutex_;
  std::condition_variable all_delivered_;
  RequestQueue queue_;
  std::vector<Lane> lane_states_;  // an element belongs to its lane while that carries a read
  std::vector<std::uint32_t> free_lanes_;
  std::uint64_t inflight_bytes_ = 0;
  std::vector<std::uint64_t> inflight_by_file_;  // [files of all copies]
  std::vector<std::uint64_t> load_;              // [files of one copy] of the copy that has the least
  std::uint32_t undelivered_ = 0;                // accepted, and the completion has not returned yet
  bool closed_ = false;
  ReadStats stats_;
  Clock::time_point busy_since_;

  std::unique_ptr<RawLanes> lanes_;  // last: its threads end before what they use
};

}  // namespace colibri
