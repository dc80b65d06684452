// core/strangers.hpp - those who have connected and not yet proved who they are: how many may stay,
// who goes when there is no place left, and what is said of those who were turned away.
//
// Anybody can connect to a port. A connection that has proved nothing holds one of a bounded number of
// *places*. When all are taken the next newcomer takes the place of one that has least claim to it:
//
//   an address holds more than half of the places      one of its own goes
//   else, some have said nothing                       one of these, of the address that holds most
//   else: all have said hello in proper form           one of the address that holds most
//
// the silent before those who spoke, and the oldest first, among equal crowds too. So a flood from one
// address presses upon itself, and who speaks at once, as a rank does, is not driven out by those who
// wait in silence, from however many addresses. What one host has by the million counts as one address:
// all of 127.0.0.0/8, and an IPv6 network of 64 bits.
//
// Whoever accepts connections must read what a newcomer has sent *before* the next one is accepted
// (`spoke`), and accept a bounded number at a time (kAcceptsAtOnce), so that those inside get their
// turn whatever comes through the door.
//
// Thread-safety  none: the thread that accepts.
//
//   Strangers strangers(expected + 64);
//   if (auto out = strangers.admit(id, address)) close(*out);      // it made room
//   …                                                                   strangers.spoke(id);
//   strangers.leave(id);                                                // proved, or closed
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/clock.hpp"
#include "core/log.hpp"

namespace tutti {

// Connections that are accepted before those inside get their turn.
inline constexpr int kAcceptsAtOnce = 64;

class Strangers {
 public:
  using Id = std::uint64_t;  // the caller's name for a connection

  explicit Strangers(std::size_t places) : places_(places) {}

  // Somebody has connected from `address` (without the port: "10.0.0.7", or "user 1000"). Who has to
  // go for him, if the places were all taken.
  std::optional<Id> admit(Id id, const std::string& address);
  // It has said hello in proper form: that proves nothing, but silence would be less.
  void spoke(Id id);
  // It has proved who it is, or it is closed. Not an error for one who is not here.
  void leave(Id id);
  // The one with least claim to its place, and to its descriptor; nothing: nobody is here.
  std::optional<Id> least_claim() const;

  std::size_t count() const { return here_.size(); }
  std::size_t places() const { return places_; }
  // "" for one who is not here.
  std::string address_of(Id id) const;

 private:
  struct Stranger {
    std::string address;
    std::string crowd;
    bool spoke = false;
  };
  // Of what counts as one address, in the order in which they came.
  struct Crowd {
    std::map<std::uint64_t, Id> silent;
    std::map<std::uint64_t, Id> speaking;
    std::size_t size() const { return silent.size() + speaking.size(); }
    // Its number, and who it is.
    std::pair<std::uint64_t, Id> first() const {
      return *(silent.empty() ? speaking : silent).begin();
    }
  };

  std::size_t places_;
  std::uint64_t arrivals_ = 0;
  std::unordered_map<Id, std::pair<std::uint64_t, Stranger>> here_;  // with its number
  std::map<std::string, Crowd> crowds_;
};

// Says at WARN who was turned away and why, but not for everybody: the first kLinesAtOnce, then one
// line in kLineEvery that counts the others. The rest is told when it goes.
class RefusalLog {
 public:
  static constexpr int kLinesAtOnce = 3;
  static constexpr Nanoseconds kLineEvery = std::chrono::seconds(5);

  RefusalLog(Log log, Subsystem subsystem) : log_(std::move(log)), subsystem_(subsystem) {}
  ~RefusalLog();
  RefusalLog(const RefusalLog&) = delete;
  RefusalLog& operator=(const RefusalLog&) = delete;

  void note(const std::string& address, const std::string& why, Nanoseconds now);
  std::uint64_t count() const { return count_; }

 private:
  Log log_;
  Subsystem subsystem_;
  std::uint64_t count_ = 0;
  std::uint64_t untold_ = 0;
  std::string last_address_;  // of the untold
  std::string last_why_;
  Nanoseconds next_line_{0};
};

}  // namespace tutti
