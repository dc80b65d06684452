// What the tests of the update's kernels share: levels, numbers of every kind, arrays at odd offsets.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "train/kernel_table.hpp"

namespace tutti::train {

inline std::vector<reduce::SimdLevel> levels() {
  std::vector<reduce::SimdLevel> all;
  for (int i = 0; i < reduce::kLevels; ++i)
    if (const auto level = static_cast<reduce::SimdLevel>(i); reduce::can_run(level))
      all.push_back(level);
  return all;
}

enum class Mix { tame, wild };

// Tame: around one, as in training. Wild: any bit pattern, and often one of the special ones.
inline std::vector<float> numbers(std::size_t count, Mix mix, std::mt19937& random) {
  static const float kSpecial[] = {0.0F,
                                   -0.0F,
                                   std::numeric_limits<float>::infinity(),
                                   -std::numeric_limits<float>::infinity(),
                                   std::bit_cast<float>(0x7fa00001U),  // signalling
                                   std::bit_cast<float>(0xffc12345U),
                                   std::numeric_limits<float>::denorm_min(),
                                   -std::bit_cast<float>(0x007fffffU),
                                   std::numeric_limits<float>::min(),
                                   std::numeric_limits<float>::max(),
                                   std::numeric_limits<float>::lowest()};
  std::normal_distribution<float> normal;
  std::vector<float> all(count);
  for (auto& x : all) {
    if (mix == Mix::tame)
      x = normal(random);
    else if (random() % 3 == 0)
      x = kSpecial[random() % std::size(kSpecial)];
    else
      x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  }
  return all;
}

// A copy of some values at an address that is `offset` elements from an aligned one, with a guard
// on either side that nobody may write.
template <class T>
class Array {
 public:
  Array(const std::vector<T>& values, std::size_t offset)
      : storage_(values.size() + offset + 2), offset_(offset + 1), count_(values.size()) {
    std::memset(storage_.data(), kGuard, storage_.size() * sizeof(T));
    if (count_ != 0) std::memcpy(data(), values.data(), count_ * sizeof(T));
  }
  Array(std::size_t count, std::size_t offset) : Array(std::vector<T>(count), offset) {}

  T* data() { return storage_.data() + offset_; }
  bool guards_stand() const {
    return is_guard(storage_[offset_ - 1]) && is_guard(storage_[offset_ + count_]);
  }
  bool same_bits(const Array& other) const {
    return count_ == other.count_ &&
           (count_ == 0 ||
            std::memcmp(storage_.data() + offset_, other.storage_.data() + other.offset_,
                        count_ * sizeof(T)) == 0);
  }

 private:
  static constexpr unsigned char kGuard = 0xab;
  static bool is_guard(const T& x) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &x, sizeof(T));
    for (const auto byte : bytes)
      if (byte != kGuard) return false;
    return true;
  }
  std::vector<T> storage_;
  std::size_t offset_;
  std::size_t count_;
};

}  // namespace tutti::train
