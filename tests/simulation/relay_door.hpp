// tests/simulation/relay_door.hpp - a door of its own before a rank's tcp door: what comes in goes on in
// pieces, and some connections break before their rank has said all that it has to say.
//
// A connection never breaks once the other side may have taken it: then it is a link, and its end is a
// death.
#pragma once

#include <cstdint>
#include <list>
#include <random>
#include <string>

#include "core/sockets.hpp"

namespace tutti::simulation {

class RelayDoor {
 public:
  // `breaks_in_ten`: connections that do.
  RelayDoor(const std::string& target, unsigned breaks_in_ten, std::mt19937_64& random);

  const std::string& address() const { return address_; }
  // Takes in who has come, and hands on what has. True if anything did.
  bool move();
  // What a rank has said to get in, once one has; for those who replay it.
  const std::string& overheard() const { return overheard_; }
  int breaks() const { return breaks_; }
  // The rank behind it has died.
  void close();

 private:
  struct Passage {
    Descriptor inner, outer;
    std::size_t break_at = 0;  // bytes from the outside; 0: never
    std::string said;          // by the outside, while it gets in
  };
  bool let_in();
  bool pass_inwards(Passage& passage);
  bool pass_outwards(Passage& passage);

  SocketAddress target_;
  unsigned breaks_in_ten_;
  std::mt19937_64& random_;
  Descriptor listener_;
  std::string address_;
  std::list<Passage> passages_;
  std::string overheard_;
  int breaks_ = 0;
};

// What the connecting side says until it is in: hello, proof, and what it wants.
std::size_t bytes_to_get_in();

}  // namespace tutti::simulation
