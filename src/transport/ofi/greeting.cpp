#include "transport/ofi/greeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/auth.hpp"
#include "core/bytes.hpp"

namespace tutti::transport::ofi {
namespace {

constexpr std::size_t kNonceBytes = 32;

struct Introduction {
  std::array<char, kNonceBytes> nonce{};
  std::uint32_t rails = 0;          // 0: no fabric here
  std::uint32_t address_bytes = 0;  // of each
  std::uint64_t landing_bytes = 0;
  std::array<std::array<char, Rail::kMaxAddress>, kMostRails> addresses{};
};

}  // namespace

OfiGreeting::OfiGreeting(const Party& party, int peer)
    : party_(party), peer_(peer), nonce_(random_bytes(kNonceBytes)) {}

Result<bool> OfiGreeting::step(ByteStreamRef stream) {
  if (!introduced_)
    if (Status status = introduce(stream); !status.ok()) return status;
  introduced_ = true;
  std::array<char, sizeof(Introduction)> bytes;
  while (inbox_.size() < sizeof(Introduction)) {
    const ssize_t got = stream.receive(bytes.data(), sizeof(Introduction) - inbox_.size());
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (got < 0) return errno_status("a new connection broke");
    if (got == 0)
      return Status(Code::io, fmt::format("rank {} hung up before it named its fabric", peer_));
    inbox_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  if (Status status = understand(); !status.ok()) return status;
  return true;
}

Status OfiGreeting::introduce(ByteStreamRef stream) {
  Introduction mine;
  nonce_.copy(mine.nonce.data(), kNonceBytes);
  if (party_.fabric) {
    const auto addresses = party_.fabric->addresses();
    if (!addresses.ok()) return addresses.status();
    mine.rails = static_cast<std::uint32_t>(addresses->size());
    mine.landing_bytes = party_.fabric->landing_bytes();
    for (std::size_t rail = 0; rail < addresses->size(); ++rail) {
      (*addresses)[rail].copy(mine.addresses[rail].data(), Rail::kMaxAddress);
      mine.address_bytes = static_cast<std::uint32_t>((*addresses)[rail].size());
    }
  }
  if (stream.send(&mine, sizeof mine) == sizeof mine) return {};
  return errno_status("cannot write to a new connection");
}

Status OfiGreeting::understand() {
  Introduction theirs;
  std::memcpy(&theirs, inbox_.data(), sizeof theirs);
  if (theirs.rails == 0 || !party_.fabric)
    return {Code::unsupported, "one of the two could not open its fabric"};
  if (theirs.rails > kMostRails || theirs.address_bytes > Rail::kMaxAddress)
    return {Code::corrupt, fmt::format("rank {} names a fabric that cannot be", peer_)};
  // A rail leads from one end to the other of the same number.
  const std::size_t rails = std::min<std::size_t>(theirs.rails, party_.fabric->rails());
  for (std::size_t rail = 0; rail < rails; ++rail)
    agreement_.addresses.emplace_back(theirs.addresses[rail].data(), theirs.address_bytes);
  agreement_.landing_bytes =
      std::min<std::size_t>(theirs.landing_bytes, party_.fabric->landing_bytes());
  const std::string nonce(theirs.nonce.data(), kNonceBytes);
  agreement_.send_key = key_of(party_.rank, nonce);
  agreement_.receive_key = key_of(peer_, nonce);
  return {};
}

// Of both nonces, so that frames of another link, or of this one's last life, do not fit.
SipKey OfiGreeting::key_of(int sender, const std::string& their_nonce) const {
  const bool low = party_.rank < peer_;
  ByteWriter text;
  text.put_string("tutti ofi frames");
  text.put(party_.epoch);
  text.put(static_cast<std::int32_t>(sender));
  text.put_string(low ? nonce_ : their_nonce);
  text.put_string(low ? their_nonce : nonce_);
  const std::string digest = hmac_sha256(party_.secret, text.take());
  SipKey key;
  std::memcpy(&key, digest.data(), sizeof key);
  return key;
}

}  // namespace tutti::transport::ofi
