#include "io/read/read_scheduler.hpp"

#include <algorithm>
#include <utility>

#include "io/read/virtual_device.hpp"

namespace colibri {
namespace {

Status bad_request(std::string what, const ReadRequest& request) {
  return Status(ErrorCode::invalid_input, "read request is not valid: " + std::move(what) + "; file " +
                                              std::to_string(request.file) + ", offset " +
                                              std::to_string(request.offset) + ", length " +
                                              std::to_string(request.length) + "; check the page table");
}

Status closed() {
  return Status(ErrorCode::cancelled, "read was not started because the backend is closing");
}

}  // namespace

ReadScheduler::ReadScheduler(std::unique_ptr<ReadFiles> files, const ReadBackendOptions& options,
                             OnComplete on_complete)
    : files_(std::move(files)),
      inflight_bytes_max_(options.inflight_bytes),
      read_bytes_(std::max(options.read_bytes - options.read_bytes % kReadAlignment, kReadAlignment)),
      checked_(options.virtual_device == nullptr ||
               options.virtual_device->contents() == VirtualContents::files),
      limit_(std::make_shared<DeviceModel>(DeviceLaw{.bytes_per_second = options.bandwidth_limit})),
      files_per_copy_(files_->count() / options.copies),
      on_complete_(std::move(on_complete)),
      queue_(options.max_outstanding, files_per_copy_),
      inflight_by_file_(files_->count()),
      load_(files_per_copy_) {}

ReadScheduler::~ReadScheduler() {
  std::unique_lock lock(mutex_);
  refuse_and_cancel();
  lock.unlock();
  if (lanes_ != nullptr) {
    limit_bandwidth(0);
    lanes_->drain();
  }
  lock.lock();
  all_delivered_.wait(lock, [this] { return undelivered_ == 0; });
  lock.unlock();
  lanes_.reset();
}

void ReadScheduler::attach(std::unique_ptr<RawLanes> lanes, std::uint32_t lane_count, std::string_view name) {
  lanes_ = std::move(lanes);
  lane_states_.resize(lane_count);
  free_lanes_.reserve(lane_count);
  for (std::uint32_t lane = lane_count; lane-- > 0;) free_lanes_.push_back(lane);
  constexpr std::string_view kModes[] = {"O_DIRECT", "buffered", "O_DIRECT and buffered"};
  for (std::size_t i = 0; i < std::size(kModes); ++i) {
    descriptions_[i] =
        std::string(name) + ", " + std::string(kModes[i]) + ", " + std::to_string(lane_count) + " lanes";
  }
}

Status ReadScheduler::check(const ReadRequest& request) const {
  if (request.file >= files_per_copy_) return bad_request("no such file", request);
  if (request.length == 0) return bad_request("no bytes", request);
  if (request.destination == nullptr) return bad_request("no destination", request);
  if (request.offset % kReadAlignment != 0 || request.length % kReadAlignment != 0 ||
      reinterpret_cast<std::uintptr_t>(request.destination) % kReadAlignment != 0) {
    return bad_request("offset, length and destination must be multiples of 4096", request);
  }
  const auto end = checked_add(request.offset, request.length);
  if (!end || *end > static_cast<std::uint64_t>(INT64_MAX)) return bad_request("beyond any file", request);
  if (request.chunk_hashes.empty()) return Status::ok();
  if (request.chunk_bytes == 0 || request.chunk_bytes % kReadAlignment != 0) {
    return bad_request("chunk size must be a multiple of 4096, found " + std::to_string(request.chunk_bytes),
                       request);
  }
  const std::uint64_t chunks = request.payload_length / request.chunk_bytes +
                               (request.payload_length % request.chunk_bytes != 0 ? 1 : 0);
  if (request.payload_length > request.length || chunks != request.chunk_hashes.size()) {
    return bad_request("payload of " + std::to_string(request.payload_length) + " bytes does not fit " +
                           std::to_string(request.chunk_hashes.size()) + " checksums",
                       request);
  }
  return Status::ok();
}

std::uint64_t ReadScheduler::piece_bytes(const ReadRequest& request, std::uint64_t left) const {
  // Whole chunks, so that each piece can be verified by itself as soon as it is there.
  const std::uint64_t unit = request.chunk_hashes.empty() ? kReadAlignment : request.chunk_bytes;
  const std::uint64_t least = std::max(unit, read_bytes_ - read_bytes_ % unit);
  // As many as there can be of that size, all about equal: a small rest would cost a read of its own.
  const std::uint64_t pieces = left / least;
  if (pieces <= 1) return left;
  return left / pieces - left / pieces % unit;
}

Status ReadScheduler::submit(const ReadRequest& request) {
  COLIBRI_RETURN_IF_ERROR(check(request));
  const std::lock_guard lock(mutex_);
  if (closed_) return closed();
  const std::uint32_t index = queue_.add(request);
  if (index == RequestQueue::kNone) {
    return Status(ErrorCode::out_of_memory, "too many reads are outstanding: the limit is " +
                                                std::to_string(queue_.capacity()) +
                                                "; wait for completions or raise max_outstanding");
  }
  if (!checked_) queue_.entry(index).request.chunk_hashes = {};
  ++undelivered_;
  ++stats_.queued;
  issue();
  return Status::ok();
}

bool ReadScheduler::promote(std::uint64_t tag) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t index = queue_.find(Line::hint, tag);
  if (index == RequestQueue::kNone) return false;
  queue_.move(index, Line::demand);
  return true;
}

bool ReadScheduler::cancel(std::uint64_t tag) {
  const std::lock_guard lock(mutex_);
  std::uint32_t index = queue_.find(Line::hint, tag);
  if (index == RequestQueue::kNone) index = queue_.find(Line::demand, tag);
  if (index == RequestQueue::kNone || queue_.entry(index).issued != 0) return false;
  queue_.entry(index).failure = Status(ErrorCode::cancelled, "read was cancelled before it started");
  queue_.move(index, Line::cancelled);
  lanes_->nudge();
  return true;
}

bool ReadScheduler::close(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  refuse_and_cancel();
  lock.unlock();
  limit_bandwidth(0);  // nobody wants what is still read: it shall end soon
  lanes_->drain();
  lock.lock();
  return all_delivered_.wait_for(lock, limit, [this] { return undelivered_ == 0; });
}

void ReadScheduler::refuse_and_cancel() {
  closed_ = true;
  cancel_line(Line::hint);
  cancel_line(Line::demand);
  if (queue_.front(Line::cancelled) != RequestQueue::kNone) lanes_->nudge();
}

void ReadScheduler::cancel_line(Line line) {
  while (queue_.front(line) != RequestQueue::kNone) {
    const std::uint32_t index = queue_.front(line);
    RequestQueue::Entry& entry = queue_.entry(index);
    entry.failure = closed();
    // With pieces in flight, the last of them completes the request.
    queue_.move(index, entry.pieces_in_flight == 0 ? Line::cancelled : Line::none);
  }
}

std::uint32_t ReadScheduler::least_busy_copy(std::uint32_t file) const {
  std::uint32_t best = file;
  for (std::uint32_t copy = file; copy < inflight_by_file_.size(); copy += files_per_copy_) {
    if (inflight_by_file_[copy] < inflight_by_file_[best]) best = copy;
  }
  return best;
}

// A piece that failed in one copy goes on in another.
void ReadScheduler::charge(Lane& lane) {
  inflight_by_file_[lane.file] -= lane.piece.length();
  lane.file = lane.piece.file();
  inflight_by_file_[lane.file] += lane.piece.length();
}

void ReadScheduler::issue() {
  while (!free_lanes_.empty()) {
    for (std::uint32_t file = 0; file < files_per_copy_; ++file) {
      load_[file] = inflight_by_file_[least_busy_copy(file)];
    }
    const std::uint32_t index = queue_.next(load_);
    if (index == RequestQueue::kNone) return;
    RequestQueue::Entry& entry = queue_.entry(index);
    const std::uint64_t length = piece_bytes(entry.request, entry.request.length - entry.issued);
    if (inflight_bytes_ != 0 &&
        length > inflight_bytes_max_ - std::min(inflight_bytes_, inflight_bytes_max_)) {
      return;
    }
    if (inflight_bytes_ == 0) busy_since_ = lanes_->now();
    if (entry.issued == 0) {
      entry.first_issue = lanes_->now();
      --stats_.queued;
      ++stats_.in_flight;
    }
    const std::uint32_t lane = free_lanes_.back();
    free_lanes_.pop_back();
    lane_states_[lane].entry = index;
    lane_states_[lane].file = least_busy_copy(entry.request.file);
    PieceRead& piece = lane_states_[lane].piece;
    piece.assign(*files_, entry.request, entry.issued, length, lane_states_[lane].file, files_per_copy_);
    entry.issued += length;
    ++entry.pieces_in_flight;
    inflight_bytes_ += length;
    inflight_by_file_[lane_states_[lane].file] += length;
    if (entry.issued == entry.request.length) queue_.move(index, Line::none);
    lanes_->start(lane, piece.next_read());
  }
}

void ReadScheduler::on_read(std::uint32_t lane, const RawResult& result) {
  PieceRead& piece = lane_states_[lane].piece;
  const PieceRead::Step step = piece.on_result(result);
  if (step == PieceRead::Step::again) {
    if (piece.file() != lane_states_[lane].file) {
      const std::lock_guard lock(mutex_);
      charge(lane_states_[lane]);
    }
    lanes_->start(lane, piece.next_read());
    return;
  }
  std::optional<ReadCompletion> completion;
  {
    const std::lock_guard lock(mutex_);
    const std::uint32_t index = lane_states_[lane].entry;
    RequestQueue::Entry& entry = queue_.entry(index);
    entry.retries += piece.retries();
    stats_.retries += piece.retries();
    stats_.retried_bytes += piece.retried_bytes();
    --entry.pieces_in_flight;
    inflight_bytes_ -= piece.length();
    inflight_by_file_[lane_states_[lane].file] -= piece.length();
    if (inflight_bytes_ == 0) stats_.busy_seconds += seconds_since(busy_since_);
    if (step == PieceRead::Step::failed) {
      if (entry.failure.is_ok()) entry.failure = piece.failure();
      queue_.move(index, Line::none);  // what is not issued yet never will be
    }
    if (entry.pieces_in_flight == 0 && entry.line == Line::none) completion = finish(index);
    free_lanes_.push_back(lane);
    issue();
  }
  if (completion) deliver(std::move(*completion));
}

void ReadScheduler::on_nudge() {
  for (;;) {
    std::optional<ReadCompletion> completion;
    {
      const std::lock_guard lock(mutex_);
      const std::uint32_t index = queue_.front(Line::cancelled);
      if (index == RequestQueue::kNone) return;
      queue_.move(index, Line::none);
      completion = finish(index);
    }
    deliver(std::move(*completion));
  }
}

ReadCompletion ReadScheduler::finish(std::uint32_t index) {
  RequestQueue::Entry& entry = queue_.entry(index);
  ReadCompletion completion;
  completion.tag = entry.request.tag;
  completion.status = std::move(entry.failure);
  completion.retries = entry.retries;
  if (entry.issued == 0) {
    --stats_.queued;
  } else {
    --stats_.in_flight;
    completion.seconds = seconds_since(entry.first_issue);
  }
  if (completion.status.is_ok()) {
    completion.bytes = entry.request.length;
    stats_.bytes += completion.bytes;
    ++stats_.reads;
  } else {
    ++(completion.status.code() == ErrorCode::cancelled ? stats_.cancelled : stats_.failed);
  }
  queue_.release(index);
  return completion;
}

void ReadScheduler::deliver(ReadCompletion&& completion) {
  on_complete_(std::move(completion));
  const std::lock_guard lock(mutex_);
  if (--undelivered_ == 0) all_delivered_.notify_all();
}

void ReadScheduler::limit_bandwidth(std::uint64_t bytes_per_second) {
  limit_->set_bytes_per_second(bytes_per_second, lanes_->now());
}

double ReadScheduler::seconds_since(Clock::time_point start) const {
  return std::chrono::duration<double>(lanes_->now() - start).count();
}

ReadStats ReadScheduler::stats() const {
  const std::lock_guard lock(mutex_);
  ReadStats stats = stats_;
  if (inflight_bytes_ != 0) stats.busy_seconds += seconds_since(busy_since_);
  return stats;
}

std::string_view ReadScheduler::description() const {
  return descriptions_[static_cast<std::size_t>(files_->direct_state())];
}

}  // namespace colibri
