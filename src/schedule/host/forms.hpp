// schedule/host/forms.hpp - all host forms of one call, and which of them runs.
//
// Which one follows first from the sizes, which all ranks know (way_of), and then from what all
// ranks say of their memory when they arrive (docs/algorithms/on_one_host.md).
#pragma once

#include <cstddef>
#include <optional>

#include "schedule/catalog.hpp"
#include "schedule/host/form.hpp"
#include "schedule/host/limits.hpp"
#include "tutti/status.hpp"

namespace tutti::schedule {

// The forms of one rank, by what can be reached. There is always one for windows and one for memory
// that everybody has mapped.
struct HostForms {
  HostForm window;
  HostForm mapped;
  std::optional<HostForm> readable;
  std::optional<HostForm> mapped_source;
};

// The forms of `request.rank`. Empty when the algorithm's messages cannot be read as meetings, so
// that they are sent even between ranks of one host. All ranks are taken to work in place, or not, as
// this one does; that makes no difference to what it exchanges with them.
//
// An algorithm may have several programs for one call (request.shots). Through windows the one that
// was asked for is taken: it may meet less often. Where memory is mapped all of them meet equally
// often, so the one by which rank 0 touches least is taken, on all ranks alike.
Result<std::optional<HostForms>> host_forms(Algorithm algorithm, const Request& request,
                                            const Catalog& catalog = Catalog::built_in());
// Those of every rank.
Result<std::optional<std::vector<HostForms>>> host_forms_of_all(
    Algorithm algorithm, const Request& request, const Catalog& catalog = Catalog::built_in());

// What all ranks know alike of the host that they share.
struct HostFacts {
  bool crowded = false;   // fewer cores than ranks: they take turns, and every meeting is dear
  bool readable = false;  // the kernel lets every rank read every other's memory
};

// What carries chunks that nobody can reach where they lie.
enum class Carrier : std::uint8_t {
  line,    // the line by which a rank arrives: one meeting, nothing else to look at
  window,  // a window that is filled before the rank arrives: one meeting
  pieces,  // slots, piece by piece
};
std::string_view to_string(Carrier carrier) noexcept;

struct HostWay {
  Carrier carrier = Carrier::pieces;
  bool may_read = false;    // the kernel's copy pays, if all buffers allow it
  bool may_hope = false;    // window: ranks whose buffers all can reach leave it empty at first
  std::size_t longest = 0;  // chunk that is shown by any rank, bytes
  std::size_t widest = 0;   // bytes that any rank shows
  std::size_t piece = 0;    // bytes of a chunk that move at once
  // That the longest chunk consists of.
  std::size_t pieces() const { return longest == 0 ? 0 : (longest - 1) / piece + 1; }
};

// Sizes of what ranks show.
struct ShownSizes {
  std::size_t longest = 0;  // chunk
  std::size_t widest = 0;   // of what one rank shows, in all
  std::size_t padded = 0;   //   with every chunk on cache lines of its own
  std::size_t most = 1;     // chunks that one rank shows
  std::size_t growth = 1;   // bytes of a result for each byte that was shown
};
template <class BytesOfExtent>
ShownSizes sizes_of(const HostForm& form, BytesOfExtent bytes_of);

HostWay way_of(const HostForms& forms, const ShownSizes& sizes, const HostFacts& facts);

// What all ranks can do with the buffers of a call, as they find when everybody has arrived.
struct FoundMemory {
  bool source_mapped = false;    // what is read is mapped by all
  bool target_mapped = false;    // so is what is written
  bool source_readable = false;  // the kernel can copy out of what is read
  bool unaliased = true;         // HostForm::unaliased, of all ranks
};
// Which form runs then. The one place that decides: engine, tuner and `tutti show` ask here.
Reach reach_of(const HostForms& forms, const HostWay& way, const FoundMemory& found);

// ---- details

constexpr std::size_t down_to_line(std::size_t bytes) { return bytes / 64 * 64; }
constexpr std::size_t up_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

template <class BytesOfExtent>
ShownSizes sizes_of(const HostForm& form, BytesOfExtent bytes_of) {
  ShownSizes sizes;
  for (const auto& extents : form.shown_extents) {
    std::size_t bytes = 0;
    std::size_t padded = 0;
    for (const std::uint64_t extent : extents) {
      const std::size_t chunk = bytes_of(extent);
      bytes += chunk;
      padded += up_to_line(chunk);
      if (chunk > sizes.longest) sizes.longest = chunk;
    }
    if (bytes > sizes.widest) sizes.widest = bytes;
    if (padded > sizes.padded) sizes.padded = padded;
    if (extents.size() > sizes.most) sizes.most = extents.size();
  }
  return sizes;
}

}  // namespace tutti::schedule
