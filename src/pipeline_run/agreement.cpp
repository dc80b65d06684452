#include "pipeline_run/agreement.hpp"

#include <fmt/format.h>

#include <array>

namespace tutti::pipeline {
namespace {

// What travels: kind, micro-batches, virtual stages, boundaries, bytes of the first, and a digest of all.
using Said = std::array<std::int64_t, 6>;

Said say(const PipelineOptions& options) {
  std::uint64_t digest = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](std::uint64_t word) { digest = (digest ^ word) * 0x100000001b3; };
  std::int64_t first_bytes = 0;
  for (const auto& boundary : options.boundaries) {
    add(boundary.size());
    for (const BoundaryTensor& tensor : boundary) {
      add(tensor.count);
      add(static_cast<std::uint64_t>(tensor.dtype));
      if (&boundary == &options.boundaries.front())
        first_bytes += static_cast<std::int64_t>(tensor.count * size_of(tensor.dtype));
    }
  }
  return {static_cast<std::int64_t>(options.kind),
          options.micro_batches,
          options.virtual_stages,
          static_cast<std::int64_t>(options.boundaries.size()),
          first_bytes,
          static_cast<std::int64_t>(digest)};
}

std::string words_of(const Said& said) {
  return fmt::format(
      "{}, {} micro-batches, {} virtual stages, {} boundaries, the first of {} bytes",
      to_string(static_cast<PipelineKind>(said[0])), said[1], said[2], said[3], said[4]);
}

}  // namespace

Status agree(Group& group, const PipelineOptions& options) {
  const Said mine = say(options);
  std::vector<Said> all(static_cast<std::size_t>(group.size()));
  const Status status = group.all_gather(ConstBuffer::of(mine),
                                         Buffer::of(all.front().data(), all.size() * mine.size()));
  if (!status.ok()) return status;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      return {Code::mismatch,
              fmt::format("pipeline '{}': stage {} was given {}; stage 0 {}{}", options.name, rank,
                          words_of(all[rank]), words_of(all.front()),
                          all[rank][4] == all.front()[4] ? ", or other tensors" : ""),
              {group.rank(), static_cast<int>(rank), 0}};
  return {};
}

}  // namespace tutti::pipeline
