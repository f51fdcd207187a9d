// contained: no exception leaves the library. Functions of the host and the allocator may throw.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "io/status.hpp"

namespace colibri {

// What work() returns (a Status or a Result), or what it threw as a Status; `what` names where that was.
template <class Work>
auto contained(Work&& work, const char* what = "exception outside of stages") -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status::no_memory();
  } catch (const std::exception& error) {
    return Status(ErrorCode::internal, std::string(what) + ": " + error.what());
  } catch (...) {
    return Status(ErrorCode::internal, std::string(what) + " that is no std::exception");
  }
}

}  // namespace colibri
