#include "tool/trace/report_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>

#include "core/files.hpp"
#include "core/json.hpp"
#include "core/words.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/trace/words.hpp"
#include "trace/lanes.hpp"
#include "tutti/types.hpp"

namespace tutti::tool::trace {
using tutti::trace::Analysis;
using tutti::trace::Cause;
using tutti::trace::Causes;
using tutti::trace::ExposureRow;
using tutti::trace::kCauses;
using tutti::trace::Lane;
using tutti::trace::LaneKind;
using tutti::trace::Named;
using tutti::trace::RankStep;
using tutti::trace::RankTrace;
using tutti::trace::Slice;
using tutti::trace::Step;
using tutti::trace::TracedOperation;
using tutti::trace::TracedRun;
using tutti::trace::Wait;

namespace {

// Microseconds with three digits: nanoseconds are all there is.
double micros(double ns) { return std::round(ns) / 1e3; }

Json causes_json(const Causes& causes) {
  Json list = Json::array();
  for (const double cause : causes) list.push_back(micros(cause));
  return list;
}

Json step_json(const TracedRun& run, const Step& step) {
  Json ranks = Json::array();
  for (const RankStep& rank : step.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"begin_us", micros(static_cast<double>(rank.begin - run.begin_ns))},
                     {"step_us", micros(static_cast<double>(rank.end - rank.begin))},
                     {"compute_us", micros(rank.compute_ns)},
                     {"communication_us", micros(rank.communication_ns)},
                     {"overlapped_us", micros(rank.overlapped_ns)},
                     {"wait_us", micros(rank.wait_ns)},
                     {"bubble_us", micros(rank.bubble_ns)},
                     {"exposed_us", micros(rank.exposed_ns())},
                     {"causes_us", causes_json(rank.causes)}});
  return {{"step", step.number}, {"straggler", step.straggler}, {"ranks", ranks}};
}

Json row_json(const ExposureRow& row) {
  const auto collective = static_cast<Collective>(row.collective);
  const double bus = row.median_ns > 0 ? algbw_gbs(row.bytes, row.median_ns / 1e3) *
                                             bus_factor(collective, row.ranks)
                                       : 0;
  return {{"group", row.group},
          {"collective", to_string(collective)},
          {"algorithm", to_string(static_cast<Algorithm>(row.algorithm))},
          {"dtype", to_string(static_cast<Dtype>(row.dtype))},
          {"bytes", row.bytes},
          {"size", size_words(row.bytes)},
          {"ranks", row.ranks},
          {"count", row.count},
          {"predicted_us", row.predicted_ns > 0 ? Json(micros(row.predicted_ns)) : Json()},
          {"median_us", micros(row.median_ns)},
          {"p95_us", micros(row.p95_ns)},
          {"total_us", micros(row.total_ns)},
          {"wait_us", micros(row.wait_ns)},
          {"busbw_gbs", std::round(bus * 1000) / 1000}};
}

Json named_json(const Named& named, std::size_t ranks) {
  const double each = static_cast<double>(named.count) * static_cast<double>(ranks);
  Causes causes = named.causes;
  for (double& cause : causes) cause /= each;
  return {{"name", named.name},
          {"count", named.count},
          {"bytes", named.bytes},
          {"size", size_words(named.bytes)},
          {"wait_us", micros(named.wait_ns / each)},
          {"exposed_us", micros(named.exposed_ns() / each)},
          {"straggler", named.straggler},
          {"causes_us", causes_json(causes)}};
}

Json cause_words() {
  Json words = Json::array();
  for (std::size_t c = 0; c < kCauses; ++c) words.push_back(to_string(static_cast<Cause>(c)));
  return words;
}

Json summary_json(const Summary& summary) {
  return {{"steps", summary.steps},
          {"first_step", summary.first_step},
          {"last_step", summary.last_step},
          {"step_us", micros(summary.step_ns)},
          {"compute_us", micros(summary.compute_ns)},
          {"communication_us", micros(summary.communication_ns)},
          {"wait_us", micros(summary.wait_ns)},
          {"bubble_us", micros(summary.bubble_ns)},
          {"exposed_us", micros(summary.exposed_ns)},
          {"causes_us", causes_json(summary.causes)},
          {"overlap", summary.overlap >= 0 ? Json(summary.overlap) : Json()}};
}

// ---- the timeline

class Timeline {
 public:
  Timeline(const TracedRun& run, const Analysis& analysis) : run_(run), analysis_(analysis) {
    for (std::size_t i = 0; i < analysis.waits.size(); ++i)
      waits_[{analysis.waits[i].rank, analysis.waits[i].begin}] = i;
    for (std::size_t i = 0; i < analysis.operations.size(); ++i)
      for (const int member : analysis.operations[i].members)
        operations_[{member, analysis.operations[i].channel, analysis.operations[i].sequence}] = i;
  }

  Json draw(std::size_t most) {
    std::size_t slices = 0;
    for (const RankTrace& rank : run_.ranks)
      for (Lane& lane : tutti::trace::lanes_of(rank)) {
        slices += lane.slices.size();
        lanes_.push_back({rank.rank, std::move(lane)});
      }
    // The finer it may be, the more it holds: doubled until it fits.
    std::int64_t finest = 0;
    for (; slices > most; slices = count_of(finest))
      finest =
          finest == 0 ? std::max<std::int64_t>(1, (run_.end_ns - run_.begin_ns) >> 20) : finest * 2;
    Json lanes = Json::array();
    for (const auto& [rank, lane] : lanes_)
      lanes.push_back({{"rank", rank},
                       {"kind", to_string(lane.kind)},
                       {"name", lane.name},
                       {"slices", slices_json(rank, lane, finest)}});
    return {{"lanes", lanes},
            {"names", names_},
            {"operations", operations_json()},
            {"finest_us", micros(static_cast<double>(finest))}};
  }

 private:
  // Runs of neighbours that are shorter than `finest`, as are the gaps between them, count as one.
  template <class Visit>
  static void for_each_drawn(const Lane& lane, std::int64_t finest, const Visit& visit) {
    const auto is_short = [&](const Slice& slice) { return slice.end - slice.begin < finest; };
    for (std::size_t i = 0; i < lane.slices.size();) {
      std::size_t end = i + 1;
      std::int64_t until = lane.slices[i].end;
      if (is_short(lane.slices[i]))
        while (end < lane.slices.size() && is_short(lane.slices[end]) &&
               lane.slices[end].begin - until < finest)
          until = std::max(until, lane.slices[end++].end);
      visit(lane.slices[i], until, end - i);
      i = end;
    }
  }

  std::size_t count_of(std::int64_t finest) const {
    std::size_t count = 0;
    for (const auto& [rank, lane] : lanes_)
      for_each_drawn(lane, finest, [&](const Slice&, std::int64_t, std::size_t) { ++count; });
    return count;
  }

  std::size_t number_of(const std::string& name) {
    const auto [at, is_new] = numbers_.try_emplace(name, names_.size());
    if (is_new) names_.push_back(name);
    return at->second;
  }

  // [begin, length, name, operation or -1, cause or -1]; trailing -1 are left out. In ns.
  Json slices_json(int rank, const Lane& lane, std::int64_t finest) {
    Json all = Json::array();
    for_each_drawn(lane, finest, [&](const Slice& slice, std::int64_t until, std::size_t count) {
      const std::string name = count == 1 ? slice.name : fmt::format("{} short ones", count);
      Json one = Json::array({slice.begin - run_.begin_ns, until - slice.begin, number_of(name)});
      const bool is_call = lane.kind == LaneKind::communication || lane.kind == LaneKind::wait;
      if (count == 1 && is_call) {
        const auto operation =
            operations_.find({rank, slice.entry->channel, slice.entry->sequence});
        const auto wait = waits_.find({rank, slice.begin});
        if (operation != operations_.end()) one.push_back(operation->second);
        if (operation != operations_.end() && lane.kind == LaneKind::wait && wait != waits_.end())
          one.push_back(main_cause(analysis_.waits[wait->second]));
      }
      all.push_back(std::move(one));
    });
    return all;
  }

  static int main_cause(const Wait& wait) {
    return static_cast<int>(std::max_element(wait.causes.begin(), wait.causes.end()) -
                            wait.causes.begin());
  }

  Json operations_json() const {
    Json all = Json::array();
    for (const TracedOperation& each : analysis_.operations)
      all.push_back(
          Json::array({each.group, each.sequence, size_words(each.bytes),
                       to_string(static_cast<Algorithm>(each.algorithm)), micros(each.predicted_ns),
                       micros(each.measured_ns()), each.last_rank,
                       micros(static_cast<double>(each.last_join - each.first_join))}));
    return all;
  }

  const TracedRun& run_;
  const Analysis& analysis_;
  std::vector<std::pair<int, Lane>> lanes_;
  std::map<std::pair<int, std::int64_t>, std::size_t> waits_;
  std::map<std::tuple<int, std::uint32_t, std::uint64_t>, std::size_t> operations_;
  std::map<std::string, std::size_t> numbers_;
  Json names_ = Json::array();
};

// ---- curves

std::vector<ReportCurve> curves_of_log(const std::string& folder) {
  std::error_code error;
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".jsonl") path = std::max(path, entry.path().string());
  ReportCurve loss{"loss", {}}, tokens{"tokens/s", {}}, samples{"samples/s", {}};
  constexpr std::size_t kMostLogBytes = std::size_t{1} << 30;
  const std::string text = path.empty() ? "" : read_text(path, kMostLogBytes);
  for (const std::string_view line : split_words(text, '\n')) {
    const auto step = Json::parse(line);
    if (!step.ok() || step->find("event") != nullptr || step->find("step") == nullptr) continue;
    const auto take = [&](const char* field, ReportCurve& curve) {
      if (const Json& value = (*step)[field]; value.kind() == Json::Kind::number)
        curve.points.emplace_back((*step)["step"].integer(), value.number());
    };
    take("loss", loss);
    take("tokens_per_s", tokens);
    take("samples_per_s", samples);
  }
  std::vector<ReportCurve> curves;
  for (ReportCurve* curve : {&loss, &tokens, &samples})
    if (!curve->points.empty()) curves.push_back(std::move(*curve));
  return curves;
}

}  // namespace

std::vector<ReportCurve> curves_of(const TracedRun& run, const std::string& folder) {
  std::vector<ReportCurve> curves;
  std::unordered_map<std::string_view, std::size_t> index_of;
  for (const RankTrace& rank : run.ranks) {
    if (rank.counters.empty()) continue;
    for (const auto& counter : rank.counters) {
      const std::string& name = rank.text(counter.name);
      const auto [at, is_new] = index_of.emplace(name, curves.size());
      if (is_new) curves.push_back({name, {}});
      curves[at->second].points.emplace_back(static_cast<std::int64_t>(counter.sequence),
                                             counter.value);
    }
    break;  // the other ranks' would be drawn over it
  }
  return curves.empty() ? curves_of_log(folder) : curves;
}

Json report_json(const TracedRun& run, const Analysis& analysis, const Summary& summary,
                 const std::vector<Finding>& findings, const std::vector<ReportCurve>& curves) {
  Json ranks = Json::array();
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    const RankTrace& rank = run.ranks[i];
    const auto& totals = analysis.ranks[i];
    ranks.push_back({{"rank", rank.rank},
                     {"host", rank.host},
                     {"pid", rank.pid},
                     {"cut_off", rank.cut_off},
                     {"clock_offset_us", micros(static_cast<double>(run.alignments[i].offset_ns))},
                     {"compute_us", micros(totals.compute_ns)},
                     {"communication_us", micros(totals.communication_ns)},
                     {"wait_us", micros(totals.wait_ns)},
                     {"bubble_us", micros(totals.bubble_ns)},
                     {"reduce_us", micros(totals.fold_ns)},
                     {"overlap", totals.overlap() >= 0 ? Json(totals.overlap()) : Json()}});
  }
  Json told = Json::array();
  for (const Finding& finding : findings)
    told.push_back({{"level", finding.level}, {"text", finding.text}});
  Json steps = Json::array();
  for (const Step& step : analysis.steps) steps.push_back(step_json(run, step));
  Json rows = Json::array();
  for (const ExposureRow& row : analysis.rows) rows.push_back(row_json(row));
  Json buckets = Json::array();
  for (const Named& named : analysis.named)
    if (named.wait_ns > 0) buckets.push_back(named_json(named, run.ranks.size()));
  Json lines = Json::array();
  for (const ReportCurve& curve : curves) {
    Json points = Json::array();
    for (const auto& [step, value] : curve.points) points.push_back(Json::array({step, value}));
    lines.push_back({{"name", curve.name}, {"points", points}});
  }
  return {{"tutti_report", 1},
          {"job", run.job},
          {"size", run.size},
          {"missing_ranks", run.missing},
          {"seconds", seconds_of(run)},
          {"causes", cause_words()},
          {"findings", told},
          {"summary", summary_json(summary)},
          {"ranks", ranks},
          {"steps", steps},
          {"buckets", buckets},
          {"collectives", rows},
          {"curves", lines}};
}

Json timeline_json(const TracedRun& run, const Analysis& analysis, std::size_t most) {
  return Timeline(run, analysis).draw(most);
}

}  // namespace tutti::tool::trace
