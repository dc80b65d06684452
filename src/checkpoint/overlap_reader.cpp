#include "checkpoint/overlap_reader.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "reduce/half.hpp"

namespace tutti::checkpoint {
namespace {

// Elements that are no further apart than this are read in one go, with what lies between them: a call
// costs as much as some KiB.
constexpr std::size_t kGapBytes = 16 << 10;
constexpr std::size_t kMostBytesAtOnce = 8 << 20;

bool is_readable(Dtype type) {
  return type == Dtype::f16 || type == Dtype::bf16 || type == Dtype::f32 || type == Dtype::f64;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float read_as_f32(const std::byte* from, Dtype type) {
  if (type == Dtype::f16) return reduce::f16_to_f32(load<std::uint16_t>(from));
  if (type == Dtype::bf16) return reduce::bf16_to_f32(load<std::uint16_t>(from));
  if (type == Dtype::f32) return load<float>(from);
  return static_cast<float>(load<double>(from));
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void write_f32(std::byte* to, float value, Dtype type) {
  if (type == Dtype::f16) return store(to, reduce::f32_to_f16(value));
  if (type == Dtype::bf16) return store(to, reduce::f32_to_bf16(value));
  if (type == Dtype::f32) return store(to, value);
  store(to, static_cast<double>(value));
}

void convert(const std::byte* from, Dtype from_type, std::byte* to, Dtype to_type,
             std::size_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * size_of(to_type));
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    write_f32(to + i * size_of(to_type), read_as_f32(from + i * size_of(from_type), from_type),
              to_type);
}

// Long ones in several.
std::vector<PieceOverlap> cut_up(std::span<const PieceOverlap> overlaps, std::size_t most) {
  std::vector<PieceOverlap> pieces;
  for (PieceOverlap left : overlaps)
    while (left.count > 0) {
      PieceOverlap next = left;
      next.count = std::min(left.count, most);
      pieces.push_back(next);
      left.from += next.count;
      left.into += next.count;
      left.count -= next.count;
    }
  return pieces;
}

}  // namespace

bool is_convertible(Dtype from, Dtype to) {
  return from == to || (is_readable(from) && is_readable(to));
}

Status read_overlaps(const SafetensorsFile& file, const TensorEntry& tensor,
                     std::span<const PieceOverlap> overlaps, Dtype wanted, std::byte* into) {
  const std::size_t size = size_of(tensor.dtype), wanted_size = size_of(wanted);
  const bool converts = tensor.dtype != wanted;
  std::vector<PieceOverlap> cut;
  if (converts) overlaps = cut = cut_up(overlaps, kMostBytesAtOnce / size);
  std::vector<std::byte> here;
  for (std::size_t begin = 0, end = 0; begin < overlaps.size(); begin = end) {
    const std::size_t first = overlaps[begin].from * size;
    std::size_t last = first;
    for (; end < overlaps.size(); ++end) {
      const std::size_t next = overlaps[end].from * size;
      const std::size_t next_end = next + overlaps[end].count * size;
      if (end > begin && (next > last + kGapBytes || next_end > first + kMostBytesAtOnce)) break;
      last = next_end;
    }
    if (end == begin + 1 && !converts) {
      Status status = file.read(tensor, first, into + overlaps[begin].into * size, last - first);
      if (!status.ok()) return status;
      continue;
    }
    here.resize(last - first);
    if (Status status = file.read(tensor, first, here.data(), here.size()); !status.ok())
      return status;
    for (std::size_t i = begin; i < end; ++i)
      convert(here.data() + (overlaps[i].from * size - first), tensor.dtype,
              into + overlaps[i].into * wanted_size, wanted, overlaps[i].count);
  }
  return {};
}

}  // namespace tutti::checkpoint
