// The ranks' side of tutti plan measure.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>

#include "core/files.hpp"
#include "core/json.hpp"
#include "core/sockets.hpp"
#include "tool/bench/meeting.hpp"
#include "tool/bench/progress.hpp"
#include "tool/bench/task.hpp"
#include "tool/command.hpp"
#include "tool/plan/measure.hpp"
#include "tutti/group.hpp"

namespace tutti::tool::plan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMeasureRankCommand = "plan measure";
constexpr double kVisitsAimedAt = 5;
constexpr double kShortestVisitUs = 0.5e3;
constexpr double kLongestVisitUs = 20e3;
constexpr double kLineEveryUs = 5e6;
constexpr double kKeepEveryUs = 1e6;

class Visits {
 public:
  Visits(Group& group, const Json& request, const std::string& terminal, std::string machine)
      : group_(group),
        terminal_(terminal),
        machine_(std::move(machine)),
        label_(request["label"].string()),
        seconds_(request["seconds"].number()) {
    for (const Json& item : request["cells"].items()) {
      BenchCell cell;
      cell.collective = *parse_collective(item[0].string());
      cell.algorithm = *parse_algorithm(item[1].string());
      cell.bytes = static_cast<std::size_t>(item[2].integer());
      cell.in_place = !has_placement(cell.collective, false);
      cells_.push_back(cell);
    }
    samples_.resize(cells_.size());
  }
  ~Visits() {
    if (memory_ != nullptr) ::munmap(memory_, 2 * area_bytes_);
  }
  Visits(const Visits&) = delete;

  Status run() {
    if (Status status = prepare(); !status.ok()) return status;
    BenchProgress progress(group_.rank() == 0 ? terminal_ : "", cells_.size() * 3);
    const double began = bench::now_us();
    double next_line = began + kLineEveryUs;
    std::size_t done = 0;
    for (; !cells_.empty(); ++done) {
      // Everybody stops after the same visit.
      const double spent = meeting_->largest(bench::now_us() - began);
      if (spent > seconds_ * 1e6) break;
      if (group_.rank() == 0) tell(progress, done, spent, next_line, began);
      keep_pace(done, spent);
      if (Status status = visit(in_turn(done)); !status.ok()) return status;
      if (Status status = keep(began); !status.ok()) return status;
    }
    return write();
  }

 private:
  // Neighbours in the list are far from each other in time, so that a disturbance, or an early end,
  // does not take a whole collective.
  std::size_t in_turn(std::size_t visit) const {
    std::size_t step = std::max<std::size_t>(1, cells_.size() * 5 / 8);
    while (std::gcd(step, cells_.size()) != 1) ++step;
    return visit % cells_.size() * step % cells_.size();
  }

  // On a busy machine a visit takes many times its budget. Several short visits tell more than one
  // long one. `spent` is the same on all ranks.
  void keep_pace(std::size_t done, double spent) {
    constexpr std::size_t kSteps = 8;
    if (done == 0 || done % kSteps != 0) return;
    const double visits = static_cast<double>(done) * seconds_ * 1e6 / spent;
    const double wanted = kVisitsAimedAt * static_cast<double>(cells_.size());
    if (visits < wanted) effort_.budget_us = std::max(kShortestVisitUs, effort_.budget_us * 0.7);
  }

  Status prepare() {
    auto meeting = BenchMeeting::create(group_);
    if (!meeting.ok()) return meeting.status();
    meeting_ = *std::move(meeting);
    const std::vector<int> cpus = bench::own_cpus();
    if (meeting_->shared() && !meeting_->crowded())
      bench::pin_this_thread(cpus[static_cast<std::size_t>(group_.rank())]);
    area_bytes_ = 2UL << 20;
    for (const BenchCell& cell : cells_)
      area_bytes_ = std::max(area_bytes_, (cell.bytes + 4095) / 4096 * 4096);
    void* memory = ::mmap(nullptr, 2 * area_bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return {Code::out_of_memory, "no memory for the buffers"};
    memory_ = memory;
    areas_ = {memory, static_cast<std::byte*>(memory) + area_bytes_};
    const double each = seconds_ * 1e6 / kVisitsAimedAt /
                        static_cast<double>(std::max<std::size_t>(1, cells_.size()));
    effort_.budget_us = std::clamp(each / 2, kShortestVisitUs, kLongestVisitUs);
    effort_.brief = true;
    return {};
  }

  Status visit(std::size_t index) {
    const Task task(cells_[index], group_.rank(), group_.size(), areas_);
    Status failure;
    const auto timing = bench::measure(
        *meeting_, effort_,
        [&] {
          if (Status status = group_.run(task.call()); !status.ok() && failure.ok())
            failure = status;
        },
        [&] { task.fill(); });
    if (!failure.ok()) return failure;
    samples_[index].push_back(timing.low_us * 1e-6);
    return meeting_->health();
  }

  void tell(BenchProgress& progress, std::size_t done, double spent, double& next_line,
            double began) {
    const std::string what = fmt::format("{}, {} of {} s", label_, static_cast<int>(spent * 1e-6),
                                         static_cast<int>(seconds_));
    progress.show(std::min(done, cells_.size() * 3 - 1), what);
    const double now = bench::now_us();
    if (!terminal_.empty() || now < next_line) return;
    fmt::print(stderr, "  {}: {} visits to {} cells\n", what, done, cells_.size());
    next_line = std::max(next_line + kLineEveryUs, began);
  }

  // Now and then, so that an interruption does not lose it.
  Status keep(double began) {
    const double spent = bench::now_us() - began;
    if (spent < next_keep_) return {};
    next_keep_ = spent + kKeepEveryUs;
    return write();
  }

  Status write() const {
    if (group_.rank() != 0) return {};
    const Json result = {{"times", Json(samples_)}, {"machine", machine_}};
    fmt::print("{}{}\n", kResultMark, result.dump());
    return std::fflush(stdout) == 0 ? Status() : Status(Code::io, "standard output was closed");
  }

  Group& group_;
  std::string terminal_;
  std::string machine_;  // that was measured; empty: it was given
  std::string label_;
  double seconds_;
  double next_keep_ = kKeepEveryUs;
  std::vector<BenchCell> cells_;
  std::vector<std::vector<double>> samples_;  // by cell, a time for every visit
  std::unique_ptr<BenchMeeting> meeting_;
  bench::Effort effort_;
  void* memory_ = nullptr;
  std::size_t area_bytes_ = 0;
  Areas areas_;
};

// While one lives, a request to end waits: what would be left behind is put away first.
class Uninterrupted {
 public:
  Uninterrupted() {
    sigset_t ends;
    ::sigemptyset(&ends);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&ends, signal);
    ::pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  ~Uninterrupted() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Uninterrupted(const Uninterrupted&) = delete;

 private:
  sigset_t before_;
};

// What a group's choices go by, while it is made: the table of the request, in a file without a name, or one
// that it measures and leaves in a folder of its own.
class Costs {
 public:
  explicit Costs(const Json& request) {
    if (const std::string& word = request["transport"].string(); !word.empty())
      ::setenv("TUTTI_TRANSPORT", word.c_str(), 1);
    const std::string& machine = request["machine"].string();
    machine.empty() ? expect_a_table() : give(machine);
  }
  ~Costs() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  Costs(const Costs&) = delete;
  bool ok() const { return ok_; }
  // What the group measured; empty: nothing.
  std::string measured() const {
    std::error_code ignored;
    if (!folder_.empty())
      for (const auto& file : fs::directory_iterator(folder_, ignored))
        if (file.path().filename().string().starts_with("tuning-"))
          return read_text(file.path().string());
    return {};
  }

 private:
  void give(const std::string& machine) {
    table_.reset(::memfd_create("tutti_machine", MFD_CLOEXEC));
    const std::string path = fmt::format("/proc/self/fd/{}", table_.get());
    ok_ = table_ && ::write(table_.get(), machine.data(), machine.size()) ==
                        static_cast<ssize_t>(machine.size());
    ::setenv("TUTTI_TUNING", path.c_str(), 1);
  }
  void expect_a_table() {
    std::string name = (fs::temp_directory_path() / "tutti-plan-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) return;
    folder_ = name;
    ok_ = true;
    ::setenv("TUTTI_TUNING", "measure", 1);
    ::setenv("TUTTI_CACHE_DIR", folder_.c_str(), 1);
  }

  Descriptor table_;
  std::string folder_;
  bool ok_ = false;
};

}  // namespace

int measure_as_rank(const MeasureWords& words) {
  const auto request = Json::parse(words.request);
  if (!request.ok() || request->find("cells") == nullptr)
    return complain(kMeasureRankCommand, fmt::format("--request {} cannot be read", words.request),
                    kBadInput);
  Result<std::shared_ptr<Group>> group = Status(Code::internal, "not made yet");
  std::string measured;
  {
    const Uninterrupted until_all_is_put_away;
    const Costs costs(*request);
    if (!costs.ok())
      return complain(kMeasureRankCommand, "the costs cannot be put anywhere", kFailed);
    group = Group::from_environment();
    if (group.ok()) measured = costs.measured();
  }
  if (!group.ok()) return complain(kMeasureRankCommand, group.status());
  Visits visits(**group, *request, words.terminal, std::move(measured));
  if (Status status = visits.run(); !status.ok()) return complain(kMeasureRankCommand, status);
  return kDone;
}

}  // namespace tutti::tool::plan
