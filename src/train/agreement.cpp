#include "train/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti::train {

Result<std::string> share_text(Group& group, const std::string& text, int root) {
  std::uint64_t bytes = text.size();
  if (Status status = group.broadcast(Buffer::of(&bytes, 1), root); !status.ok()) return status;
  std::string shared = text;
  shared.resize(bytes);
  if (Status status = group.broadcast(Buffer::of(shared.data(), shared.size()), root); !status.ok())
    return status;
  return shared;
}

Status agree(Group& group, const Status& mine) {
  constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
  std::int64_t failed = mine.ok() ? kNobody : group.rank();
  if (Status status = group.all_reduce(Buffer::of(&failed, 1), ReduceOp::min); !status.ok())
    return status;
  if (failed == kNobody) return {};
  const int rank = static_cast<int>(failed);
  auto code = static_cast<std::uint32_t>(mine.code());
  if (Status status = group.broadcast(Buffer::of(&code, 1), rank); !status.ok()) return status;
  const auto words = share_text(group, mine.message(), rank);
  if (!words.ok()) return words.status();
  return Status(static_cast<Code>(code), fmt::format("rank {}: {}", rank, *words),
                {.rank = group.rank(), .peer = rank});
}

Result<std::vector<std::string>> exchange_texts(Group& group, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::uint64_t bytes = mine.size();
  std::vector<std::uint64_t> sizes(ranks);
  Status status = group.all_gather(ConstBuffer::of(&bytes, 1), Buffer::of(sizes));
  if (!status.ok()) return status;
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  status = group.all_gather_v(ConstBuffer::of(mine.data(), mine.size()),
                              Buffer::of(all.data(), all.size()), counts);
  if (!status.ok()) return status;
  std::vector<std::string> texts;
  for (std::size_t at = 0; const std::size_t count : counts) {
    texts.push_back(all.substr(at, count));
    at += count;
  }
  return texts;
}

Result<std::vector<int>> ranks_that_differ(Group& group, const Digest::Value& mine) {
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  if (Status status = group.all_gather(ConstBuffer::of(mine.data(), mine.size()), Buffer::of(all));
      !status.ok())
    return status;
  const auto size = static_cast<std::ptrdiff_t>(mine.size());
  std::vector<int> others;
  for (int rank = 1; rank < group.size(); ++rank)
    if (!std::equal(all.begin(), all.begin() + size, all.begin() + size * rank))
      others.push_back(rank);
  return others;
}

}  // namespace tutti::train
