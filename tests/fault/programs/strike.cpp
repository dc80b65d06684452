#include "strike.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tutti::test {
namespace {

void note(int rank, const std::string& where) {
  const char* path = std::getenv("FAULT_NOTE");
  if (path == nullptr) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string line =
      fmt::format("{{\"fault\": {:.6f}, \"rank\": {}, \"where\": \"{}\"}}\n", now_s(), rank, where);
  (void)!write(file, line.data(), line.size());
  close(file);
}

// Holds no lock of the allocator, whoever else waits for one.
[[noreturn]] void take_memory() {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  for (;;) {
    void* piece = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece != MAP_FAILED) std::memset(piece, 1, kPiece);
  }
}

void compute(double seconds) {
  volatile double sink = 0;
  for (const double end = now_s() + seconds; now_s() < end;)
    for (int i = 0; i < 1000; ++i) sink = sink + i;
}

void leave_child() {
  if (fork() != 0) return;
  setsid();
  alarm(120);  // against a test that forgets it
  for (;;) pause();
}

}  // namespace

double now_s() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void strike(const std::string& how, int rank, const std::string& where, double seconds) {
  note(rank, where);
  if (how == "stop") raise(SIGSTOP);
  if (how == "compute") compute(seconds);
  if (how == "sleep") usleep(static_cast<useconds_t>(seconds * 1e6));
  if (how == "memory") take_memory();
  if (how == "segv") *static_cast<volatile int*>(nullptr) = 0;
  if (how == "exit") std::_Exit(7);
  if (how == "leave") std::_Exit(0);
  if (how == "fork") leave_child();
  if (how == "kill" || how == "fork") kill(getpid(), SIGKILL);
}

}  // namespace tutti::test
