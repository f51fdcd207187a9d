// Facts about Asio 1.81 that shape this file: async_read_some_at issues one read of the
// full length (async_read_at splits into 64 KiB); one random_access_file keeps one read in
// flight, so each lane has an object per file; O_DIRECT needs ::open and assign. The ring
// is made when the first file object is. After EAGAIN from the kernel Asio itself reads
// again, blocking its thread.
//
// BOOST_ASIO_HAS_IO_URING is defined for this source alone: no other source may include
// Asio, because the macro changes its classes.
#include "io/read/asio_backend.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/basic_random_access_file.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer_registration.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/registered_buffer.hpp>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "io/read/backend_thread.hpp"

namespace colibri {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Executor = asio::io_context::executor_type;
using File = asio::basic_random_access_file<Executor>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;

// The kernel registers at most 1 GiB as one buffer.
constexpr std::uint64_t kRegisteredPiece = 1ULL << 30;

// Room for the one operation that a lane, or the nudge, has pending at a time. Asio frees
// an operation before it calls the handler, so a handler can start the next one in here.
struct OperationRoom {
  alignas(std::max_align_t) std::byte bytes[512];
};

// The allocator that Asio finds at our handlers: nothing is allocated per read.
template <class T>
struct RoomAllocator {
  using value_type = T;
  explicit RoomAllocator(OperationRoom& given) noexcept : room(&given) {}
  template <class U>
  RoomAllocator(const RoomAllocator<U>& other) noexcept
      : room(other.room) {}                  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t) const noexcept {  // Asio asks for one operation at a time
    static_assert(sizeof(T) <= sizeof(OperationRoom::bytes) && alignof(T) <= alignof(std::max_align_t));
    return reinterpret_cast<T*>(room->bytes);
  }
  void deallocate(T*, std::size_t) const noexcept {}
  template <class U>
  bool operator==(const RoomAllocator<U>& other) const noexcept {
    return room == other.room;
  }
  OperationRoom* room;
};

template <class Function>
struct RoomHandler {
  using allocator_type = RoomAllocator<std::byte>;
  allocator_type get_allocator() const noexcept { return allocator_type(*room); }
  template <class... Arguments>
  void operator()(const Arguments&... arguments) {
    function(arguments...);
  }
  OperationRoom* room;
  Function function;
};
template <class Function>
RoomHandler(OperationRoom*, Function) -> RoomHandler<Function>;

class AsioLanes final : public RawLanes {
 public:
  // Throws boost::system::system_error when the kernel refuses the ring, the duplicates of
  // the descriptors or the thread.
  AsioLanes(const ReadFiles& files, const AsioLanesOptions& options, RawSink& sink)
      : sink_(sink), rooms_(options.lanes), context_(1), work_(asio::make_work_guard(context_)) {
    if (options.setup_error != 0) {
      throw boost::system::system_error(options.setup_error, boost::system::system_category());
    }
    lanes_.reserve(options.lanes);
    for (std::uint32_t i = 0; i < options.lanes; ++i) {
      Lane& lane = lanes_.emplace_back(Lane{{}, Timer(context_), {}});
      lane.files.reserve(files.count());
      for (std::uint32_t file = 0; file < files.count(); ++file) {
        File& object = lane.files.emplace_back(context_);
        const int duplicate = ::fcntl(files.descriptor(file), F_DUPFD_CLOEXEC, 0);
        if (duplicate < 0) throw boost::system::system_error(errno, boost::system::system_category());
        object.assign(duplicate);
      }
    }
    register_region(options);
    thread_ = start_backend_thread("colibri-uring", [this] { context_.run(); });
  }

  ~AsioLanes() override {
    // No lane carries a read here, so the thread has nothing to wait for.
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // Nothing in here throws: operations have their room, and the files stay open.
  void start(std::uint32_t index, const RawRead& read) noexcept override {
    Lane& lane = lanes_[index];
    lane.read = read;
    if (read.delay.count() == 0) {
      start_now(index);
      return;
    }
    lane.timer.expires_after(read.delay);
    lane.timer.async_wait(
        RoomHandler{&rooms_[index], [this, index](const error_code&) { start_now(index); }});
  }

  void nudge() noexcept override {
    if (nudged_.exchange(true)) return;
    asio::post(context_, RoomHandler{&nudge_room_, [this] {
                                       nudged_.store(false);
                                       sink_.on_nudge();
                                     }});
  }

 private:
  struct Lane {
    std::vector<File> files;
    Timer timer;
    RawRead read;
  };

  void start_now(std::uint32_t index) {
    Lane& lane = lanes_[index];
    const RawRead& read = lane.read;
    auto handler = RoomHandler{&rooms_[index], [this, index](const error_code& error, std::size_t bytes) {
                                 // Asio reports the end of the file as an error of its own.
                                 const bool at_end = error == asio::error::eof;
                                 sink_.on_read(index, {error && !at_end ? error.value() : 0, bytes});
                               }};
    File& file = lane.files[read.file];
    // Wraps to a huge number when the destination lies before the region.
    const std::uint64_t offset =
        reinterpret_cast<std::uintptr_t>(read.destination) - reinterpret_cast<std::uintptr_t>(region_.data());
    if (offset < region_.size() && read.length <= region_.size() - offset &&
        offset / kRegisteredPiece == (offset + read.length - 1) / kRegisteredPiece) {
      asio::mutable_registered_buffer piece = (*registration_)[offset / kRegisteredPiece];
      piece += offset % kRegisteredPiece;
      file.async_read_some_at(read.offset, asio::buffer(piece, read.length), std::move(handler));
    } else {
      file.async_read_some_at(read.offset, asio::mutable_buffer(read.destination, read.length),
                              std::move(handler));
    }
  }

  void register_region(const AsioLanesOptions& options) {
    if (options.registered_region.empty()) return;
    std::vector<asio::mutable_buffer> pieces;
    for (std::uint64_t at = 0; at < options.registered_region.size(); at += kRegisteredPiece) {
      const auto piece = options.registered_region.subspan(
          at, std::min<std::uint64_t>(kRegisteredPiece, options.registered_region.size() - at));
      pieces.emplace_back(piece.data(), piece.size());
    }
    try {
      if (options.registration_error != 0) {
        throw boost::system::system_error(options.registration_error, boost::system::system_category());
      }
      registration_ = std::make_unique<Registration>(context_, pieces);
      region_ = options.registered_region;
    } catch (const boost::system::system_error& error) {
      if (!options.log) return;
      options.log("io_uring refused to register the expert memory (" + error.code().message() +
                  "), reading unregistered: " + std::to_string(options.registered_region.size()) +
                  " bytes; raise the limit on locked memory (ulimit -l) to that size");
    }
  }

  using Registration = asio::buffer_registration<std::vector<asio::mutable_buffer>>;

  RawSink& sink_;
  std::vector<OperationRoom> rooms_;  // one per lane; before the context, which destroys operations
  OperationRoom nudge_room_;
  std::atomic<bool> nudged_{false};
  std::span<std::byte> region_;
  asio::io_context context_;
  asio::executor_work_guard<Executor> work_;
  std::vector<Lane> lanes_;
  std::unique_ptr<Registration> registration_;
  std::thread thread_;
};

std::string_view remedy(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "allow it: sysctl kernel.io_uring_disabled=0, and a seccomp profile that permits io_uring_setup";
    case ENOMEM: return "raise the limit on locked memory (ulimit -l) or free memory";
    case ENOSYS: return "use a kernel with io_uring (5.6 or later)";
    case EMFILE: return "raise the limit on open files (ulimit -n) or use fewer lanes";
    default: return "use the pread backend";
  }
}

}  // namespace

Result<std::unique_ptr<RawLanes>> open_asio_lanes(const ReadFiles& files, const AsioLanesOptions& options,
                                                  RawSink& sink) {
  int error = 0;
  try {
    return std::unique_ptr<RawLanes>(std::make_unique<AsioLanes>(files, options, sink));
  } catch (const boost::system::system_error& refused) {
    error = refused.code().value();
  } catch (const std::system_error& refused) {  // the thread
    error = refused.code().value();
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  return Status(ErrorCode::unsupported, "io_uring was refused: " + std::generic_category().message(error) +
                                            "; " + std::string(remedy(error)));
}

}  // namespace colibri
