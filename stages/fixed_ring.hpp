// FixedRing: a queue of fixed capacity that can also be put to at the front. Allocates once.
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
  void push_front(const T& item) noexcept {
    assert(size_ < items_.size());
    head_ = (head_ + items_.size() - 1) % items_.size();
    items_[head_] = item;
    ++size_;
  }
  T pop_front() noexcept {
    T item = std::move(items_[head_]);
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace colibri
