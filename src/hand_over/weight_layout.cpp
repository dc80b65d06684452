#include "hand_over/weight_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "core/json.hpp"

namespace tutti::hand_over {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 4;

std::optional<std::size_t> count_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count))
      return {};
  return count;
}

// Gives the place its offset. False when the whole becomes too large.
bool append(WeightLayout& layout, TensorPlace place) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(place.count, size_of(place.dtype), &bytes)) return false;
  if (bytes > kMost || layout.bytes > kMost) return false;
  place.offset = (layout.bytes + kAlignment - 1) / kAlignment * kAlignment;
  layout.bytes = place.offset + bytes;
  layout.places.push_back(std::move(place));
  return true;
}

std::string text_of(const std::vector<TensorPlace>& places) {
  std::string text = "[";
  for (const TensorPlace& place : places)
    text += (text.size() > 1 ? ",\n" : "") +
            Json{{"name", place.name}, {"dtype", to_string(place.dtype)}, {"shape", place.shape}}
                .dump();
  return text + "]";
}

void seal(WeightLayout& layout) {
  layout.text = text_of(layout.places);
  layout.hash = checksum(layout.text.data(), layout.text.size());
}

std::optional<TensorPlace> place_of(const Json& json) {
  const Json* name = json.find("name");
  const Json* dtype = json.find("dtype");
  const Json* shape = json.find("shape");
  if (name == nullptr || dtype == nullptr || shape == nullptr) return {};
  const auto type = parse_dtype(dtype->string());
  if (!type || shape->kind() != Json::Kind::array) return {};
  TensorPlace place{name->string(), {}, *type, 0, 0};
  for (const Json& extent : shape->items()) {
    if (!extent.whole()) return {};
    place.shape.push_back(extent.integer());
  }
  const auto count = count_of(place.shape);
  if (!count) return {};
  place.count = *count;
  return place;
}

std::size_t buckets_of(std::size_t bytes, std::size_t bucket_bytes) {
  return bytes / bucket_bytes + (bytes % bucket_bytes > 0 ? 1 : 0);
}

std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * 0xc2b2ae3d27d4eb4fULL, 31) * 0x9e3779b185ebca87ULL;
}

}  // namespace

Result<WeightLayout> layout_of(std::span<const train::NamedTensor> weights) {
  WeightLayout layout;
  std::set<std::string_view> names;
  for (const train::NamedTensor& tensor : weights) {
    const auto refuse = [&](std::string_view what) {
      return Status(Code::invalid_argument, fmt::format("tensor '{}' {}", tensor.name, what));
    };
    if (!names.insert(tensor.name).second) return refuse("is there twice");
    if (!is_utf8(tensor.name)) return refuse("has a name that is not UTF-8");
    if (tensor.values.device != weights[0].values.device)
      return refuse(
          fmt::format("is not where '{}' is: all weights of a version are in CPU memory, or all "
                      "on a GPU",
                      weights[0].name));
    if (tensor.values.device == Device::cpu && tensor.values.ready != nullptr)
      return refuse("is in CPU memory and has nothing to wait for; leave `ready` null");
    if (tensor.values.data == nullptr && tensor.values.count > 0) return refuse("has no values");
    if (count_of(tensor.shape) != tensor.values.count)
      return refuse(
          fmt::format("has {} elements, and another number by its shape", tensor.values.count));
    if (!append(layout, {tensor.name, tensor.shape, tensor.values.dtype, tensor.values.count, 0}))
      return refuse("makes the weights too large");
  }
  seal(layout);
  return layout;
}

Result<WeightLayout> parse_layout(std::string_view text) {
  const Status refused(Code::corrupt, "the layout of the weights cannot be read");
  const auto document = Json::parse(text);
  if (!document.ok() || document->kind() != Json::Kind::array) return refused;
  WeightLayout layout;
  for (const Json& item : document->items()) {
    auto place = place_of(item);
    if (!place || !append(layout, *std::move(place))) return refused;
  }
  seal(layout);
  return layout.text == text ? Result<WeightLayout>(std::move(layout))
                             : Result<WeightLayout>(refused);
}

std::size_t count_pieces(const WeightLayout& layout, std::size_t bucket_bytes, bool by_tensor) {
  if (!by_tensor) return buckets_of(layout.bytes, bucket_bytes);
  std::size_t count = 0;
  for (const TensorPlace& place : layout.places) count += buckets_of(place.bytes(), bucket_bytes);
  return count;
}

std::vector<WeightPiece> pieces_of(const WeightLayout& layout, std::size_t bucket_bytes,
                                   bool by_tensor) {
  std::vector<WeightPiece> pieces;
  const auto cut = [&](std::size_t offset, std::size_t bytes, std::size_t tensor) {
    for (std::size_t at = 0; at < bytes; at += bucket_bytes)
      pieces.push_back({offset + at, std::min(bucket_bytes, bytes - at), tensor});
  };
  if (!by_tensor) cut(0, layout.bytes, 0);
  for (std::size_t i = 0; by_tensor && i < layout.places.size(); ++i)
    cut(layout.places[i].offset, layout.places[i].bytes(), i);
  return pieces;
}

std::uint64_t checksum(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t lanes[4] = {1, 2, 3, 4};  // several, so that a core can work on them side by side
  std::uint64_t words[4];
  std::size_t left = bytes;
  for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
    std::memcpy(words, at, sizeof words);
    for (int i = 0; i < 4; ++i) lanes[i] = mixed(lanes[i], words[i]);
  }
  std::memset(words, 0, sizeof words);
  if (left > 0) std::memcpy(words, at, left);
  std::uint64_t sum = bytes;
  for (int i = 0; i < 4; ++i) sum = mixed(sum, mixed(lanes[i], words[i]));
  return sum ^ (sum >> 29);
}

}  // namespace tutti::hand_over
