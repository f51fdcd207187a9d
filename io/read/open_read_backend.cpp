// open_read_backend: checks the options and walks down the ladder from io_uring to pread.
#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "io/read/asio_backend.hpp"
#include "io/read/fault_backend.hpp"
#include "io/read/fault_lanes.hpp"
#include "io/read/pread_backend.hpp"
#include "io/read/read_backend.hpp"
#include "io/read/read_files.hpp"
#include "io/read/read_scheduler.hpp"
#include "io/read/throttle_lanes.hpp"
#include "io/read/virtual_device.hpp"
#include "io/read/virtual_lanes.hpp"

namespace colibri {
namespace {

constexpr std::uint32_t kDefaultUringLanes = 16;
constexpr std::uint32_t kDefaultPreadLanes = 8;

Status check_options(std::size_t files, const ReadBackendOptions& options,
                     const ReadBackend::OnComplete& on_complete) {
  if (!on_complete) {
    return Status(ErrorCode::invalid_input, "read backend needs a completion function; pass one");
  }
  if (options.lanes > kMaxReadLanes) {
    return Status(ErrorCode::invalid_input, "too many read lanes: " + std::to_string(options.lanes) +
                                                "; use at most " + std::to_string(kMaxReadLanes));
  }
  if (options.max_outstanding == 0 || options.inflight_bytes == 0 || options.read_bytes == 0) {
    return Status(ErrorCode::invalid_input,
                  "read limits must not be 0: max_outstanding " + std::to_string(options.max_outstanding) +
                      ", inflight_bytes " + std::to_string(options.inflight_bytes) + ", read_bytes " +
                      std::to_string(options.read_bytes) + "; set each to at least 1");
  }
  if (options.copies == 0 || files % options.copies != 0) {
    return Status(ErrorCode::invalid_input,
                  "files to read from are not a multiple of their copies: " + std::to_string(files) +
                      " files, " + std::to_string(options.copies) + " copies");
  }
  if (options.virtual_device && !options.drives.empty()) {
    return Status(ErrorCode::invalid_input,
                  "reads on a virtual clock cannot be held back in real time; give "
                  "the virtual device the law of the drives");
  }
  return Status::ok();
}

// What carries reads out.
enum class LaneKind : std::uint8_t { io_uring, pread, on_virtual_clock };
constexpr std::string_view kLaneNames[] = {"io_uring", "pread", "virtual clock"};

Result<std::unique_ptr<RawLanes>> open_lanes(ReadScheduler& scheduler, LaneKind kind, std::uint32_t count,
                                             const ReadBackendOptions& options, RawSink& sink) {
  switch (kind) {
    case LaneKind::io_uring: {
      AsioLanesOptions asio_options{count, options.registered_region, options.log};
      if (options.faults) {
        asio_options.setup_error = options.faults->ring_setup_error;
        asio_options.registration_error = options.faults->registration_error;
      }
      return open_asio_lanes(scheduler.files(), asio_options, sink);
    }
    case LaneKind::pread: return open_pread_lanes(scheduler.files(), count, sink);
    case LaneKind::on_virtual_clock: break;
  }
  return std::unique_ptr<RawLanes>(std::make_unique<VirtualLanes>(options.virtual_device, scheduler.limit(),
                                                                  scheduler.files(), count, sink));
}

// Opens lanes of one kind for the scheduler, and what stands between them: first what holds reads back,
// then the faults. Virtual lanes keep to the limit by themselves.
Status attach_lanes(ReadScheduler& scheduler, LaneKind kind, const ReadBackendOptions& options) {
  const std::uint32_t count = options.lanes != 0
                                  ? options.lanes
                                  : (kind == LaneKind::pread ? kDefaultPreadLanes : kDefaultUringLanes);
  RawSink* sink = &scheduler;
  std::unique_ptr<FaultLanes> faults;
  if (options.faults) {
    faults = std::make_unique<FaultLanes>(options.faults, count, *sink);
    sink = faults.get();
  }
  std::unique_ptr<ThrottleLanes> throttle;
  if (kind != LaneKind::on_virtual_clock) {
    throttle = std::make_unique<ThrottleLanes>(ReadPace{options.drives, scheduler.limit()}, count, *sink);
    sink = throttle.get();
  }
  COLIBRI_ASSIGN_OR_RETURN(std::unique_ptr<RawLanes> lanes,
                           open_lanes(scheduler, kind, count, options, *sink));
  if (throttle) {
    throttle->attach(std::move(lanes));
    lanes = std::move(throttle);
  }
  if (faults) {
    faults->attach(std::move(lanes));
    lanes = std::move(faults);
  }
  scheduler.attach(std::move(lanes), count, kLaneNames[static_cast<std::size_t>(kind)]);
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<ReadBackend>> open_read_backend(std::span<const std::filesystem::path> paths,
                                                       const ReadBackendOptions& options,
                                                       ReadBackend::OnComplete on_complete) {
  COLIBRI_RETURN_IF_ERROR(check_options(paths.size(), options, on_complete));
  try {
    const int direct_open_error = options.faults ? options.faults->direct_open_error : 0;
    COLIBRI_ASSIGN_OR_RETURN(auto files,
                             ReadFiles::open(paths, options.direct, options.log, direct_open_error));
    auto scheduler = std::make_unique<ReadScheduler>(std::move(files), options, std::move(on_complete));
    if (options.virtual_device) {
      COLIBRI_RETURN_IF_ERROR(attach_lanes(*scheduler, LaneKind::on_virtual_clock, options));
      return std::unique_ptr<ReadBackend>(std::move(scheduler));
    }
    bool attached = false;
    if (options.kind != ReadKind::pread) {
      Status refused = attach_lanes(*scheduler, LaneKind::io_uring, options);
      if (!refused && options.kind == ReadKind::io_uring) return refused;
      attached = refused.is_ok();
      if (!attached && options.log) {
        options.log(std::string(refused.message()) + "; reading with a pool of threads instead");
      }
    }
    if (!attached) COLIBRI_RETURN_IF_ERROR(attach_lanes(*scheduler, LaneKind::pread, options));
    return std::unique_ptr<ReadBackend>(std::move(scheduler));
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory,
                  "no memory for the queue of reads: " + std::to_string(options.max_outstanding) +
                      " entries; lower max_outstanding");
  } catch (const std::system_error& error) {
    return Status(ErrorCode::out_of_memory, std::string("a thread for reading was refused: ") + error.what() +
                                                "; raise the limit (ulimit -u)");
  }
}

}  // namespace colibri
