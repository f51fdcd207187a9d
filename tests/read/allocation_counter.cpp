// operator new is replaced for the whole process, and the C allocators are wrapped by the
// linker for the objects of the executable (Asio calls aligned_alloc from its headers). A
// source of its own, so that no compiler inlines one half of a new and delete pair.
#include "tests/read/allocation_counter.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::uint64_t> counted{0};
}  // namespace

namespace colibri::testing {
std::uint64_t allocations() { return counted.load(); }
}  // namespace colibri::testing

extern "C" {
void* __real_malloc(std::size_t);
void* __real_calloc(std::size_t, std::size_t);
void* __real_realloc(void*, std::size_t);
void* __real_aligned_alloc(std::size_t, std::size_t);
void* __wrap_malloc(std::size_t size) {
  counted.fetch_add(1);
  return __real_malloc(size);
}
void* __wrap_calloc(std::size_t count, std::size_t size) {
  counted.fetch_add(1);
  return __real_calloc(count, size);
}
void* __wrap_realloc(void* memory, std::size_t size) {
  counted.fetch_add(1);
  return __real_realloc(memory, size);
}
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  counted.fetch_add(1);
  return __real_aligned_alloc(alignment, size);
}
}

void* operator new(std::size_t size) {
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
// stable_sort takes its buffer this way.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
