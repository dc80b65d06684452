#include "touched_memory.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tutti::test {
namespace {

void must(bool fact, const char* what) {
  if (fact) return;
  std::perror(what);
  std::_Exit(4);
}

}  // namespace

TouchedMemory::TouchedMemory(std::size_t pages, Filler filler, std::size_t moment,
                             std::function<void()> act)
    : pages_(pages), filler_(std::move(filler)), moment_(moment), act_(std::move(act)) {
  void* memory =
      mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(memory != MAP_FAILED, "mmap");
  data_ = static_cast<std::byte*>(memory);
  faults_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  must(faults_ >= 0, "userfaultfd");
  uffdio_api api{};
  api.api = UFFD_API;
  must(ioctl(faults_, UFFDIO_API, &api) == 0, "UFFDIO_API");
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uintptr_t>(memory), pages * kPage};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  must(ioctl(faults_, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
  end_ = eventfd(0, EFD_CLOEXEC);
  server_ = std::thread([this] { serve(); });
}

TouchedMemory::~TouchedMemory() {
  const std::uint64_t one = 1;
  (void)!write(end_, &one, sizeof one);
  server_.join();
  close(faults_);
  close(end_);
  munmap(data_, pages_ * kPage);
}

bool TouchedMemory::fill(std::size_t page) {
  alignas(kPage) static thread_local std::array<std::byte, kPage> contents;
  filler_(page, contents.data());
  uffdio_copy copy{};
  copy.dst = reinterpret_cast<std::uintptr_t>(data_) + page * kPage;
  copy.src = reinterpret_cast<std::uintptr_t>(contents.data());
  copy.len = kPage;
  copy.mode = UFFDIO_COPY_MODE_DONTWAKE;
  return ioctl(faults_, UFFDIO_COPY, &copy) == 0;
}

void TouchedMemory::wake(std::size_t first, std::size_t count) {
  uffdio_range range{reinterpret_cast<std::uintptr_t>(data_) + first * kPage, count * kPage};
  ioctl(faults_, UFFDIO_WAKE, &range);
}

void TouchedMemory::serve() {
  for (std::size_t touched = 0;;) {
    std::array<pollfd, 2> wait{pollfd{faults_, POLLIN, 0}, pollfd{end_, POLLIN, 0}};
    if (poll(wait.data(), wait.size(), -1) < 0) continue;
    if (wait[1].revents != 0) return;
    uffd_msg message{};
    if (read(faults_, &message, sizeof message) != sizeof message) continue;
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(data_);
    const std::size_t page = (message.arg.pagefault.address - start) / kPage;
    if (fill(page) && ++touched == moment_) {
      for (std::size_t other = 0; other < pages_; ++other) fill(other);
      act_();
      wake(0, pages_);
    }
    wake(page, 1);
  }
}

}  // namespace tutti::test
