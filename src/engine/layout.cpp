#include "engine/layout.hpp"

#include <algorithm>

#include "tutti/shape.hpp"

namespace tutti::engine {

using schedule::Space;

std::size_t cut_at(std::size_t bytes, std::size_t element, std::uint32_t parts,
                   std::uint32_t part) {
  const std::size_t count = bytes / element;
  // 64-byte steps once every part has at least four of them; single elements below that.
  const std::size_t step =
      count / parts * element >= 256 ? std::max<std::size_t>(64 / element, 1) : 1;
  const std::size_t share = ((count + parts - 1) / parts + step - 1) / step * step;
  return std::min(count, share * part) * element;
}

void ChunkLayout::reset(const schedule::Program& program, const Launch& launch) {
  program_ = &program;
  launch_ = &launch;
  element_ = size_of(launch.dtype);
  growth_ = launch.growth();
  if (growth_ > 1) find_results();
  scratch_at_.clear();
  std::size_t total = 0;
  for (std::uint32_t chunk = 0; chunk < program.scratch.size(); ++chunk) {
    scratch_at_.push_back(total);
    total += (chunk_bytes(Space::scratch, chunk) + 63) / 64 * 64;
  }
  if (total <= scratch_bytes_) return;
  if (!scratch_memory_) own_scratch_.resize(total);
  scratch_ = scratch_memory_ ? scratch_memory_(total) : own_scratch_.data();
  scratch_bytes_ = total;
}

// Schedules that may widen fold raw inputs only, so that all other scratch holds inputs.
void ChunkLayout::find_results() {
  holds_result_.assign(program_->scratch.size(), false);
  for (const schedule::Op& op : program_->ops) {
    const bool ends_here = op.kind == schedule::OpKind::reduce && op.finish;  // a switch's
    if (ends_here && op.dst.space == Space::scratch) holds_result_[op.dst.first] = true;
    if (op.kind != schedule::OpKind::copy || op.dst.space != Space::output) continue;
    if (op.src.space != Space::scratch) continue;
    for (std::uint32_t k = 0; k < op.src.count; ++k) holds_result_[op.src.first + k] = true;
  }
}

std::size_t ChunkLayout::growth_of(Space space, std::uint32_t chunk) const {
  if (growth_ == 1 || space == Space::input) return 1;
  return space == Space::output || holds_result_[chunk] ? growth_ : 1;
}

std::size_t ChunkLayout::chunk_bytes(Space space, std::uint32_t chunk) const {
  return extent_bytes(extent_of(*program_, space, chunk)) * growth_of(space, chunk);
}

bool ChunkLayout::has_blocks(Space space) const {
  const CollectiveShape& shape = shape_of(program_->collective);
  return (space == Space::input ? shape.input : shape.output).blocks == Blocks::each;
}

std::size_t ChunkLayout::message_bytes() const {
  std::size_t total = 0;
  for (const Piece& piece : launch_->input.empty() ? launch_->output : launch_->input)
    total += piece.bytes;
  return total;
}

// Bytes of rank `block`'s part of a collective that has one per rank. Where ranks do not know each
// other's sizes, schedules touch the own ones only.
std::size_t ChunkLayout::block_size(std::uint64_t block) const {
  const Launch& launch = *launch_;
  if (!launch.block_bytes.empty()) return launch.block_bytes[block];
  const bool in_input = has_blocks(Space::input);
  const std::vector<Piece>& blocks = in_input ? launch.input : launch.output;
  if (blocks.size() == static_cast<std::size_t>(program_->size)) return blocks[block].bytes;
  std::size_t own = 0;
  for (const Piece& piece : in_input ? launch.output : launch.input) own += piece.bytes;
  return own;
}

// Bytes of what goes from one rank to another, as far as this one knows. What passes through goes
// only where all are equal.
std::size_t ChunkLayout::pair_size(std::uint64_t from, std::uint64_t to) const {
  const auto self = static_cast<std::uint64_t>(program_->rank);
  return to == self && from != self ? launch_->output[from].bytes : launch_->input[to].bytes;
}

std::size_t ChunkLayout::extent_bytes(std::uint64_t extent) const {
  const CollectiveShape& shape = shape_of(program_->collective);
  if (!shape.has_data() || extent == schedule::kNoBytes) return 0;
  const std::uint32_t cut = program_->cut;
  const auto part = static_cast<std::uint32_t>(extent % cut);
  const std::uint64_t block = extent / cut;
  const auto n = static_cast<std::uint64_t>(program_->size);
  const std::size_t whole = shape.has_pairs()   ? pair_size(block / n, block % n)
                            : shape.has_parts() ? block_size(block)
                                                : message_bytes();
  return cut_at(whole, element_, cut, part + 1) - cut_at(whole, element_, cut, part);
}

void ChunkLayout::append_range(const std::vector<Piece>& pieces, std::size_t begin, std::size_t end,
                               Scattered& found) {
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    const std::size_t from = std::max(begin, at);
    const std::size_t to = std::min(end, at + piece.bytes);
    if (from < to) found.add(piece.data + (from - at), to - from);
    at += piece.bytes;
  }
}

void ChunkLayout::append(Space space, std::uint32_t chunk, Scattered& found) const {
  const std::uint32_t cut = program_->cut;
  if (space == Space::scratch) {
    found.add(scratch_ + scratch_at_[chunk], chunk_bytes(space, chunk));
    return;
  }
  // broadcast has one buffer; it is in `output` whatever the caller filled in.
  const std::vector<Piece>& side = space == Space::input ? launch_->input : launch_->output;
  if (has_blocks(space)) {
    const Piece& block = side[chunk / cut];
    const std::size_t begin = cut_at(block.bytes, element_, cut, chunk % cut);
    found.add(block.data + begin, cut_at(block.bytes, element_, cut, chunk % cut + 1) - begin);
    return;
  }
  std::size_t total = 0;
  for (const Piece& piece : side) total += piece.bytes;
  const std::size_t growth = growth_of(space, chunk);
  const auto at = [&](std::uint32_t part) {
    return cut_at(total / growth, element_, cut, part) * growth;
  };
  append_range(side, at(chunk), at(chunk + 1), found);
}

std::size_t ChunkLayout::offset_of(Space space, std::uint32_t chunk) const {
  const std::uint32_t cut = program_->cut;
  if (!has_blocks(space))
    return cut_at(message_bytes(), element_, cut, chunk) * growth_of(space, chunk);
  std::size_t at = 0;
  for (std::uint32_t block = 0; block < chunk / cut; ++block) at += block_size(block);
  return at + cut_at(block_size(chunk / cut), element_, cut, chunk % cut);
}

}  // namespace tutti::engine
