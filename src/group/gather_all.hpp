// group/gather_all.hpp - what every rank says of itself, while a group is being made.
#pragma once

#include <vector>

#include "group/rank_group.hpp"

namespace tutti::group {

// By messages that any group has from the start. No timeout: the group's own.
inline CallOptions internal_call(std::chrono::nanoseconds timeout = {},
                                 Algorithm algorithm = Algorithm::direct) {
  CallOptions options;
  options.algorithm = algorithm;
  options.timeout = timeout;
  return options;
}

template <class T>
Result<std::vector<T>> gather_all(RankGroup& group, const T& mine,
                                  const CallOptions& call = internal_call()) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  CallOptions options = call;
  if (options.algorithm == Algorithm::direct)
    options.algorithm = group.set_up_algorithm(Collective::all_gather);
  const Status status =
      group.all_gather(ConstBuffer{&mine, sizeof mine, Dtype::u8},
                       Buffer{all.data(), all.size() * sizeof(T), Dtype::u8}, options);
  if (!status.ok()) return status;
  return all;
}

// Whether all ranks say yes.
inline Result<bool> all_say_yes(RankGroup& group, bool mine, const CallOptions& call) {
  auto said = gather_all(group, static_cast<std::uint8_t>(mine), call);
  if (!said.ok()) return said.status();
  for (std::uint8_t each : *said)
    if (each == 0) return false;
  return true;
}

}  // namespace tutti::group
