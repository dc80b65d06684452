// store/trust.hpp - who else can read and write a store, as far as it is ours to know.
//
// A group that is given no secret takes that of the store it meets in, or one that rank 0 puts there:
// then everybody who reaches the store can join. Stores of this library know who that is.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "core/tls.hpp"
#include "tutti/store.hpp"

namespace tutti::store {

// Open to nobody but this process, this user, or those who have proved that they know a secret.
class TrustedStore : public Store {
 public:
  // That secret; empty where the kernel keeps others out.
  virtual std::string_view secret() const { return {}; }
  // In this process: to ask it costs next to nothing.
  virtual bool is_here() const { return false; }
};

// The one that `store` is, or puts prefixes before; null for a store of the user's own making.
const TrustedStore* trusted_store(const Store& store);

// Whether `secret` will do at `address`. Everybody on this host reaches a TCP port, at loopback too,
// so only a Unix socket can do without.
inline bool is_local(const std::string& address) { return address.starts_with('@'); }
Status check_secret_at(const std::string& address, std::string_view secret);

// What the environment says of connections there; nothing of those within a host.
struct Wires {
  std::shared_ptr<const TlsContext> tls;  // null: in the clear
  Nanoseconds dead_after{0};  // a wire that is cut for less is mended as if it never was
};
Result<Wires> wires_at(const std::string& address, std::string_view secret);

}  // namespace tutti::store
