#include "schedule/schedule.hpp"

namespace tutti::schedule {
namespace {

// How many blocks of `cut` chunks the two sides of a collective have, and whose they are.
enum class Side : std::uint8_t { none, one, all, all_pairs };

Side input_side(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
    case Collective::barrier: return Side::none;
    case Collective::reduce:
    case Collective::all_reduce:
    case Collective::scan:
    case Collective::exclusive_scan:
    case Collective::gather:
    case Collective::all_gather: return Side::one;
    case Collective::scatter:
    case Collective::reduce_scatter: return Side::all;
    case Collective::all_to_all: return Side::all_pairs;
  }
  return Side::none;
}

Side output_side(Collective collective) {
  switch (collective) {
    case Collective::barrier: return Side::none;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::all_reduce:
    case Collective::scan:
    case Collective::exclusive_scan:
    case Collective::scatter:
    case Collective::reduce_scatter: return Side::one;
    case Collective::gather:
    case Collective::all_gather: return Side::all;
    case Collective::all_to_all: return Side::all_pairs;
  }
  return Side::none;
}

std::uint32_t chunks_of(Side side, const Program& program) {
  switch (side) {
    case Side::none: return 0;
    case Side::one: return program.cut;
    case Side::all:
    case Side::all_pairs: return static_cast<std::uint32_t>(program.size) * program.cut;
  }
  return 0;
}

bool root_only(Collective collective, Space space) {
  if (space == Space::input) return collective == Collective::scatter;
  return collective == Collective::reduce || collective == Collective::gather;
}

// Whether each rank's one block is a different part of the message (gather), or all ranks' blocks
// are the same part (all_reduce).
bool has_parts(Collective collective) {
  return input_side(collective) == Side::all || output_side(collective) == Side::all;
}

}  // namespace

std::string_view to_string(OpKind kind) noexcept {
  switch (kind) {
#define TUTTI_OP(name) \
  case OpKind::name:   \
    return #name;
#include "schedule/ops.def"
#undef TUTTI_OP
  }
  return "?";
}

std::string_view to_string(Space space) noexcept {
  switch (space) {
    case Space::input: return "input";
    case Space::output: return "output";
    case Space::scratch: return "scratch";
  }
  return "?";
}

std::uint32_t chunk_count(const Program& program, Space space) {
  if (space == Space::scratch) return static_cast<std::uint32_t>(program.scratch.size());
  if (root_only(program.collective, space) && program.rank != program.root) return 0;
  return chunks_of(
      space == Space::input ? input_side(program.collective) : output_side(program.collective),
      program);
}

std::uint64_t extent_of(const Program& program, Space space, std::uint32_t chunk) {
  const auto n = static_cast<std::uint64_t>(program.size);
  const auto rank = static_cast<std::uint64_t>(program.rank);
  const std::uint64_t cut = program.cut;
  if (space == Space::scratch) return program.scratch[chunk];
  const Side side =
      space == Space::input ? input_side(program.collective) : output_side(program.collective);
  if (side == Side::one) return has_parts(program.collective) ? rank * cut + chunk : chunk;
  if (side != Side::all_pairs) return chunk;
  const std::uint64_t other = chunk / cut, piece = chunk % cut;
  if (space == Space::input) return (rank * n + other) * cut + piece;
  return (other * n + rank) * cut + piece;
}

std::uint64_t extent_count(Collective collective, int size, std::uint32_t cut) {
  const auto n = static_cast<std::uint64_t>(size);
  if (collective == Collective::barrier) return 1;
  if (collective == Collective::all_to_all) return n * n * cut;
  return has_parts(collective) ? n * cut : cut;
}

Place resolve(const Program& program, Space space, std::uint32_t chunk) {
  if (!program.in_place || space == Space::scratch) return {space, chunk};
  const std::uint32_t own = static_cast<std::uint32_t>(program.rank) * program.cut;
  const bool at_root = program.rank == program.root;
  switch (program.collective) {
    case Collective::broadcast:
    case Collective::barrier: break;
    case Collective::reduce:
      if (space == Space::input && at_root) return {Space::output, chunk};
      break;
    case Collective::all_reduce:
    case Collective::scan:
    case Collective::exclusive_scan:
    case Collective::all_to_all:
      if (space == Space::input) return {Space::output, chunk};
      break;
    case Collective::gather:
      if (space == Space::input && at_root) return {Space::output, own + chunk};
      break;
    case Collective::all_gather:
      if (space == Space::input) return {Space::output, own + chunk};
      break;
    case Collective::scatter:
      if (space == Space::output && at_root) return {Space::input, own + chunk};
      break;
    case Collective::reduce_scatter:
      if (space == Space::output) return {Space::input, own + chunk};
      break;
  }
  return {space, chunk};
}

}  // namespace tutti::schedule
