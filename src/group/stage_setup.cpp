// The stage of a group whose ranks are all on one host: made, shared and tried before it is used.
#include <cstring>
#include <random>
#include <thread>

#include "engine/stage.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {
namespace {

using engine::Stage;
using engine::Stand;

void prepare(Stand& stand) {
  std::random_device random;
  stand.magic = engine::kStandMagic;
  stand.token = std::uint64_t{random()} << 32 | random();
  stand.address = reinterpret_cast<std::uintptr_t>(&stand);
}

// The process that its peer names may be another one here (process namespaces differ), or closed to
// us: only its token tells.
bool can_read(const Stage::Seat& seat) {
  if (seat.link == nullptr) return true;
  if (seat.process == 0) return false;
  std::uint64_t token = 0;
  return engine::read_memory(seat.process, seat.stand->address + offsetof(Stand, token), &token,
                             sizeof token) &&
         token == seat.stand->token;
}

}  // namespace

Status RankGroup::build_stage() {
  if (size() < 2 || size() > static_cast<int>(engine::kMaxStageRanks)) return {};
  auto beside = all_say_yes(*this, static_cast<int>(mapped_members().size()) == size() - 1);
  if (!beside.ok()) return beside.status();
  if (!*beside) return {};
  auto shared = share_memory(sizeof(Stand));
  if (!shared.ok()) {
    // All ranks have heard of it: messages serve as well, only slower.
    if (shared.status().code() == Code::out_of_memory) return {};
    return shared.status();
  }
  prepare(*static_cast<Stand*>(shared->memory.data));
  if (Status status = barrier(internal_call()); !status.ok()) return status;
  std::vector<Stage::Seat> seats;
  std::vector<int> others;
  bool readable = true;
  for (int peer = 0; peer < size(); ++peer) {
    Stage::Seat seat;
    seat.stand = static_cast<Stand*>(shared->memory.data);
    if (peer != rank()) {
      others.push_back(channel_->options().members[static_cast<std::size_t>(peer)]);
      seat.link = &channel_->link_to(peer);
      seat.process = seat.link->process();
      seat.stand = reinterpret_cast<Stand*>(seat.link->reach({shared->id, 0}, sizeof(Stand)));
      if (seat.stand == nullptr || seat.stand->magic != engine::kStandMagic)
        return {Code::corrupt, "the shared memory of another rank does not look like tutti's"};
    }
    readable = can_read(seat) && readable;
    seats.push_back(seat);
  }
  auto all_readable = all_say_yes(*this, readable);
  if (!all_readable.ok()) return all_readable.status();
  auto roomy = all_say_yes(*this, static_cast<int>(std::thread::hardware_concurrency()) >= size());
  if (!roomy.ok()) return roomy.status();
  auto stage = std::make_unique<Stage>(rank(), std::move(seats), std::move(others),
                                       world_->engine().endpoint(), shared->memory.owner);
  stage->allow_reading_memory(*all_readable);
  stage->set_crowded(!*roomy);
  channel_->set_stage(std::move(stage));
  return {};
}

}  // namespace tutti::group
