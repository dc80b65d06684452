// tool/trace/chrome.hpp - a run in the form that Perfetto, chrome://tracing and Kineto's tools
// read.
//
// pid = rank, tid = lane; slices of one lane never overlap. Ranks of one collective are joined by a
// flow, in the order in which they began it. docs/formats/trace.md lists the arguments of slices.
#pragma once

#include <functional>
#include <string_view>

#include "trace/run.hpp"

namespace tutti::tool::trace {

struct ChromeCounts {
  std::size_t lanes = 0;
  std::size_t slices = 0;
  std::size_t flows = 0;
};

// `write` gets the text in pieces; `progress` (ranks done, ranks).
ChromeCounts write_chrome(const tutti::trace::TracedRun& run,
                          const std::function<void(std::string_view)>& write,
                          const std::function<void(std::size_t, std::size_t)>& progress);

}  // namespace tutti::tool::trace
