// HomeProcess: the process in which something that has threads was made.
//
// fork copies objects, but only the thread that calls it: in the child nobody runs jobs or
// answers, locks may be held for ever, and what threads use must be left as it is. So such
// objects ask first whether they are at home.
#pragma once

#include <unistd.h>

#include "io/status.hpp"

namespace colibri {

class HomeProcess {
 public:
  bool forked() const noexcept { return ::getpid() != id_; }
  static Status forked_status() {
    return {
        ErrorCode::forked,
        "this process was made by fork, and the threads of the engine are in its parent; open the model in "
        "this process"};
  }

 private:
  pid_t id_ = ::getpid();
};

}  // namespace colibri
