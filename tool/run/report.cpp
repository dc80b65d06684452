#include "tool/run/report.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include "core/output_file.hpp"
#include "tool/command.hpp"
#include "tool/run/job.hpp"
#include "tool/run/snapshot.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kRunFormat = "tutti run 1";

}  // namespace

Json rank_report(const Ending& ending, const std::optional<BoardNote>& note) {
  Json row = {{"rank", ending.rank},      {"host", ending.host},
              {"pid", ending.pid},        {"exit_code", ending.exit_code()},
              {"signal", nullptr},        {"after_s", in_seconds(ending.after)},
              {"last_operation", nullptr}};
  if (WIFSIGNALED(ending.wait_status)) row["signal"] = signal_name(WTERMSIG(ending.wait_status));
  if (note) row["last_operation"] = note_fields(*note);
  return row;
}

Json Job::report() const {
  Json ranks = Json::array();
  for (const Rank& rank : ranks_)
    ranks.push_back(rank_report(rank.ending, board_->read(rank.rank)));
  Json lost = Json::array();
  for (const auto& loss : losses_) lost.push_back(loss.rank);
  Json returned = Json::array();
  for (const int rank : returned_) returned.push_back(rank);
  Json report = {{"format", kRunFormat},         {"job", rendezvous_.world().job},
                 {"exit_code", exit_code_},      {"signal", nullptr},
                 {"seconds", in_seconds(took_)}, {"first_failure", nullptr},
                 {"lost_ranks", lost},           {"returned_ranks", returned},
                 {"restarts", Json::array()},    {"ranks", ranks}};
  if (last_signal_ != 0) report["signal"] = signal_name(last_signal_);
  if (failed_here())
    report["first_failure"] = {{"rank", first_failure_->rank},
                               {"sentence", describe(*first_failure_)}};
  else if (own_report_ && !job_failure_)
    report["first_failure"] = {{"rank", nullptr}, {"sentence", own_report_->sentence}};
  else if (job_failure_ && leash_ == nullptr)
    report["first_failure"] = {{"rank", nullptr}, {"sentence", job_failure_->sentence}};
  return report;
}

Json merge_reports(const std::vector<Json>& reports, int exit_code) {
  Json merged = {{"format", kRunFormat},
                 {"job", nullptr},
                 {"exit_code", exit_code},
                 {"signal", nullptr},
                 {"seconds", 0},
                 {"first_failure", nullptr},
                 {"lost_ranks", Json::array()},
                 {"returned_ranks", Json::array()},
                 {"restarts", Json::array()},
                 {"ranks", Json::array()}};
  Json ranks = Json::array();
  for (const Json& report : reports) {
    for (const char* name : {"job", "signal", "first_failure"})
      if (std::as_const(merged)[name].is_null() && !report[name].is_null())
        merged[name] = report[name];
    if (report["seconds"].number() > std::as_const(merged)["seconds"].number())
      merged["seconds"] = report["seconds"];
    for (const Json& rank : report["ranks"].items()) ranks.push_back(rank);
    for (const char* name : {"lost_ranks", "returned_ranks"})
      if (report[name].items().size() > std::as_const(merged)[name].items().size())
        merged[name] = report[name];
  }
  merged["ranks"] = std::move(ranks);
  return merged;
}

Json attempt_report(const Json& report) {
  Json attempt = Json::object();
  for (const char* name : {"job", "exit_code", "seconds", "first_failure"})
    attempt[name] = report[name];
  return attempt;
}

int write_report(const RunOptions& options, Json report, int exit_code) {
  if (options.json.empty()) return exit_code;
  if (report.is_null()) report = merge_reports({}, exit_code);
  const Status status = write_file(options.json, report.dump(2) + "\n");
  if (status.ok()) return exit_code;
  const int failed = complain("run", status);
  return exit_code != 0 ? exit_code : failed;
}

}  // namespace tutti::tool
