#include "group/free_stretches.hpp"

#include <algorithm>
#include <iterator>

#include "core/check.hpp"

namespace tutti::group {

FreeStretches::FreeStretches(std::size_t bytes, std::size_t unit_bytes)
    : bytes_(bytes), unit_bytes_(unit_bytes) {
  TUTTI_CHECK(bytes % unit_bytes == 0);
  if (bytes > 0) stretches_.emplace(0, Stretch{bytes});
}

std::optional<std::size_t> FreeStretches::take(std::size_t bytes) {
  if (bytes > bytes_) return std::nullopt;  // and cannot be rounded up, perhaps
  const std::size_t wanted = (bytes + unit_bytes_ - 1) / unit_bytes_ * unit_bytes_;
  auto best = stretches_.end();
  for (auto at = stretches_.begin(); at != stretches_.end(); ++at) {
    const Stretch& stretch = at->second;
    if (!stretch.free || stretch.bytes < wanted) continue;
    if (best == stretches_.end() || stretch.bytes < best->second.bytes) best = at;
  }
  if (best == stretches_.end()) return std::nullopt;
  const std::size_t rest = best->second.bytes - wanted;
  // The rest first: where there is no memory to note it, nothing was taken.
  if (rest > 0) stretches_.emplace_hint(std::next(best), best->first + wanted, Stretch{rest});
  best->second = {wanted, false};
  taken_bytes_ += wanted;
  peak_bytes_ = std::max(peak_bytes_, taken_bytes_);
  return best->first;
}

void FreeStretches::give_back(std::size_t offset) noexcept {
  const auto piece = stretches_.find(offset);
  TUTTI_CHECK(piece != stretches_.end() && !piece->second.free);
  piece->second.free = true;
  taken_bytes_ -= piece->second.bytes;
  swallow_next(piece);
  if (piece != stretches_.begin() && std::prev(piece)->second.free) swallow_next(std::prev(piece));
}

void FreeStretches::swallow_next(Stretches::iterator stretch) noexcept {
  const auto next = std::next(stretch);
  if (next == stretches_.end() || !next->second.free) return;
  stretch->second.bytes += next->second.bytes;
  stretches_.erase(next);
}

std::size_t FreeStretches::largest_free() const {
  std::size_t largest = 0;
  for (const auto& [offset, stretch] : stretches_)
    if (stretch.free) largest = std::max(largest, stretch.bytes);
  return largest;
}

}  // namespace tutti::group
