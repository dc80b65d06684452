// core/threads.hpp - threads that the library starts for itself.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {

// Starts a thread with all signals blocked: handlers and sigwait of the program stay with its own
// threads. `name` (15 letters) shows in ps and in debuggers.
template <class Body>
std::thread start_quiet_thread(const char* name, Body&& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Also where there is no thread to be had, which is thrown.
  const std::unique_ptr<sigset_t, void (*)(sigset_t*)> restored(
      &before, [](sigset_t* mask) { pthread_sigmask(SIG_SETMASK, mask, nullptr); });
  std::thread thread(std::forward<Body>(body));
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

// Cores that the calling thread may run on: fewer than the machine has where somebody pinned it.
inline int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (pthread_getaffinity_np(pthread_self(), sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

// Lets the calling thread run on these cores only. False: the system does not have them for us.
inline bool pin_this_thread(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) {
    if (cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, &set);
  }
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

// Moves the calling thread to this core, from where the system may move it on. Nothing happens where it may not
// run there.
inline void move_to_core(int cpu) {
  cpu_set_t before;
  CPU_ZERO(&before);
  const bool known = pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0;
  if (!known || cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &before)) return;
  if (pin_this_thread({cpu})) pthread_setaffinity_np(pthread_self(), sizeof before, &before);
}

}  // namespace tutti
