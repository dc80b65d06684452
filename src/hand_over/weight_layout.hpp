// hand_over/weight_layout.hpp - how weights lie while they are handed over, and what is said of
// them. docs/formats/hand_over.md.
//
//   announcement │ layout, when it is a new one │ bucket 0 │ bucket 1 │ … │ end
//
// The tensors lie in one flat array, each from a multiple of 64 bytes on, gaps zero. Buckets cut
// that array every bucket_bytes, wherever the tensors end; or each tensor, where the trainer lends its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::hand_over {

// Of the messages within a round.
// kEnd: all buckets were taken while they were what was announced. kWhole: the receiver has found it so.
enum Tag : std::uint32_t { kAnnouncement = 1, kLayout = 2, kBucket = 3, kEnd = 4, kWhole = 5 };
// Of the groups of two, within the members' group, in which the trainer tells where its door is.
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
  std::uint64_t checksum = 0;  // of the flat array, where it was computed
  std::uint64_t flags = 0;

  static constexpr std::uint32_t kMagic = 0x4f485454;  // TTHO
  static constexpr std::uint32_t kFormat = 3;
  static constexpr std::uint64_t kOnDevice = 1;  // the trainer's weights are on a GPU
  static constexpr std::uint64_t kByTensor = 2;  // buckets are cut out of tensors, not of the array
  static constexpr std::uint64_t kChecked = 4;   // there is a checksum
  static constexpr std::uint64_t kTogether = 8;  // buckets come by broadcast, to all at once
  // Nothing is announced but the end of the round: another one follows, or none does.
  static constexpr std::uint64_t kNewRound = 16;
  static constexpr std::uint64_t kGoodbye = 32;
  bool has(std::uint64_t flag) const { return (flags & flag) != 0; }
};
static_assert(sizeof(Announcement) == 72);

struct TensorPlace {
  std::string name;
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::u8;
  std::size_t count = 0;
  std::size_t offset = 0;
  std::size_t bytes() const { return count * size_of(dtype); }
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

// A bucket: bytes of the flat array, and the tensor that they belong to if it is cut by tensors.
struct WeightPiece {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::size_t tensor = 0;
};
std::size_t count_pieces(const WeightLayout& layout, std::size_t bucket_bytes, bool by_tensor);
std::vector<WeightPiece> pieces_of(const WeightLayout& layout, std::size_t bucket_bytes,
                                   bool by_tensor);

// Fast, and against accidents only.
std::uint64_t checksum(const void* data, std::size_t bytes);

}  // namespace tutti::hand_over
