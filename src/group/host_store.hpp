// group/host_store.hpp - one rank of a host asks the store for what all are told alike; the others ask that rank.
//
//   store ── "…/all" ──▶ leader of a host ── its server, an abstract socket ──▶ the others of the host
//
// The first rank of a host to come leads it. Others find it by a name that nobody can guess who does not
// read the store, and both prove that they know the secret of the links. Whoever cannot reach it, or loses it, asks
// the store itself, which holds all of it as ever: no promise rests on a leader.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "core/secret.hpp"
#include "tutti/store.hpp"

namespace tutti::group {

struct HostStore {
  std::shared_ptr<Store> store;  // null: there is none
  bool leads = false;
  std::unique_ptr<StoreServer> server{};  // of the one that leads

  // Of those ranks of this host (its network namespace) that name the same epoch.
  static HostStore find(std::string_view epoch, const Secret& secret);
  // Counts this rank among those that ask here.
  void enter();
  // This rank needs no more of it. The leader stays until all who came have left; not for long.
  void leave(std::chrono::milliseconds patience, const Clock& clock = steady_clock());

 private:
  std::int64_t number_ = 0;
};

}  // namespace tutti::group
