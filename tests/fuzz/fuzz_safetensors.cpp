// A safetensors file: length of the header, header, tensors that it claims to hold.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "io/checkpoint/safetensors.hpp"
#include "tests/fuzz/fuzz_target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  const int descriptor = ::memfd_create("safetensors", MFD_CLOEXEC);
  fuzz::fuzz_check(descriptor >= 0 && ::write(descriptor, data, size) == static_cast<ssize_t>(size), "memory file");
  const auto opened = SafetensorsFile::open("/proc/self/fd/" + std::to_string(descriptor));
  if (opened) {
    std::uint64_t end = 0;
    for (const TensorInfo& tensor : opened->tensors()) {
      // What was accepted lies in the file, in order.
      fuzz::fuzz_check(tensor.offset >= end && tensor.bytes <= size - tensor.offset, "a tensor outside the file");
      end = tensor.offset + tensor.bytes;
      static_cast<void>(shape_to_string(tensor.shape));
      static_cast<void>(opened->read_f32(tensor.name));
    }
  }
  ::close(descriptor);
  return 0;
}
