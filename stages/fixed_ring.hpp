// FixedRing: a queue of fixed capacity that can also take an item to its place in an order. Allocates once.
#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace colibri {

template <class T>
class FixedRing {
 public:
  explicit FixedRing(std::size_t capacity = 0) : items_(capacity) {}

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  const T& front() const noexcept { return items_[head_]; }

  void push_back(const T& item) noexcept {
    assert(size_ < items_.size());
    items_[(head_ + size_++) % items_.size()] = item;
  }
  // Behind all items that `before(item, theirs)` is false for, from the back on.
  template <class Before>
  void insert(const T& item, Before&& before) noexcept {
    push_back(item);
    for (std::size_t i = size_ - 1; i > 0 && before(at(i), at(i - 1)); --i) std::swap(at(i), at(i - 1));
  }
  T pop_front() noexcept {
    T item = std::move(items_[head_]);
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  T& at(std::size_t index) noexcept { return items_[(head_ + index) % items_.size()]; }

  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace colibri
