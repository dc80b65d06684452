#include "trace/run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

namespace tutti::trace {
namespace {

namespace fs = std::filesystem;

Status bad(std::string what) { return {Code::invalid_argument, std::move(what)}; }

Result<std::vector<std::string>> trace_files(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return bad(fs::exists(folder, error) ? fmt::format("{} is not a folder", folder)
                                         : fmt::format("there is no folder {}", folder));
  std::vector<std::string> paths;
  std::vector<std::string> others;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_trace = name.starts_with("rank-") && name.ends_with(".trace");
    (is_trace ? paths : others).push_back(is_trace ? entry.path().string() : name);
  }
  if (error) return Status(Code::io, fmt::format("{} cannot be read: {}", folder, error.message()));
  if (paths.empty() && others.empty())
    return bad(fmt::format("{} is empty; run the job with TUTTI_TRACE_DIR={}", folder, folder));
  std::sort(paths.begin(), paths.end());
  std::sort(others.begin(), others.end());
  if (paths.empty())
    return bad(
        fmt::format("{} holds no traces (rank-*.trace) but {}{}; run the job with "
                    "TUTTI_TRACE_DIR={}",
                    folder, others.front(), others.size() > 1 ? " and others" : "", folder));
  return paths;
}

Status choose_job(std::vector<RankTrace>& traces, const std::string& wanted,
                  const std::string& folder) {
  std::set<std::string> jobs;
  for (const RankTrace& trace : traces) jobs.insert(trace.job);
  if (!wanted.empty()) {
    if (jobs.count(wanted) == 0)
      return bad(fmt::format("{} holds no job {}, only {}", folder, wanted, fmt::join(jobs, ", ")));
    std::erase_if(traces, [&](const RankTrace& trace) { return trace.job != wanted; });
    return {};
  }
  if (jobs.size() == 1) return {};
  const auto other = std::find_if(traces.begin(), traces.end(), [&](const RankTrace& trace) {
    return trace.job != traces.front().job;
  });
  return bad(
      fmt::format("{} holds traces of {} jobs ({}): {} is not of the same job as {}; choose one "
                  "with --job, or empty the folder",
                  folder, jobs.size(), fmt::join(jobs, ", "), other->path, traces.front().path));
}

Status check_ranks(const std::vector<RankTrace>& traces) {
  for (std::size_t i = 1; i < traces.size(); ++i) {
    if (traces[i].rank == traces[i - 1].rank)
      return bad(fmt::format("{} and {} are both of rank {}", traces[i - 1].path, traces[i].path,
                             traces[i].rank));
    if (traces[i].ranks != traces[i - 1].ranks)
      return bad(fmt::format("{} is of a job of {} ranks, {} of one of {}", traces[i - 1].path,
                             traces[i - 1].ranks, traces[i].path, traces[i].ranks));
  }
  return {};
}

void shift(RankTrace& trace, std::int64_t by) {
  for (auto* entries : {&trace.collectives, &trace.waits, &trace.folds, &trace.compute,
                        &trace.steps, &trace.counters, &trace.device, &trace.bubbles})
    for (TraceEntry& entry : *entries) {
      entry.begin += by;
      entry.end += by;
      if (entry.kind == static_cast<std::uint8_t>(Kind::collective))
        entry.origin += static_cast<std::uint64_t>(by);
    }
}

void find_extent(TracedRun& run) {
  run.begin_ns = std::numeric_limits<std::int64_t>::max();
  run.end_ns = std::numeric_limits<std::int64_t>::min();
  for (const RankTrace& trace : run.ranks)
    for (const auto* entries : {&trace.collectives, &trace.waits, &trace.folds, &trace.compute,
                                &trace.steps, &trace.device, &trace.bubbles})
      for (const TraceEntry& entry : *entries) {
        run.begin_ns = std::min(run.begin_ns, entry.begin);
        run.end_ns = std::max(run.end_ns, entry.end);
      }
  if (run.begin_ns > run.end_ns) run.begin_ns = run.end_ns = 0;
}

}  // namespace

Result<TracedRun> make_run(std::vector<RankTrace> traces, const std::string& job,
                           const std::string& folder) {
  if (Status status = choose_job(traces, job, folder); !status.ok()) return status;
  std::sort(traces.begin(), traces.end(),
            [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  if (Status status = check_ranks(traces); !status.ok()) return status;
  TracedRun run;
  run.job = traces.front().job;
  run.size = traces.front().ranks;
  run.alignments = align_clocks(traces);
  for (std::size_t i = 0; i < traces.size(); ++i) shift(traces[i], run.alignments[i].offset_ns);
  run.ranks = std::move(traces);
  std::size_t next = 0;
  for (int rank = 0; rank < run.size; ++rank) {
    if (next < run.ranks.size() && run.ranks[next].rank == rank)
      ++next;
    else
      run.missing.push_back(rank);
  }
  find_extent(run);
  return run;
}

Result<TracedRun> load_run(const std::string& folder, const std::string& job,
                           const Progress& progress) {
  auto paths = trace_files(folder);
  if (!paths.ok()) return paths.status();
  std::vector<RankTrace> traces;
  for (const std::string& path : *paths) {
    if (progress) progress(traces.size(), paths->size());
    auto trace = read_trace(path);
    if (!trace.ok()) return trace.status();
    traces.push_back(*std::move(trace));
  }
  if (progress) progress(traces.size(), paths->size());
  return make_run(std::move(traces), job, folder);
}

}  // namespace tutti::trace
