// tests/simulation/intruder.hpp - somebody who comes to a rank's door and is not, or not any more, the
// rank that is awaited.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "core/auth.hpp"
#include "core/sockets.hpp"

namespace tutti::simulation {

class Intruder {
 public:
  enum class Kind : std::uint8_t {
    silent,        // connects, and no more
    breaks_off,    // leaves in the middle of its hello, or behind it
    wrong_secret,  // does not know the secret
    old_epoch,     // knows it from an earlier incarnation of the job
    replay,        // says what a real rank has said
    halfway,       // proves to be a rank that connects, too, and says no more
    duplicate,     // proves to be a rank that is linked already, and wants in
  };
  static constexpr int kKinds = 7;
  // At whose door, and as whom.
  struct Aim {
    int target = 0;
    int rank = 0;
    std::string address;
    bool local = false;
    std::uint64_t epoch = 0;
    std::string_view secret;
    std::string overheard;  // for a replay
  };

  Intruder(Kind kind, const Aim& aim, std::mt19937_64& random);
  // Goes on as far as it can; the last bytes of a hello or proof come later now and then.
  void step();
  Kind kind() const { return kind_; }
  int target() const { return aim_.target; }
  // The other side has hung up.
  bool is_out() const { return out_; }
  // It had said everything that there is to refuse.
  bool has_claimed() const { return claimed_; }

 private:
  bool send_some();
  void hear();
  void go_on(std::string_view heard);

  Kind kind_;
  Aim aim_;
  std::mt19937_64& random_;
  Descriptor socket_;
  std::optional<Handshake> handshake_;
  std::string outbox_;
  std::size_t leave_after_ = 0;  // bytes; 0: stays
  std::size_t sent_ = 0;
  bool claimed_ = false;
  bool out_ = false;
};

}  // namespace tutti::simulation
