#include "io/read/request_queue.hpp"

namespace colibri {

RequestQueue::RequestQueue(std::uint32_t capacity, std::uint32_t files)
    : files_(files), entries_(capacity), lines_(std::size_t{2} * files) {
  for (std::uint32_t i = capacity; i-- > 0;) {
    entries_[i].next = free_;
    free_ = i;
  }
}

std::uint32_t RequestQueue::add(const ReadRequest& request) {
  if (free_ == kNone) return kNone;
  const std::uint32_t index = free_;
  free_ = entries_[index].next;
  entries_[index] = Entry{};
  entries_[index].request = request;
  ++used_;
  move(index, request.demand ? Line::demand : Line::hint);
  return index;
}

void RequestQueue::release(std::uint32_t index) {
  entries_[index] = Entry{};
  entries_[index].next = free_;
  free_ = index;
  --used_;
}

std::span<const RequestQueue::Ends> RequestQueue::lines_of(Line line) const {
  if (line == Line::cancelled) return {&cancelled_, 1};
  return std::span(lines_).subspan(static_cast<std::size_t>(line) * files_, files_);
}

std::uint32_t RequestQueue::next(std::span<const std::uint64_t> in_flight) const {
  for (const Line line : {Line::demand, Line::hint}) {
    std::uint32_t best = kNone;
    const std::span<const Ends> lines = lines_of(line);
    for (std::uint32_t file = 0; file < files_; ++file) {
      const std::uint32_t head = lines[file].head;
      if (head == kNone) continue;
      if (best != kNone) {
        const std::uint32_t other = entries_[best].request.file;
        if (in_flight[file] > in_flight[other]) continue;
        if (in_flight[file] == in_flight[other] && entries_[head].order > entries_[best].order) continue;
      }
      best = head;
    }
    if (best != kNone) return best;
  }
  return kNone;
}

std::uint32_t RequestQueue::front(Line line) const {
  std::uint32_t oldest = kNone;
  for (const Ends& ends : lines_of(line)) {
    if (ends.head != kNone && (oldest == kNone || entries_[ends.head].order < entries_[oldest].order)) {
      oldest = ends.head;
    }
  }
  return oldest;
}

std::uint32_t RequestQueue::find(Line line, std::uint64_t tag) const {
  for (const Ends& ends : lines_of(line)) {
    for (std::uint32_t index = ends.head; index != kNone; index = entries_[index].next) {
      if (entries_[index].request.tag == tag) return index;
    }
  }
  return kNone;
}

void RequestQueue::move(std::uint32_t index, Line line) {
  Entry& entry = entries_[index];
  if (entry.line != Line::none) {
    Ends& left = ends(entry.line, entry.request.file);
    (entry.previous == kNone ? left.head : entries_[entry.previous].next) = entry.next;
    (entry.next == kNone ? left.tail : entries_[entry.next].previous) = entry.previous;
  }
  entry.line = line;
  entry.next = kNone;
  entry.previous = kNone;
  if (line == Line::none) return;
  entry.order = next_order_++;
  Ends& joined = ends(line, entry.request.file);
  entry.previous = joined.tail;
  (joined.tail == kNone ? joined.head : entries_[joined.tail].next) = index;
  joined.tail = index;
}

}  // namespace colibri
