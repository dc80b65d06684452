// group/host_store.hpp - one rank of a host asks the store for what all are told alike; the others ask that rank.
//
//   store ── "…/all" ──▶ leader of a host ── its server, an abstract socket ──▶ the others of the host
//                              └── its door, of many hosts ──▶ up to kBranches leaders of other hosts
//
// The first rank of a host to come leads it. Others find it by a name that nobody can guess who does not
// read the store, and both prove that they know the secret of the links. Of more than kBranches hosts the leaders are
// a tree whose root is the store, in the order in which they came. Whoever cannot reach the one above, or loses
// it, asks the store itself, which holds all of it as ever: no promise rests on a leader.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "core/secret.hpp"
#include "tutti/config.hpp"
#include "tutti/store.hpp"

namespace tutti::group {

// How many each waits for, or tells, in a tree.
inline constexpr int kBranches = 16;

// A server of a leader for those of other hosts.
struct HostDoor {
  std::string address{};
  std::shared_ptr<Store> store{};         // what it tells; null: there is none
  std::unique_ptr<StoreServer> server{};  // null: of a simulation
};

// How leaders make such doors and come to them: by sockets, or in virtual time.
struct HostDoors {
  std::function<Result<HostDoor>()> open;
  std::function<Result<std::shared_ptr<Store>>(const std::string& address)> reach;

  // On the interface towards other hosts that links use, too.
  static HostDoors of_network(const Config& config, const Secret& secret);
};

struct HostStore {
  std::shared_ptr<Store> store{};  // null: there is none
  bool leads = false;
  std::unique_ptr<StoreServer> server{};  // of the one that leads
  HostDoor door{};                        // likewise, where hosts are below it
  std::shared_ptr<Store> above{};         // the door it asks itself; null: the store

  // Of those ranks of this host (its network namespace) that name the same epoch.
  static HostStore find(std::string_view epoch, const Secret& secret);
  // Counts this rank among those that ask here.
  void enter();
  // From here on a leader asks there.
  void climb(std::shared_ptr<Store> door);
  // What a leader has heard it tells those who ask it.
  void hand_on(const std::string& name, const std::string& value);
  // This rank needs no more of it. The leader stays until all who came have left; not for long.
  void leave(std::chrono::milliseconds patience, const Clock& clock = steady_clock());

 private:
  std::int64_t number_ = 0;        // among those who ask the host's leader,
  std::int64_t number_above_ = 0;  // or the leader's own, at the door above
};

}  // namespace tutti::group
