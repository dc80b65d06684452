// transport/transport.hpp - a way to link two ranks: can this machine use it, can these two, and how.
//
// A transport is a folder and one line in tutti/transports.def. Ranks meet by the two doors that all
// of them share (opening.cpp, joining.cpp); a transport is asked, in this order:
//
//   viable     can this machine use it?                    once per rank, before ranks meet
//   can_link   can these two ranks use it?                 per pair, from both addresses
//   prepare    is there anything to make ready?            once, if some pair can
//   greet      what do the two say to each other?          per connection, behind the handshake
//   link       here are the connections: make the link     per pair
//
// The connecting side (the higher rank) tries the transports that both are ready to use, in the
// order of its list, and goes on to the next when one did not lead to a link.
//
// Thread-safety  transports hold no state: one object serves all ranks of a process.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/byte_stream.hpp"
#include "core/secret.hpp"
#include "transport/address.hpp"
#include "transport/window.hpp"
#include "tutti/config.hpp"

namespace tutti::transport {

class LinkedEndpoint;
class Transport;
namespace ofi {
class FabricPort;
}

// Where connections come in while ranks join: a Unix socket of this host, or TCP.
enum class Door : std::uint8_t { local, network };

// This rank, seen together with all others.
struct Party {
  int rank = 0;
  std::uint64_t epoch = 0;
  Secret secret;
  std::shared_ptr<const TlsContext> tls;  // of the network door; null: in the clear
  Config config;
  std::vector<const Transport*> transports;  // that this rank is ready to use, the best first
  std::vector<Address> addresses;            // by rank
  std::vector<int> lanes;          // ranks of this host, ascending; a rank's lane is its position
  std::shared_ptr<Window> window;  // of this rank, with those lanes
  bool lazy = false;               // links are made at their first use, but for those to `first`
  std::vector<int> first;          // ascending
  std::shared_ptr<ofi::FabricPort> fabric;  // null: no link needs it, or there is none

  const Address& self() const { return of(rank); }
  const Address& of(int peer) const { return addresses[static_cast<std::size_t>(peer)]; }
  int size() const { return static_cast<int>(addresses.size()); }
  // Whether links are made while ranks join, or at their first use.
  bool is_eager(int peer) const;
  int lane_of(int peer) const;
  // The transports that both sides are ready to use and that can link them, the best first.
  std::vector<const Transport*> routes(int peer) const;
};

// Who is at the other end of a new connection.
struct NewPeer {
  int rank = 0;
  bool connecting = false;  // whether it was this side that connected
  pid_t process = 0;        // as the kernel knows it; local door only
};

// What two ranks tell each other on a new connection, behind the handshake and before there is a
// link: a state machine that is stepped when there may be something to read.
class Greeting {
 public:
  virtual ~Greeting() = default;
  // Goes on without blocking. True: they have agreed. False: more has to come. A failure:
  // Code::unsupported or io leads to the next transport, mismatch and corrupt end the joining.
  virtual Result<bool> step(ByteStreamRef stream) = 0;
};

struct Connection {
  ByteStream socket;  // non-blocking
  std::unique_ptr<Greeting> greeting;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // The word of TUTTI_TRANSPORT, logs and Group::describe; at most 15 characters.
  virtual std::string_view name() const = 0;
  virtual Door door() const = 0;

  // Whether this machine can use it, or why not. What it returns travels in this rank's address.
  virtual Result<std::string> viable(const Config& config) const = 0;
  // Whether these two could be linked; both are ready to use it. The same for (b, a).
  virtual bool can_link(const Address& a, const Address& b) const = 0;
  // How many connections make the link of these two.
  virtual int connections(const Address&, const Address&) const { return 1; }
  // Whether a link may be made while the endpoint is in use, inside a poll.
  virtual bool links_late() const { return false; }
  // What such a link will be able to do (link.hpp).
  virtual bool shares_memory() const { return false; }
  virtual std::size_t eager_bytes() const { return 0; }
  // Whether a link holds on to them: one that the other side has closed is then none to link by.
  virtual bool keeps_connections() const { return false; }

  // Makes ready what links of this kind need. A failure leads to the next transport: links are
  // then refused by greeting.
  virtual Status prepare(Party&) const { return {}; }
  // The accepting side says welcome, unless a transport has more to say.
  virtual std::unique_ptr<Greeting> greet(const Party& party, const NewPeer& peer) const;
  // All connections of the pair are there, in the same order on both sides.
  virtual Status link(LinkedEndpoint& endpoint, const Party& party, int peer,
                      std::vector<Connection> connections) const = 0;
};

// inproc_transport(), shm_transport() …: each in the folder of its name.
#define TUTTI_TRANSPORT(word) const Transport& word##_transport();
#include "tutti/transports.def"
#undef TUTTI_TRANSPORT
// All of them, in the order of the list.
std::span<const Transport* const> built_in_transports();

// Those of `all` that `words` names: "auto" or a comma list. Code::invalid_argument names the word
// that is none, and the right ones.
Result<std::vector<const Transport*>> named_transports(const std::string& words,
                                                       std::span<const Transport* const> all);

}  // namespace tutti::transport
