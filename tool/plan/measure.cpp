// The launcher's side of tutti plan measure.
#include "tool/plan/measure.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/files.hpp"
#include "core/json.hpp"
#include "core/sockets.hpp"
#include "schedule/catalog.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/bench/contestants.hpp"
#include "tool/interruption.hpp"
#include "tool/run/launch.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool::plan {
namespace {

Json request_for(const MeasureJob& job, const std::vector<MeasuredCell>& cells) {
  Json list = Json::array();
  for (const MeasuredCell& cell : cells)
    list.push_back(
        Json::array({to_string(cell.collective), to_string(cell.algorithm), cell.bytes}));
  return {{"seconds", job.seconds},
          {"label", job.label},
          {"transport", job.transport},
          {"machine", job.machine},
          {"cells", list}};
}

// What is written to standard output meanwhile, by whomever, goes into a file without a name.
class CapturedOutput {
 public:
  CapturedOutput()
      : file_(::memfd_create("tutti_plan", MFD_CLOEXEC)), own_(::fcntl(1, F_DUPFD_CLOEXEC, 3)) {
    (void)std::fflush(stdout);
    if (file_ && own_) ::dup2(file_.get(), 1);
  }
  ~CapturedOutput() {
    if (own_) ::dup2(own_.get(), 1);
  }
  CapturedOutput(const CapturedOutput&) = delete;

  // The last line that is a result; empty: there is none.
  std::string last_result() const {
    const std::string text = read_text(fmt::format("/proc/self/fd/{}", file_.get()));
    const std::size_t mark = text.rfind(kResultMark);
    if (mark == std::string::npos) return {};
    const std::size_t begin = mark + kResultMark.size();
    const std::size_t end = text.find('\n', begin);
    if (end != std::string::npos) return text.substr(begin, end - begin);
    // Broken off while it was told: the one before it is whole.
    const std::size_t before = mark == 0 ? mark : text.rfind(kResultMark, mark - 1);
    if (before == std::string::npos || before == mark) return {};
    return text.substr(before + kResultMark.size(),
                       text.find('\n', before) - before - kResultMark.size());
  }

 private:
  Descriptor file_;
  Descriptor own_;
};

Status read_times(const Json& result, std::vector<MeasuredCell>& cells) {
  const Json* times = result.find("times");
  if (times == nullptr || times->items().size() != cells.size())
    return {Code::corrupt, "the ranks' times cannot be read"};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::vector<double> seconds;
    for (const Json& visit : (*times)[i].items()) seconds.push_back(visit.number());
    std::sort(seconds.begin(), seconds.end());
    cells[i].visits = static_cast<int>(seconds.size());
    if (!seconds.empty()) cells[i].seconds = seconds[0];
    if (seconds.size() > 1 && seconds[0] > 0) cells[i].spread = seconds[1] / seconds[0] - 1;
  }
  return {};
}

int launch(const MeasureJob& job, const std::string& request) {
  RunOptions run;
  run.ranks = job.ranks;
  run.prefixes = false;
  // Whoever measures the machine puts its table away first.
  run.grace = std::chrono::seconds(job.machine.empty() ? 2 : 1);
  run.program = {own_folder() + "/tutti", "plan", "measure", "--request", request};
  if (job.where.hosts.empty()) {
    if (::isatty(STDERR_FILENO) != 0)
      run.program.insert(run.program.end(),
                         {"--terminal", fmt::format("/proc/{}/fd/2", ::getpid())});
    return launch_job(run);
  }
  run.hosts = *take_places(job.where.hosts, job.ranks);
  run.remote_shell = job.where.remote_shell;
  run.rendezvous = job.where.rendezvous;
  return launch_fleet(run);
}

// The ranks' last word, also where they were interrupted after it.
Result<Json> run_ranks(const MeasureJob& job, const std::vector<MeasuredCell>& cells) {
  if (interruption() != 0) return Status(Code::aborted, "interrupted");
  const CapturedOutput output;
  const int code = launch(job, request_for(job, cells).dump());
  note_interruption(code);
  if (code != 0 && interruption() == 0)
    return Status(Code::aborted, fmt::format("the ranks ended with code {}", code));
  auto result = Json::parse(output.last_result());
  if (!result.ok()) return Status(Code::corrupt, "the ranks told no result");
  return result;
}

}  // namespace

std::vector<MeasuredCell> cells_for(const Where& where, int ranks,
                                    const std::vector<std::size_t>& sizes) {
  const std::vector<int> host_of = where.host_of(ranks);
  std::vector<MeasuredCell> cells;
  for (const auto& entry : schedule::catalog()) {
    if (entry.by_switch) continue;  // there is none
    schedule::Request request;
    request.collective = entry.collective;
    request.size = ranks;
    request.host_of = host_of;
    if (!schedule::build(entry.algorithm, request).ok()) continue;
    std::size_t last = ~std::size_t{0};
    for (const std::size_t size : sizes) {
      const std::size_t bytes = fitting_bytes(entry.collective, size, Dtype::f32, ranks);
      const bool empty = !shape_of(entry.collective).has_data();
      if (bytes != last)
        cells.push_back({entry.collective, entry.algorithm, ranks, empty ? 0 : bytes});
      last = bytes;
      if (empty) break;
    }
  }
  return cells;
}

Status measure_cells(const MeasureJob& job, std::vector<MeasuredCell>& cells) {
  const auto result = run_ranks(job, cells);
  const Status read = result.ok() ? read_times(*result, cells) : result.status();
  return interruption() != 0 ? Status(Code::aborted, "interrupted") : read;
}

Result<tuner::Machine> measure_machine(const MeasureJob& job) {
  const auto result = run_ranks(job, {});
  if (!result.ok()) return result.status();
  const Json* machine = result->find("machine");
  if (machine == nullptr || machine->string().empty())
    return Status(Code::io, "the ranks did not keep what they measured of the machine");
  return tuner::parse_machine(machine->string());
}

}  // namespace tutti::tool::plan
