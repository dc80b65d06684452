#include "support/hosts.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

namespace tutti::test {
namespace {

int this_namespace() { return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }

bool shell(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

}  // namespace

std::optional<std::string> TwoHosts::unavailable() {
  if (geteuid() != 0) return "network namespaces need root";
  if (!shell("ip -V >/dev/null")) return "the ip command is not installed";
  TwoHosts probe;
  if (!probe.ok()) return probe.failure();
  return std::nullopt;
}

TwoHosts::TwoHosts() : home_(this_namespace()) {
  for (int host = 0; host < 2; ++host) {
    if (unshare(CLONE_NEWNET) != 0) {
      failure_ = "this machine does not let us make a network namespace";
      break;
    }
    host_[static_cast<std::size_t>(host)] = this_namespace();
    if (!shell("ip link set lo up")) failure_ = "ip link set lo up failed";
  }
  if (ok()) lay_cable();
  leave();
}

// Called on host 1; the other end of the cable is put into host 0 by the path of its descriptor.
void TwoHosts::lay_cable() {
  const std::string there = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(host_[0]);
  const bool laid = shell("ip link add cable type veth peer name cable netns " + there) &&
                    shell("ip addr add 10.213.0.2/24 dev cable") && shell("ip link set cable up");
  enter(0);
  if (!laid || !shell("ip addr add 10.213.0.1/24 dev cable") || !shell("ip link set cable up"))
    failure_ = "a virtual cable between two network namespaces could not be made";
}

TwoHosts::~TwoHosts() {
  for (int descriptor : {home_, host_[0], host_[1]})
    if (descriptor >= 0) close(descriptor);
}

void TwoHosts::enter(int host) const {
  if (setns(host_[static_cast<std::size_t>(host)], CLONE_NEWNET) != 0) std::abort();
}

void TwoHosts::leave() const {
  if (setns(home_, CLONE_NEWNET) != 0) std::abort();
}

}  // namespace tutti::test
