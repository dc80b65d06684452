#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/show/forms.hpp"

namespace tutti::tool {
namespace {

using schedule::Carrier;
using schedule::HostForm;
using schedule::HostForms;
using schedule::HostWay;
using schedule::Reach;

const HostForm* form_of(const HostForms& forms, Reach reach) {
  const auto if_there = [](const std::optional<HostForm>& form) { return form ? &*form : nullptr; };
  switch (reach) {
    case Reach::window: return &forms.window;
    case Reach::mapped: return &forms.mapped;
    case Reach::readable: return if_there(forms.readable);
    case Reach::mapped_source: return if_there(forms.mapped_source);
  }
  return nullptr;
}

Result<HostVariant> variant_of(const std::vector<HostForms>& ranks, Reach reach) {
  HostVariant variant;
  variant.reach = reach;
  for (const HostForms& forms : ranks) variant.ranks.push_back(*form_of(forms, reach));
  auto report = schedule::verify(variant.ranks);
  if (!report.ok()) return report.status();
  variant.report = *std::move(report);
  return variant;
}

schedule::ReadingRange reading_range(const HostForm& form, bool crowded) {
  return schedule::reading_range(form.lopsided, form.readers, crowded);
}

// "42.6 KiB" where the size is no whole number of units.
std::string about(std::size_t bytes) {
  if (bytes < 1024 || bytes % 1024 == 0) return size_words(bytes);
  const double kib = static_cast<double>(bytes) / 1024;
  return kib < 1024 ? fmt::format("{:.3g} KiB", kib) : fmt::format("{:.3g} MiB", kib / 1024);
}

}  // namespace

Result<std::optional<HostView>> HostView::make(Algorithm algorithm,
                                               const schedule::Request& request) {
  if (request.size < 2 || request.size > schedule::kMostHostRanks) return std::optional<HostView>();
  auto forms = schedule::host_forms_of_all(algorithm, request);
  if (!forms.ok()) return forms.status();
  if (!*forms) return std::optional<HostView>();
  HostView view;
  view.ranks_ = **std::move(forms);
  view.unaliased_ =
      std::ranges::all_of(view.ranks_, [](const HostForms& each) { return each.mapped.unaliased; });
  for (const Reach reach : schedule::kReaches) {
    if (form_of(view.ranks_.front(), reach) == nullptr) continue;
    if (reach != Reach::window && !view.unaliased_) continue;  // it is wrong, and never runs
    auto variant = variant_of(view.ranks_, reach);
    if (!variant.ok()) return variant.status();
    view.variants_.push_back(*std::move(variant));
  }
  return std::optional(std::move(view));
}

const HostVariant* HostView::find(Reach reach) const {
  const auto found = std::find_if(variants_.begin(), variants_.end(),
                                  [&](const HostVariant& each) { return each.reach == reach; });
  return found == variants_.end() ? nullptr : &*found;
}

// Chunks count as equally large.
HostWay HostView::way(std::size_t bytes, bool crowded) const {
  const HostForm& form = ranks_.front().window;
  const std::size_t parts = schedule::part_count(form.frame);
  const std::size_t chunk = parts == 0 ? 0 : (bytes + parts - 1) / parts;
  return schedule::way_of(ranks_.front(),
                          schedule::sizes_of(form, [&](std::uint64_t) { return chunk; }),
                          {.crowded = crowded, .readable = true});
}

Reach HostView::reach(const HostWay& way, CallMemory memory) const {
  return schedule::reach_of(ranks_.front(), way,
                            {.source_mapped = memory != CallMemory::ordinary,
                             .target_mapped = memory == CallMemory::symmetric,
                             .source_readable = true,
                             .unaliased = unaliased_});
}

HostUse HostView::use(Reach reach, std::size_t bytes, bool crowded) const {
  const HostWay way = this->way(bytes, crowded);
  const bool runs = std::ranges::any_of(
      std::initializer_list<CallMemory>{CallMemory::ordinary, CallMemory::symmetric_source,
                                        CallMemory::symmetric},
      [&](CallMemory memory) { return this->reach(way, memory) == reach; });
  if (!runs) return {false, why_not(reach, way, crowded)};
  switch (reach) {
    case Reach::window: return {true, words_for_window(way)};
    case Reach::readable:
      return {true, fmt::format("ordinary memory, where the kernel copies chunks of {}",
                                about(way.longest))};
    case Reach::mapped_source: return {true, "what is read lies in symmetric memory on all ranks"};
    case Reach::mapped: return {true, "symmetric memory on all ranks"};
  }
  return {};
}

std::string HostView::words_for_window(const HostWay& way) const {
  if (way.widest == 0) return "nothing moves but the line by which a rank arrives";
  const bool any = reach(way, CallMemory::symmetric) == Reach::window;
  const std::string memory = any ? "any memory" : "ordinary memory";
  switch (way.carrier) {
    case Carrier::line: return memory + ", in the line by which a rank arrives";
    case Carrier::window: return memory + ", in a window that is filled before the ranks meet";
    case Carrier::pieces: break;
  }
  return way.piece < way.longest ? fmt::format("{}, in pieces of {}", memory, about(way.piece))
                                 : memory + ", in one piece";
}

std::string HostView::why_not(Reach reach, const HostWay& way, bool crowded) const {
  if (way.widest == 0) return "there is nothing to read";
  if (reach == Reach::window)
    return "it serves where the kernel does not let ranks read each other, or where buffers lie in "
           "several pieces";
  if (form_of(ranks_.front(), reach) == nullptr)
    return reach == Reach::readable
               ? "what only the kernel can copy cannot be folded where it lies"
               : "results are put into the outputs of the others, which must be mapped too";
  if (!unaliased_) return "in place, a rank would overwrite what others have still to read";
  if (reach == Reach::readable) {
    const auto [from, up_to] = reading_range(ranks_.front().window, crowded);
    if (from > up_to) return "windows are faster where several ranks read the same pages";
    return fmt::format("it pays for chunks of {} … {}; these have {}", size_words(from),
                       size_words(up_to), about(way.longest));
  }
  if (crowded)
    return fmt::format(
        "it pays where a rank shows more than a window of {}, as there are more ranks "
        "than cores",
        size_words(schedule::kWindowBytes));
  return fmt::format("it pays where a rank shows at least {}", size_words(schedule::kHopeFrom));
}

}  // namespace tutti::tool
