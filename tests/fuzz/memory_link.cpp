// A neighbour in memory that publishes whatever it likes.
#include "transport/memory_link.hpp"

#include <unistd.h>

#include <memory>

#include "core/check.hpp"
#include "fuzz/targets.hpp"

namespace tutti::fuzz {
namespace {

using namespace transport;

// The windows stay; what was published is wiped before each input.
struct Neighbours {
  Neighbours() {
    mine = *Window::create(0, shape, true);
    theirs = *Window::create(1, shape, true);
    seen = *Window::attach(Descriptor(::dup(theirs->memory())), Descriptor(::dup(theirs->bell())),
                           theirs->bytes(), 1, shape.lanes);
  }
  void wipe() {
    for (Window* window : {mine.get(), theirs.get()})
      for (int lane = 0; lane < 2; ++lane)
        std::memset(static_cast<void*>(&window->lane(lane)), 0, sizeof(PairLane));
  }
  WindowShape shape = WindowShape::of(2, 8192);
  std::shared_ptr<Window> mine, theirs, seen;
};

struct Taker final : MessageSink {
  std::byte* place(int, const Header&) override { return nullptr; }
  void on_message(int, const Header& header, const Payload& payload) override {
    for (std::uint64_t i = 0; i < header.bytes; ++i) sum += static_cast<unsigned>(payload.data[i]);
    if (payload.lease != 0) leases.push_back(payload.lease);
  }
  void on_sent(std::uint64_t token) override { TUTTI_CHECK(token == 7); }
  void on_down(int, const Status& reason) override {
    TUTTI_CHECK(++downs == 1 && reason.code() == Code::corrupt);
  }
  std::vector<std::uint64_t> leases;
  unsigned sum = 0;
  int downs = 0;
};

struct Published {
  Header header;
  std::byte payload[kInlineBytes];
};

}  // namespace

// Byte 0: how much this rank has sent before, and how it treats views; then slot after slot.
void memory_link(Input input) {
  static Neighbours neighbours;
  neighbours.wipe();
  RegionTable regions;
  auto region = Mapping::anonymous(10'000);
  TUTTI_CHECK(regions.add(1, 12, std::make_shared<Mapping>(std::move(*region))));
  auto own = regions.allocate(5, 8192, false);
  MemoryLink link({.name = "shm",
                   .same_process = false,
                   .self = 0,
                   .peer = 1,
                   .mine = neighbours.mine,
                   .theirs = neighbours.seen,
                   .lane_of_peer = 1,
                   .lane_of_self = 0},
                  regions, Log(), nullptr);
  Taker taker;
  const auto mode = take<std::uint8_t>(input);
  const std::string text(200, 't');
  for (int i = 0; i < mode % 8; ++i)
    (void)link.send(header_for(MessageKind::data, 1, 1), text.data(), text.size(), 7);
  PairLane& lane = neighbours.theirs->lane(0);
  for (std::uint64_t tail = 0; !input.empty() && taker.downs == 0 && tail < 300;) {
    const auto published = take<Published>(input);
    Slot& slot = lane.slots[tail % kSlots];
    slot.header = published.header;
    std::memcpy(slot.payload, published.payload, sizeof published.payload);
    slot.sequence.store(++tail);
    if ((mode & 8) != 0) lane.consumed.store(published.header.tag);
    (void)link.send(header_for(MessageKind::data, 1, 1), own->region.data, 300, 7);
    link.poll(taker);
    if ((mode & 16) != 0 && !taker.leases.empty()) {
      link.release(taker.leases.back());
      taker.leases.pop_back();
    }
  }
  for (const std::uint64_t lease : taker.leases) (void)link.revoked(lease), link.release(lease);
  link.forget(1);
}

}  // namespace tutti::fuzz
