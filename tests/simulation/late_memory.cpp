#include "simulation/late_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace tutti::simulation {
namespace {

constexpr std::size_t kPage = 4096;
static_assert(offsetof(engine::RankMemory, windows) == kPage, "flags fill the first page");

constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
constexpr std::size_t kBytes = whole_pages(sizeof(engine::RankMemory));

void* checked(void* mapped) {
  if (mapped == MAP_FAILED) throw std::runtime_error("mmap failed");
  return mapped;
}

}  // namespace

LateMemory::LateMemory(int ranks) : ranks_(ranks) {
  for (int owner = 0; owner < ranks; ++owner) {
    const int file = ::memfd_create("tutti-test", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(kBytes)) != 0)
      throw std::runtime_error("no memory to share");
    files_.push_back(file);
    for (int reader = 0; reader < ranks; ++reader) {
      void* memory = checked(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
      if (reader != owner)
        checked(::mmap(memory, kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
      views_.push_back(static_cast<engine::RankMemory*>(memory));
    }
  }
}

LateMemory::~LateMemory() {
  for (engine::RankMemory* view : views_) ::munmap(view, kBytes);
  for (const int file : files_) ::close(file);
}

void LateMemory::meet_in(engine::Channel& channel, engine::Engine& engine,
                         const schedule::HostFacts& facts) const {
  const engine::ChannelOptions& group = channel.options();
  std::vector<engine::HostMemory::Member> members;
  std::vector<int> others;
  for (int peer = 0; peer < ranks_; ++peer) {
    const bool is_self = peer == group.rank;
    members.push_back(
        {part(peer, group.rank), is_self ? nullptr : &channel.link_to(peer), ::getpid()});
    if (!is_self) others.push_back(group.members[static_cast<std::size_t>(peer)]);
  }
  channel.meet_in(std::make_unique<engine::HostMemory>(
      group.rank, std::move(members), std::move(others), engine.endpoint(), nullptr, facts));
}

bool LateMemory::refresh(int reader, std::mt19937_64& random, bool all) {
  bool moved = false;
  for (int owner = 0; owner < ranks_; ++owner) {
    if (owner == reader) continue;
    auto* seen = reinterpret_cast<std::byte*>(part(owner, reader));
    const auto* now = reinterpret_cast<const std::byte*>(part(owner, owner));
    if (std::memcmp(seen, now, kPage) == 0 || (!all && random() % 3 == 0)) continue;
    std::memcpy(seen, now, kPage);
    moved = true;
  }
  return moved;
}

}  // namespace tutti::simulation
