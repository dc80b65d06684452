#include "core/siphash.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace tutti {
namespace {

class Mixer {
 public:
  explicit Mixer(const SipKey& key)
      : v_{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d,
           key.low ^ 0x6c7967656e657261, key.high ^ 0x7465646279746573} {}

  void take(std::uint64_t word) {
    v_[3] ^= word;
    round();
    round();
    v_[0] ^= word;
  }
  std::uint64_t finish() {
    v_[2] ^= 0xff;
    for (int i = 0; i < 4; ++i) round();
    return v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
  }

 private:
  void round() {
    v_[0] += v_[1];
    v_[1] = std::rotl(v_[1], 13) ^ v_[0];
    v_[0] = std::rotl(v_[0], 32);
    v_[2] += v_[3];
    v_[3] = std::rotl(v_[3], 16) ^ v_[2];
    v_[0] += v_[3];
    v_[3] = std::rotl(v_[3], 21) ^ v_[0];
    v_[2] += v_[1];
    v_[1] = std::rotl(v_[1], 17) ^ v_[2];
    v_[2] = std::rotl(v_[2], 32);
  }
  std::array<std::uint64_t, 4> v_;
};

}  // namespace

std::uint64_t siphash(const SipKey& key, const void* data, std::size_t bytes) noexcept {
  const auto* at = static_cast<const std::byte*>(data);
  Mixer mixer(key);
  std::size_t left = bytes;
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    mixer.take(word);
  }
  std::uint64_t last = static_cast<std::uint64_t>(bytes) << 56;
  std::memcpy(&last, at, left);  // little endian
  mixer.take(last);
  return mixer.finish();
}

}  // namespace tutti
