#include "position.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string>

namespace pretrain {

using tutti::Code;
using tutti::Status;

tutti::train::CheckpointInfo to_checkpoint(const Position& position, const Flags& flags,
                                           std::size_t data_bytes) {
  tutti::train::CheckpointInfo info;
  info.iteration = position.steps;
  info.extra = {{"consumed_sequences", std::to_string(position.sequences)},
                {"seed", std::to_string(flags.seed)},
                {"seq_length", std::to_string(flags.seq_length)},
                {"global_batch_size", std::to_string(flags.global_batch_size)},
                {"data_bytes", std::to_string(data_bytes)}};
  return info;
}

tutti::Result<Position> from_checkpoint(const tutti::train::CheckpointInfo& info,
                                        const Flags& flags, std::size_t data_bytes) {
  const auto find = [&](const char* name) {
    const auto found = info.extra.find(name);
    return found == info.extra.end() ? std::string() : found->second;
  };
  struct Condition {
    const char* name;
    const char* flag;
    std::string here;
  };
  for (const Condition& condition :
       {Condition{"seed", "--seed", std::to_string(flags.seed)},
        Condition{"seq_length", "--seq-length", std::to_string(flags.seq_length)},
        Condition{"data_bytes", "the size of --data-path", std::to_string(data_bytes)}}) {
    if (find(condition.name) == condition.here) continue;
    return Status(Code::invalid_argument,
                  fmt::format("{} is {} here and was '{}' in the checkpoint of --load {}: its data "
                              "position and random state would mean something else",
                              condition.flag, condition.here, find(condition.name), flags.load));
  }
  Position position;
  position.steps = info.iteration;
  const std::string text = find("consumed_sequences");
  const char* end = text.data() + text.size();
  if (text.empty() || std::from_chars(text.data(), end, position.sequences).ptr != end) {
    return Status(Code::corrupt,
                  "the checkpoint of --load " + flags.load + " has no data position");
  }
  return position;
}

}  // namespace pretrain
