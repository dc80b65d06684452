#include "transport/transport.hpp"

#include <algorithm>
#include <cerrno>

#include "core/words.hpp"

namespace tutti::transport {
namespace {

constexpr char kWelcome = 'w';

// The connecting side is not linked before the accepting side has taken it.
class Welcome final : public Greeting {
 public:
  explicit Welcome(bool connecting) : connecting_(connecting) {}

  Result<bool> step(ByteStreamRef stream) override {
    if (!connecting_) {
      if (stream.send(&kWelcome, 1) == 1) return true;
      return errno_status("cannot write to a new connection");
    }
    char word = 0;
    const ssize_t got = stream.receive(&word, 1);
    if (got == 1 && word == kWelcome) return true;
    if (got == 1) return Status(Code::corrupt, "the welcome of the peer is none");
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got < 0) return errno_status("a new connection broke");
    return Status(Code::io, "the other side hung up before there was a link");
  }

 private:
  bool connecting_;
};

}  // namespace

int Party::lane_of(int peer) const {
  return static_cast<int>(std::lower_bound(lanes.begin(), lanes.end(), peer) - lanes.begin());
}

bool Party::is_eager(int peer) const {
  return !lazy || std::binary_search(first.begin(), first.end(), peer);
}

std::vector<const Transport*> Party::routes(int peer) const {
  std::vector<const Transport*> found;
  for (const Transport* transport : transports)
    if (of(peer).note_of(transport->name()) != nullptr && transport->can_link(self(), of(peer)))
      found.push_back(transport);
  return found;
}

std::unique_ptr<Greeting> Transport::greet(const Party&, const NewPeer& peer) const {
  return std::make_unique<Welcome>(peer.connecting);
}

std::span<const Transport* const> built_in_transports() {
  static const Transport* const all[] = {
#define TUTTI_TRANSPORT(word) &word##_transport(),
#include "tutti/transports.def"
#undef TUTTI_TRANSPORT
  };
  return all;
}

Result<std::vector<const Transport*>> named_transports(const std::string& words,
                                                       std::span<const Transport* const> all) {
  std::vector<std::string_view> right{"auto"};
  for (const Transport* transport : all) right.push_back(transport->name());
  const auto given = split_words(words, ',');
  for (const std::string_view word : given)
    if (std::find(right.begin(), right.end(), word) == right.end())
      return Status(Code::invalid_argument,
                    "TUTTI_TRANSPORT: " + unknown_word("transport", word, right));
  const auto is_named = [&](std::string_view name) {
    return std::find(given.begin(), given.end(), name) != given.end();
  };
  std::vector<const Transport*> named;
  for (const Transport* transport : all)
    if (given.empty() || is_named("auto") || is_named(transport->name()))
      named.push_back(transport);
  return named;
}

}  // namespace tutti::transport
