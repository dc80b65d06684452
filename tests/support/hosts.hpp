// support/hosts.hpp - two emulated hosts: network namespaces joined by a virtual cable.
//
//   host 0: 10.213.0.1  ────────  host 1: 10.213.0.2
//
// The namespaces have no name anywhere: they are held by descriptors alone and vanish with the last
// process that has one, however it ends.
#pragma once

#include <array>
#include <optional>
#include <string>

namespace tutti::test {

class TwoHosts {
 public:
  // Why it cannot be done here (no root, no ip command); absent when it can.
  static std::optional<std::string> unavailable();

  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool ok() const { return failure_.empty(); }
  const std::string& failure() const { return failure_; }
  static std::string address_of(int host) { return host == 0 ? "10.213.0.1" : "10.213.0.2"; }

  // Moves the calling thread there; call it before making others.
  void enter(int host) const;
  // And back to where it was made.
  void leave() const;

 private:
  void lay_cable();

  int home_ = -1;
  std::array<int, 2> host_{-1, -1};
  std::string failure_;
};

}  // namespace tutti::test
