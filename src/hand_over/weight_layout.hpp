// hand_over/weight_layout.hpp - how weights lie while they are handed over, and what is said of
// them. docs/formats/hand_over.md.
//
//   announcement │ layout, when it is a new one │ bucket 0 │ bucket 1 │ …
//
// The tensors lie in one flat array, each from a multiple of 64 bytes on, gaps zero. Buckets cut
// that array every bucket_bytes, wherever the tensors end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::hand_over {

// Of the messages within a pair's group.
enum Tag : std::uint32_t { kAnnouncement = 1, kLayout = 2, kBucket = 3 };
// Of the pairs' groups within the members' group.
inline constexpr std::uint32_t kPairTag = 0x7475746f;

struct Announcement {
  std::uint32_t magic = kMagic;
  std::uint32_t format = kFormat;
  std::uint64_t version = 0;
  std::uint64_t layout_hash = 0;
  std::uint64_t layout_bytes = 0;  // 0: the layout is the one of the version before
  std::uint64_t bytes = 0;         // of the flat array
  std::uint64_t bucket_bytes = 0;
  std::uint64_t buckets = 0;
  std::uint64_t checksum = 0;  // of the flat array

  static constexpr std::uint32_t kMagic = 0x4f485454;  // TTHO
  static constexpr std::uint32_t kFormat = 1;
};
static_assert(sizeof(Announcement) == 64);

struct TensorPlace {
  std::string name;
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::u8;
  std::size_t count = 0;
  std::size_t offset = 0;
};

struct WeightLayout {
  std::vector<TensorPlace> places;
  std::size_t bytes = 0;
  std::string text;  // what is sent of it
  std::uint64_t hash = 0;
};
// invalid_argument names a tensor that cannot be sent.
Result<WeightLayout> layout_of(std::span<const train::NamedTensor> weights);
// corrupt: not a text that layout_of makes.
Result<WeightLayout> parse_layout(std::string_view text);

// One flat array with the tensors in it.
class FlatCopy {
 public:
  // Memory for this layout, zeroed; kept where the layout is the one before.
  Status prepare(const WeightLayout& layout);
  std::byte* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  std::span<const train::NamedTensor> tensors() const { return tensors_; }
  // The bytes of bucket i.
  Buffer bucket(std::size_t index, std::size_t bucket_bytes) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
  std::uint64_t layout_hash_ = 0;
  std::vector<train::NamedTensor> tensors_;
};

std::size_t buckets_of(std::size_t bytes, std::size_t bucket_bytes);
// Fast, and against accidents only.
std::uint64_t checksum(const void* data, std::size_t bytes);

}  // namespace tutti::hand_over
