#include "hand_over/invitation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/bytes.hpp"
#include "hand_over/weight_layout.hpp"

namespace tutti::hand_over {
namespace {

constexpr std::size_t kMostBytes = 8192;
// Those who meet in a round have said just now that they are there.
constexpr std::chrono::seconds kMeetWithin{15};

Result<std::shared_ptr<Group>> pair_of(Group& group, int trainer, int receiver) {
  const std::array<int, 2> pair = {trainer, receiver};
  return group.subgroup(pair, kPairTag, {fmt::format("{}/weights to {}", group.name(), receiver)});
}

}  // namespace

Status invite(Group& group, int receiver, const Entrance& door) {
  auto pair = pair_of(group, group.rank(), receiver);
  if (!pair.ok()) return pair.status();
  ByteWriter writer;
  writer.put_string(door.addresses());
  writer.put_string(door.secret());
  const std::string text = writer.take();
  Status sent = (*pair)->send({text.data(), text.size(), Dtype::u8}, 1);
  // It is gone when it has answered.
  char taken = 0;
  if (sent.ok()) sent = (*pair)->recv({&taken, 1, Dtype::u8}, 1).status();
  return sent;
}

Result<Invitation> be_invited(Group& group, int trainer) {
  auto pair = pair_of(group, trainer, group.rank());
  if (!pair.ok()) return pair.status();
  std::string text(kMostBytes, '\0');
  const auto received = (*pair)->recv({text.data(), text.size(), Dtype::u8}, 0);
  if (!received.ok()) return received.status();
  text.resize(received->bytes);
  ByteReader reader(text);
  Invitation invitation;
  if (!reader.get_string(invitation.addresses) || !reader.get_string(invitation.secret))
    return Status(Code::corrupt, "the trainer's invitation cannot be read");
  const char taken = 1;
  if (Status status = (*pair)->send({&taken, 1, Dtype::u8}, 0); !status.ok()) return status;
  return invitation;
}

Result<Config> config_for_rounds(const std::optional<Config>& given) {
  auto config = given ? Result<Config>(*given) : Config::from_environment();
  if (!config.ok()) return config;
  config->join_timeout = std::min<std::chrono::nanoseconds>(config->join_timeout, kMeetWithin);
  config->tuning = "fixed";
  config->trace_dir.clear();
  config->dump_dir.clear();
  config->use_switch = false;
  return config;
}

}  // namespace tutti::hand_over
