// engine/survivors.hpp - a group's side of the agreement on who goes on (agreement.hpp): hears what
// comes over the links, and tells the others.
//
// It listens all the group's life, so that a rank which comes late to a failure finds what the others
// have said. Opinions are told while its lock is held: nobody hears an older one after a newer.
//
// Thread-safety  any thread, any method.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/agreement.hpp"
#include "engine/members.hpp"

namespace tutti::engine {

class Survivors {
 public:
  explicit Survivors(const Members& members);

  // This rank wants to go on in a new group. False: it has said so before.
  bool join(std::uint32_t channel);
  void lose(int peer);
  void leave(int peer);
  // What a peer thinks. False: it takes this rank for dead, which is excluded by that.
  bool hear(int peer, std::string_view opinion);
  // Does not wait any longer for those who have not spoken. Names them.
  std::vector<int> give_up_waiting();

  bool is_decided() const;
  bool is_excluded() const;
  std::uint64_t changes() const;
  // Of the decision.
  std::vector<int> ranks() const;
  Opinion opinion() const;

 private:
  void tell();

  const Members& members_;
  mutable std::mutex mutex_;
  Agreement agreement_;
};

}  // namespace tutti::engine
