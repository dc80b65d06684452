#include "transport/window.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>

#include "core/check.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kPage = 4096;
// What a rank's large blocks may take in all: with many ranks beside each other each lane gets
// fewer.
constexpr std::size_t kArenaBudget = std::size_t{32} << 20;
constexpr std::size_t kMaxLargeBytes = std::size_t{4} << 20;

// Among more ranks than this most lanes are never used: a huge page for each that is would be mostly air.
constexpr std::uint32_t kMostLanesOfHugePages = 64;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

constexpr std::size_t kLanesOffset = round_up(sizeof(WindowHead), kPage);

// A peer's numbers decide how much is read through them: none may exceed what we would make, and each
// is read once, because the peer could change it after it was found good.
Result<WindowShape> read_head(WindowHead& head, std::size_t bytes, int rank, std::uint32_t lanes) {
  if (head.magic != kWindowMagic) return Status(Code::corrupt, "the memory is not a window");
  if (head.version != kWindowVersion)
    return Status(Code::mismatch,
                  fmt::format("window layout {} meets layout {}; all ranks must use the same build",
                              head.version, kWindowVersion));
  const auto once = [](auto& word) { return std::atomic_ref(word).load(); };
  const WindowShape shape{once(head.lanes), once(head.large_blocks), once(head.large_bytes)};
  if (head.rank != rank || head.bytes != bytes || shape.lanes != lanes || shape.large_blocks == 0 ||
      shape.large_blocks > kMaxLargeBlocks || shape.large_bytes < kSmallBytes ||
      shape.large_bytes > kMaxLargeBytes || shape.bytes() != bytes)
    return Status(Code::corrupt, fmt::format("the window of rank {} contradicts itself", rank));
  return shape;
}

// Whoever rings writes to a descriptor that its owner handed over: it must be one that never makes
// the writer wait.
Status check_bell(int bell, int rank) {
  char text[64] = {};
  const auto length =
      ::readlink(fmt::format("/proc/self/fd/{}", bell).c_str(), text, sizeof text - 1);
  const int flags = ::fcntl(bell, F_GETFL);
  if (length > 0 && std::string_view(text) == "anon_inode:[eventfd]" && flags >= 0 &&
      (flags & O_NONBLOCK) != 0)
    return {};
  return Status(Code::corrupt, fmt::format("the bell of rank {} is none", rank));
}

// The windows of this process. Ranks of one process name theirs by number: an address could be followed
// when its window is gone.
class WindowsHere {
 public:
  std::uint64_t add(const std::shared_ptr<Window>& window) {
    const std::lock_guard lock(mutex_);
    std::erase_if(windows_, [](const auto& each) { return each.second.expired(); });
    windows_.emplace(++last_, window);
    return last_;
  }
  std::shared_ptr<Window> find(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = windows_.find(number);
    return found == windows_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<Window>> windows_;
  std::uint64_t last_ = 0;
};

WindowsHere& windows_here() {
  // Never destroyed: a rank may join, or leave, while its process ends.
  static WindowsHere& windows = *new WindowsHere;
  return windows;
}

}  // namespace

WindowShape WindowShape::of(int lanes, std::size_t segment_bytes) {
  WindowShape shape;
  shape.lanes = static_cast<std::uint32_t>(lanes);
  shape.large_bytes = round_up(std::clamp(segment_bytes, kSmallBytes, kMaxLargeBytes), kPage);
  const std::size_t affordable =
      kArenaBudget / (shape.large_bytes * static_cast<std::size_t>(std::max(lanes, 1)));
  shape.large_blocks =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(affordable, 2, kMaxLargeBlocks));
  return shape;
}

std::size_t WindowShape::lane_offset(int lane) const {
  return kLanesOffset + static_cast<std::size_t>(lane) * sizeof(PairLane);
}

std::size_t WindowShape::block_offset(int lane, std::size_t block) const {
  const std::size_t arenas = round_up(lane_offset(static_cast<int>(lanes)), kPage);
  const std::size_t arena_bytes = kSmallBlocks * kSmallBytes + large_blocks * large_bytes;
  const std::size_t small = std::min(block, kSmallBlocks);
  return arenas + static_cast<std::size_t>(lane) * arena_bytes + small * kSmallBytes +
         (block - small) * large_bytes;
}

std::size_t WindowShape::block_bytes(std::size_t block) const {
  return block < kSmallBlocks ? kSmallBytes : large_bytes;
}

std::size_t WindowShape::bytes() const { return block_offset(static_cast<int>(lanes), 0); }

Window::Window(Mapping mapping, Descriptor memory, Descriptor bell)
    : mapping_(std::move(mapping)), memory_(std::move(memory)), bell_(std::move(bell)) {}

Result<std::shared_ptr<Window>> Window::create(int rank, const WindowShape& shape, bool shared) {
  const std::size_t bytes = shape.bytes();
  Descriptor memory;
  if (shared) {
    auto made = make_shared_memory("tutti-window", bytes);
    if (!made.ok()) return made.status();
    memory = std::move(*made);
  }
  auto mapping = shared ? Mapping::shared(memory.get(), bytes, true) : Mapping::anonymous(bytes);
  if (!mapping.ok()) return mapping.status();
  if (shape.lanes > kMostLanesOfHugePages) mapping->keep_to_small_pages();
  Descriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) return errno_status("cannot make an eventfd");

  auto window = std::make_shared<Window>(std::move(*mapping), std::move(memory), std::move(bell));
  window->shape_ = shape;
  WindowHead& head = window->head();  // zeroed memory: all counters start at 0
  head.version = kWindowVersion;
  head.rank = rank;
  head.lanes = shape.lanes;
  head.large_blocks = shape.large_blocks;
  head.large_bytes = shape.large_bytes;
  head.bytes = bytes;
  head.pid = ::getpid();
  head.magic = kWindowMagic;
  window->number_ = windows_here().add(window);
  return window;
}

std::shared_ptr<Window> Window::created_here(std::uint64_t number) {
  return windows_here().find(number);
}

Result<std::shared_ptr<Window>> Window::attach(Descriptor memory, Descriptor bell,
                                               std::size_t bytes, int rank, std::uint32_t lanes) {
  if (bytes < kLanesOffset) return Status(Code::corrupt, "the memory is too small for a window");
  auto mapping = Mapping::shared(memory.get(), bytes, false);
  if (!mapping.ok()) return mapping.status();
  auto window = std::make_shared<Window>(std::move(*mapping), Descriptor(), std::move(bell));
  const auto shape = read_head(window->head(), bytes, rank, lanes);
  if (!shape.ok()) return shape.status();
  if (Status status = check_bell(window->bell(), rank); !status.ok()) return status;
  window->shape_ = *shape;
  return window;
}

void Window::ring() const noexcept {
  const std::uint64_t one = 1;
  // A full counter means that it was rung already.
  // bounded: EFD_NONBLOCK
  [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof one);
}

}  // namespace tutti::transport
