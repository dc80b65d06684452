// group/gather_all.hpp - what every rank says of itself, while a group is being made.
#pragma once

#include <vector>

#include "group/rank_group.hpp"

namespace tutti::group {

inline CallOptions internal_call() {
  CallOptions options;
  options.algorithm = Algorithm::direct;
  return options;
}

template <class T>
Result<std::vector<T>> gather_all(RankGroup& group, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  const Status status =
      group.all_gather(ConstBuffer{&mine, sizeof mine, Dtype::u8},
                       Buffer{all.data(), all.size() * sizeof(T), Dtype::u8}, internal_call());
  if (!status.ok()) return status;
  return all;
}

// Whether all ranks say yes.
inline Result<bool> all_say_yes(RankGroup& group, bool mine) {
  auto said = gather_all(group, static_cast<std::uint8_t>(mine));
  if (!said.ok()) return said.status();
  for (std::uint8_t each : *said)
    if (each == 0) return false;
  return true;
}

}  // namespace tutti::group
