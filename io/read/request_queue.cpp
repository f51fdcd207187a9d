#include "io/read/request_queue.hpp"

namespace colibri {

RequestQueue::RequestQueue(std::uint32_t capacity) : entries_(capacity) {
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

std::uint32_t RequestQueue::front() const {
  const std::uint32_t demand = front(Line::demand);
  return demand != kNone ? demand : front(Line::hint);
}

std::uint32_t RequestQueue::find(Line line, std::uint64_t tag) const {
  std::uint32_t index = front(line);
  while (index != kNone && entries_[index].request.tag != tag) index = entries_[index].next;
  return index;
}

void RequestQueue::move(std::uint32_t index, Line line) {
  Entry& entry = entries_[index];
  if (entry.line != Line::none) {
    Ends& ends = lines_[static_cast<std::size_t>(entry.line)];
    (entry.previous == kNone ? ends.head : entries_[entry.previous].next) = entry.next;
    (entry.next == kNone ? ends.tail : entries_[entry.next].previous) = entry.previous;
  }
  entry.line = line;
  entry.next = kNone;
  entry.previous = kNone;
  if (line == Line::none) return;
  Ends& ends = lines_[static_cast<std::size_t>(line)];
  entry.previous = ends.tail;
  (ends.tail == kNone ? ends.head : entries_[ends.tail].next) = index;
  ends.tail = index;
}

}  // namespace colibri
