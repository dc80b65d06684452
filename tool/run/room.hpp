// tool/run/room.hpp - whether this host has room for a job's ranks, asked before any is started.
//
// All ranks of a group are linked to each other: descriptors grow with the number of ranks, and the
// memory of those beside each other with its square.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/limits.hpp"
#include "tutti/config.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

struct RoomNeeds {
  std::uint64_t launcher_descriptors = 0;
  std::uint64_t rank_descriptors = 0;
  std::uint64_t threads = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t address_bytes = 0;  // of one rank, which maps the windows of all others here

  // Of `local` ranks here, in a job of `size`. `logs`: a file per stream of a rank.
  static RoomNeeds of(int local, int size, const Config& config, bool logs);
};

struct HostRoom {
  std::uint64_t descriptors = kNoLimit;  // of one process, after raising its limit
  std::uint64_t threads = kNoLimit;
  std::uint64_t memory_bytes = kNoLimit;
  std::uint64_t address_bytes = kNoLimit;  // of one process

  static HostRoom of_this_host();
};

// Code::invalid_argument names what is short, how much is needed, and what to do. `groups`: whether
// the ranks are going to make a group of all of them.
Status check_room(int local, const RoomNeeds& needs, const HostRoom& room, bool groups);

}  // namespace tutti::tool
