// Starts the threads of a read backend, and of a conversion: named, and deaf to signals.
//
// Signals belong to the threads of the host; a handler that ran on a reading thread would
// only cost interrupted reads. Internal to io.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace colibri {

// May throw std::system_error, as std::thread does when the system has no thread left.
template <class Body>
std::thread start_backend_thread(const char* name, Body&& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t* mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, mask, nullptr); }
  } const restore{&before};
  std::thread thread(std::forward<Body>(body));
  pthread_setname_np(thread.native_handle(), name);  // at most 15 characters
  return thread;
}

}  // namespace colibri
