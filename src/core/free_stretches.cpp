#include "core/free_stretches.hpp"

#include <algorithm>
#include <iterator>

#include "core/check.hpp"

namespace tutti {

FreeStretches::FreeStretches(std::size_t bytes, std::size_t unit_bytes)
    : bytes_(bytes), unit_bytes_(unit_bytes) {
  TUTTI_CHECK(bytes % unit_bytes == 0);
  if (bytes == 0) return;
  entries_.emplace(0, Entry{bytes});
  free_.emplace(bytes, 0);
}

std::optional<std::size_t> FreeStretches::take(std::size_t bytes) {
  if (bytes > bytes_) return std::nullopt;  // and cannot be rounded up, perhaps
  const std::size_t wanted = (bytes + unit_bytes_ - 1) / unit_bytes_ * unit_bytes_;
  const auto best = free_.lower_bound({wanted, 0});
  if (best == free_.end()) return std::nullopt;
  const auto entry = entries_.find(best->second);
  const std::size_t rest = entry->second.bytes - wanted;
  if (rest > 0) {
    // The rest first: where there is no memory to note it, nothing was taken.
    BySize place{{rest, entry->first + wanted}};
    const auto left =
        entries_.emplace_hint(std::next(entry), entry->first + wanted, Entry{rest, true});
    left->second.place = place.extract(place.begin());
    put_among_free(left);
  }
  take_from_free(entry);
  entry->second.bytes = wanted;
  entry->second.free = false;
  taken_bytes_ += wanted;
  peak_bytes_ = std::max(peak_bytes_, taken_bytes_);
  return entry->first;
}

void FreeStretches::give_back(std::size_t offset) noexcept {
  auto piece = entries_.find(offset);
  TUTTI_CHECK(piece != entries_.end() && !piece->second.free);
  piece->second.free = true;
  taken_bytes_ -= piece->second.bytes;
  swallow_next(piece);
  if (piece != entries_.begin() && std::prev(piece)->second.free) {
    --piece;
    take_from_free(piece);
    swallow_next(piece);
  }
  put_among_free(piece);
}

std::optional<FreeStretches::Stretch> FreeStretches::piece_around(
    std::size_t offset) const noexcept {
  auto after = entries_.upper_bound(offset);
  if (offset >= bytes_ || after == entries_.begin()) return std::nullopt;
  const auto& [begin, entry] = *std::prev(after);
  if (entry.free) return std::nullopt;
  return Stretch{begin, entry.bytes};
}

// Neither of the two is among the free ones afterwards.
void FreeStretches::swallow_next(Entries::iterator entry) noexcept {
  const auto next = std::next(entry);
  if (next == entries_.end() || !next->second.free) return;
  if (!next->second.place) take_from_free(next);
  entry->second.bytes += next->second.bytes;
  entries_.erase(next);
}

void FreeStretches::put_among_free(Entries::iterator entry) noexcept {
  entry->second.place.value() = {entry->second.bytes, entry->first};
  free_.insert(std::move(entry->second.place));
}

void FreeStretches::take_from_free(Entries::iterator entry) noexcept {
  entry->second.place = free_.extract({entry->second.bytes, entry->first});
}

}  // namespace tutti
