#include "tool/trace/chrome.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/json.hpp"
#include "trace/lanes.hpp"
#include "tutti/shape.hpp"
#include "tutti/version.h"

namespace tutti::tool::trace {
namespace {

using tutti::trace::Lane;
using tutti::trace::LaneKind;
using tutti::trace::RankTrace;
using tutti::trace::Slice;
using tutti::trace::TracedRun;
using tutti::trace::TraceEntry;

// In bytes; one piece that is handed on.
constexpr std::size_t kPiece = 1 << 16;

std::string quoted(const std::string& text) { return Json(text).dump_ascii(); }

// One rank's side of an operation, for the flow that joins them.
struct Stop {
  std::int64_t at = 0;
  int rank = 0;
  std::size_t lane = 0;
};

class Writer {
 public:
  Writer(const TracedRun& run, const std::function<void(std::string_view)>& write)
      : run_(run), write_(write) {}

  ChromeCounts write(const std::function<void(std::size_t, std::size_t)>& progress) {
    text_ = fmt::format(
        "{{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"otherData\":{},"
        "\"traceEvents\":[",
        about());
    for (std::size_t i = 0; i < run_.ranks.size(); ++i) {
      if (progress) progress(i, run_.ranks.size());
      write_rank(run_.ranks[i]);
    }
    write_flows();
    text_ += "\n]}\n";
    write_(text_);
    return counts_;
  }

 private:
  std::string about() const {
    Json clocks = Json::array();
    for (std::size_t i = 0; i < run_.ranks.size(); ++i)
      clocks.push_back({{"rank", run_.ranks[i].rank},
                        {"host", run_.ranks[i].host},
                        {"offset_ns", run_.alignments[i].offset_ns},
                        {"uncertainty_ns", run_.alignments[i].uncertainty_ns}});
    return Json{{"tool", "tutti " TUTTI_VERSION},
                {"job", run_.job},
                {"ranks", run_.size},
                {"missing_ranks", run_.missing},
                {"clocks", clocks}}
        .dump_ascii();
  }

  void event(const std::string& json) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    text_ += json;
    if (text_.size() < kPiece) return;
    write_(text_);
    text_.clear();
  }

  double micros(std::int64_t time) const { return static_cast<double>(time - run_.begin_ns) / 1e3; }

  void name_row(const char* what, int rank, std::size_t lane, const std::string& name) {
    event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                      rank, lane, quoted(name)));
  }
  void sort_row(const char* what, int rank, std::size_t lane, std::size_t index) {
    event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                      what, rank, lane, index));
  }

  void write_rank(const RankTrace& rank) {
    name_row("process_name", rank.rank, 0,
             fmt::format("rank {} ({}, pid {})", rank.rank, rank.host, rank.pid));
    sort_row("process_sort_index", rank.rank, 0, static_cast<std::size_t>(rank.rank));
    const std::vector<Lane> lanes = tutti::trace::lanes_of(rank);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      name_row("thread_name", rank.rank, i + 1, lanes[i].name);
      sort_row("thread_sort_index", rank.rank, i + 1, i + 1);
      for (const Slice& slice : lanes[i].slices) write_slice(rank, lanes[i], i + 1, slice);
      counts_.slices += lanes[i].slices.size();
    }
    counts_.lanes += lanes.size();
    for (const TraceEntry& counter : rank.counters) write_counter(rank, counter);
  }

  void write_slice(const RankTrace& rank, const Lane& lane, std::size_t tid, const Slice& slice) {
    event(fmt::format(
        R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
        to_string(lane.kind), quoted(slice.name), rank.rank, tid, micros(slice.begin),
        static_cast<double>(slice.end - slice.begin) / 1e3, arguments(rank, lane, slice)));
    if (lane.kind != LaneKind::communication) return;
    const auto& group = rank.groups.at(lane.channel);
    if (group.ranks.size() > 1)
      stops_[{lane.channel, group.members, slice.entry->sequence}].push_back(
          {slice.begin, rank.rank, tid});
  }

  std::string arguments(const RankTrace& rank, const Lane& lane, const Slice& slice) const {
    const TraceEntry& entry = *slice.entry;
    switch (lane.kind) {
      case LaneKind::step: return fmt::format(R"("step":{})", entry.sequence);
      case LaneKind::compute:
      case LaneKind::bubble: return "";
      case LaneKind::wait:
        return fmt::format(R"("Process Group Name":{},"Sequence":{})",
                           quoted(rank.groups.at(entry.channel).name), entry.sequence);
      case LaneKind::reduce:
        return fmt::format(R"("Sequence":{},"Bytes":{})", entry.sequence, entry.bytes);
      case LaneKind::device:
        return fmt::format(R"("Sequence":{},"Bytes":{},"Device":{})", entry.sequence, entry.bytes,
                           entry.origin);
      case LaneKind::communication: break;
    }
    return collective_arguments(rank, entry);
  }

  // Kineto's keys first, then ours.
  static std::string collective_arguments(const RankTrace& rank, const TraceEntry& entry) {
    const auto& group = rank.groups.at(entry.channel);
    const auto collective = static_cast<Collective>(entry.collective);
    const auto [in, out] = elements(group, entry);
    return fmt::format(
        R"("Collective name":"{}","dtype":"{}","In msg nelems":{},"Out msg nelems":{},)"
        R"("Group size":{},"Process Group Name":{},"Process Group Ranks":{},)"
        R"("Sequence":{},"Algorithm":"{}","Bytes":{},"Reduction":"{}","Call":{},)"
        R"("Queued us":{:.3f},"Predicted us":{:.3f},"Blocking":{},"Status":"{}")",
        to_string(collective), to_string(static_cast<Dtype>(entry.dtype)), in, out,
        group.ranks.size(), quoted(group.name), quoted("[" + group.members + "]"), entry.sequence,
        to_string(static_cast<Algorithm>(entry.algorithm)), entry.bytes,
        has_reduction(collective) ? to_string(static_cast<ReduceOp>(entry.reduce_op)) : "none",
        quoted(rank.text(entry.name)),
        static_cast<double>(entry.begin - static_cast<std::int64_t>(entry.origin)) / 1e3,
        entry.value / 1e3, (entry.flags & tutti::trace::kBlocking) != 0,
        tutti::to_string(static_cast<Code>(entry.code)));
  }

  // What this rank puts in and gets out. `bytes` is the whole array.
  static std::pair<std::uint64_t, std::uint64_t> elements(const tutti::trace::GroupOfTrace& group,
                                                          const TraceEntry& entry) {
    const std::uint64_t all = entry.bytes / size_of(static_cast<Dtype>(entry.dtype));
    const std::uint64_t share = all / std::max<std::size_t>(group.ranks.size(), 1);
    const CollectiveShape& shape = shape_of(static_cast<Collective>(entry.collective));
    if (!shape.has_data()) return {0, 0};
    return {shape.is_part(shape.input) ? share : all, shape.is_part(shape.output) ? share : all};
  }

  void write_counter(const RankTrace& rank, const TraceEntry& counter) {
    if (!std::isfinite(counter.value)) return;  // JSON has no NaN
    const std::string name = quoted(rank.text(counter.name));
    event(fmt::format(R"({{"ph":"C","name":{},"pid":{},"tid":0,"ts":{:.3f},"args":{{{}:{}}}}})",
                      name, rank.rank, micros(std::max(counter.begin, run_.begin_ns)), name,
                      counter.value));
  }

  // One line through all ranks of a collective, from the first that began it to the last.
  void write_flows() {
    std::size_t id = 0;
    for (auto& [key, stops] : stops_) {
      if (stops.size() < 2) continue;
      ++id;
      std::sort(stops.begin(), stops.end(), [](const Stop& a, const Stop& b) {
        return std::tie(a.at, a.rank) < std::tie(b.at, b.rank);
      });
      for (std::size_t i = 0; i < stops.size(); ++i) {
        const char* phase = i == 0 ? "s" : i + 1 == stops.size() ? "f" : "t";
        event(fmt::format(
            R"({{"ph":"{}","cat":"collective","name":"collective","id":{},"pid":{},"tid":{},"ts":{:.3f}{}}})",
            phase, id, stops[i].rank, stops[i].lane, micros(stops[i].at),
            *phase == 's' ? "" : R"(,"bp":"e")"));
      }
    }
    counts_.flows = id;
  }

  const TracedRun& run_;
  const std::function<void(std::string_view)>& write_;
  std::string text_;
  bool first_ = true;
  ChromeCounts counts_;
  std::map<std::tuple<std::uint32_t, std::string, std::uint64_t>, std::vector<Stop>> stops_;
};

}  // namespace

ChromeCounts write_chrome(const TracedRun& run, const std::function<void(std::string_view)>& write,
                          const std::function<void(std::size_t, std::size_t)>& progress) {
  return Writer(run, write).write(progress);
}

}  // namespace tutti::tool::trace
