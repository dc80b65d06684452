#include "tool/bench/session.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/sockets.hpp"
#include "schedule/catalog.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/bench/report.hpp"
#include "tool/bench/table.hpp"
#include "tool/command.hpp"

namespace tutti::tool {
namespace {

constexpr std::size_t kAlign = 2UL << 20;
constexpr int kMostHostTimes = 200;

bool is_wanted(Collective collective, bool in_place, BufferPlacement placement) {
  if (!has_placement(collective, in_place)) return false;
  if (!has_placement(collective, !in_place)) return true;  // it has no other form
  switch (placement) {
    case BufferPlacement::both: return true;
    case BufferPlacement::in: return in_place;
    case BufferPlacement::out: return !in_place;
    case BufferPlacement::common: return in_place == (collective == Collective::all_reduce);
  }
  return true;
}

}  // namespace

Session::~Session() {
  if (plain_ != nullptr) ::munmap(plain_, 2 * area_bytes_);
}

int Session::run() {
  if (Status status = prepare(); !status.ok())
    return status.message().empty() ? kFailed : complain("bench", status);
  const std::vector<Line> lines = plan();
  if (group_.rank() == 0) {
    progress_ = std::make_unique<BenchProgress>(options_.terminal, lines.size());
    machine_ = machine_json();
    if (device_) add_device(machine_, device_->device().facts(), ceiling_gbs_);
    print(table_head(table_, options_, group_.size(), where()));
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const BenchCell& first = lines[i].cells.front();
    if (progress_)
      progress_->show(i,
                      fmt::format("{} {}", to_string(first.collective), size_words(first.bytes)));
    std::vector<Row> line;
    for (const BenchCell& cell : lines[i].cells) {
      auto row = measure(cell);
      if (!row.ok())
        return complain("bench",
                        row.status().annotate(fmt::format("{} of {}", to_string(cell.collective),
                                                          size_words(cell.bytes))));
      line.push_back(*std::move(row));
    }
    report(line);
    // All ranks end together, so that none has to complain about another.
    if (meeting_->largest(reader_gone_ ? 1 : 0) > 0) return leave();
  }
  return finish();
}

int Session::leave() {
  if (reader_gone_ && std::freopen("/dev/null", "w", stdout) == nullptr) return kFailed;
  return kDone;
}

Status Session::prepare() {
  if (!threads_) ::signal(SIGPIPE, SIG_IGN);  // print() notices
  auto meeting = BenchMeeting::create(group_);
  if (!meeting.ok()) return meeting.status();
  meeting_ = *std::move(meeting);
  // Before this thread is pinned: the driver's threads inherit what it may use.
  if (options_.on_device)
    if (Status status = open_device(); !status.ok()) return status;
  // A core per rank; with more ranks than cores the scheduler knows better.
  const std::vector<int> cpus = bench::own_cpus();
  if (meeting_->shared() && !meeting_->crowded()) {
    const int cpu = cpus[static_cast<std::size_t>(group_.rank())];
    if (options_.pin_process && !threads_)
      bench::pin_this_process(cpu);
    else
      bench::pin_this_thread(cpu);
  }
  floor_ =
      std::make_unique<Floor>(group_, *meeting_, transport_ == "tcp", options_.effort.budget_us);
  return make_areas();
}

// Where several have no GPU, one tells of it.
Status Session::open_device() {
  auto opened = DeviceBench::create(group_.rank());
  const double first = -meeting_->largest(opened.ok() ? -group_.size() : -group_.rank());
  if (opened.ok()) device_ = *std::move(opened);
  if (static_cast<int>(first) == group_.size()) return {};
  if (static_cast<int>(first) == group_.rank()) return opened.status().annotate("--device cuda");
  return {Code::unsupported, ""};  // another rank says why
}

std::string Session::where() const {
  if (!device_) return transport_;
  const cuda::DeviceFacts& facts = device_->device().facts();
  return fmt::format("{}, {}{}, meeting by {}{}", transport_, facts.name,
                     facts.under_mps ? " under MPS" : "", device_->meeting_word(),
                     ceiling_gbs_ ? fmt::format(", copy ceiling {:.0f} GB/s", *ceiling_gbs_) : "");
}

Status Session::make_areas() {
  for (const Collective collective : options_.collectives)
    for (const std::size_t size : options_.sizes)
      area_bytes_ =
          std::max(area_bytes_, fitting_bytes(collective, size, options_.dtype, group_.size()));
  area_bytes_ = (area_bytes_ + kAlign - 1) / kAlign * kAlign;
  if (device_) {
    if (Status status = device_->make_areas(group_, area_bytes_, options_.symmetric); !status.ok())
      return status;
    ceiling_gbs_ = device_->measure_ceiling(*meeting_);
    return device_->health();
  }
  void* memory = nullptr;
  if (options_.symmetric) {
    auto allocated = group_.allocate(2 * area_bytes_);
    if (!allocated.ok()) return allocated.status();
    symmetric_ = *std::move(allocated);
    memory = symmetric_.data;
  } else {
    plain_ = ::mmap(nullptr, 2 * area_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    if (plain_ == MAP_FAILED) {
      plain_ = nullptr;
      return errno_status("no memory for the buffers");
    }
    memory = plain_;
  }
  std::memset(memory, 0, 2 * area_bytes_);
  areas_ = {memory, static_cast<std::byte*>(memory) + area_bytes_};
  return {};
}

std::vector<Algorithm> Session::algorithms_for(Collective collective) const {
  // A forced algorithm is in the group's configuration, so that predict() tells of it.
  std::vector<Algorithm> list = {Algorithm::automatic};
  if (!options_.every_algorithm) return list;
  const std::vector<int> hosts = group_.hosts();
  schedule::Request request;
  request.collective = collective;
  request.size = group_.size();
  request.root = has_root(collective) ? options_.root : 0;
  request.host_of = hosts;
  request.order = options_.order;
  // Partial folds of narrow floats are rounded on their way.
  const bool only_whole =
      options_.order != ReductionOrder::any && accumulation_of(options_.dtype) != options_.dtype;
  for (const Algorithm algorithm : schedule::algorithms_for(collective)) {
    const schedule::Entry& entry = *schedule::find(collective, algorithm);
    const bool in_order =
        !entry.by_switch && entry.keeps_order(request) &&
        !(only_whole && has_reduction(collective) && entry.folds != schedule::FoldedFrom::whole);
    if (in_order && schedule::build(algorithm, request).ok()) list.push_back(algorithm);
  }
  return list;
}

std::vector<Session::Line> Session::plan() const {
  std::vector<Line> lines;
  for (const Collective collective : options_.collectives) {
    std::vector<std::size_t> sizes;
    for (const std::size_t size : options_.sizes)
      sizes.push_back(fitting_bytes(collective, size, options_.dtype, group_.size()));
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (const std::size_t bytes : sizes)
      for (const Algorithm algorithm : algorithms_for(collective)) {
        Line line;
        for (const bool in_place : {false, true}) {
          if (is_wanted(collective, in_place, options_.placement))
            line.cells.push_back({collective, bytes, in_place, algorithm, options_.dtype,
                                  options_.op, options_.root});
        }
        lines.push_back(std::move(line));
      }
  }
  return lines;
}

template <class AnyTask>
Status Session::verify(const AnyTask& task, std::size_t& wrong) {
  task.fill_and_spoil();
  meeting_->sync();
  if (Status status = task.run(group_); !status.ok()) return status;
  wrong += task.count_wrong();
  meeting_->sync();  // before anybody fills again what others may still read
  return {};
}

template <class AnyTask>
Result<bench::Timing> Session::time(const AnyTask& task, std::size_t& wrong) {
  if (Status status = verify(task, wrong); !status.ok()) return status;
  Status failure;
  const auto operation = [&] {
    if (Status status = task.run(group_); !status.ok() && failure.ok()) failure = status;
  };
  const auto spoil = [&] { task.fill_and_spoil(); };
  const auto touch = [&] { task.fill(); };
  const auto count = [&] { wrong += task.count_wrong(); };
  bench::Timing timing;
  if (options_.check) {
    timing = bench::measure(*meeting_, options_.effort, operation, spoil, count);
  } else if (options_.warm) {
    task.clear();
    timing = bench::measure(*meeting_, options_.effort, operation);
  } else {
    timing = bench::measure(*meeting_, options_.effort, operation, touch);
  }
  if (failure.ok()) failure = group_.health();  // where a stream waits, it is told there
  if (!failure.ok()) return failure;
  if (!meeting_->health().ok()) return meeting_->health();
  return timing;
}

// Until it may go on, and the device with it; the slowest rank's.
double Session::time_of_host(const DeviceTask& task, int iterations) {
  std::vector<double> times(static_cast<std::size_t>(std::min(iterations, kMostHostTimes)));
  for (double& time : times) {
    task.finish();
    meeting_->sync();
    const double began = bench::now_us();
    (void)task.start(group_);  // its failures are the group's
    time = bench::now_us() - began;
    task.finish();
  }
  return bench::median_of(meeting_->largest(times));
}

Result<Row> Session::measure(const BenchCell& cell) {
  const auto prediction = group_.predict(cell.collective, cell.bytes);
  if (!prediction.ok()) return prediction.status();
  Row row;
  std::size_t wrong = 0;
  Result<bench::Timing> timed = bench::Timing();
  if (device_) {
    const DeviceTask task(cell, group_.rank(), group_.size(), *device_);
    timed = time(task, wrong);
    if (timed.ok()) row.host_us = time_of_host(task, timed->iterations);
    row.floor_us = Floor::of(cell, group_.size(), ceiling_gbs_);
    row.device = "cuda";
    row.meeting = device_->meeting_word();
  } else {
    row.floor_us = floor_->of(cell);
    timed = time(Task(cell, group_.rank(), group_.size(), areas_), wrong);
  }
  if (!timed.ok()) return timed.status();
  const bench::Timing timing = *timed;
  row.collective = cell.collective;
  row.ranks = group_.size();
  row.transport = transport_;
  row.memory = options_.symmetric ? "symmetric" : "plain";
  row.algorithm = algorithm_word(cell, *prediction);
  row.dtype = cell.dtype;
  row.op = cell.op;
  row.order = options_.order;
  row.bytes = cell.bytes;
  row.count = cell.count();
  row.in_place = cell.in_place;
  row.timing = timing;
  // What it predicts is a call on CPU memory.
  if (!device_ &&
      (cell.algorithm == Algorithm::automatic || cell.algorithm == prediction->algorithm))
    row.predicted_us =
        static_cast<double>(
            (options_.symmetric ? prediction->symmetric_time : prediction->time).count()) *
        1e-3;
  row.cpu_s = meeting_->sum(threads_ && group_.rank() != 0 ? 0 : timing.cpu_s);
  row.wrong = static_cast<std::size_t>(meeting_->sum(static_cast<double>(wrong)));
  return row;
}

std::string Session::algorithm_word(const BenchCell& cell, const Prediction& prediction) const {
  if (device_) return "direct";
  // Beside the forced ones the library's own choice keeps its own name.
  if (cell.algorithm != Algorithm::automatic || options_.every_algorithm)
    return std::string(to_string(cell.algorithm));
  return std::string(to_string(prediction.algorithm));
}

void Session::report(const std::vector<Row>& line) {
  if (group_.rank() == 0) {
    const Row* forms[2] = {nullptr, nullptr};
    for (const Row& row : line) forms[row.in_place ? 1 : 0] = &row;
    print(table_line(table_, forms[0], forms[1]));
  }
  rows_.insert(rows_.end(), line.begin(), line.end());
  // What cannot be kept now fails once more, and is told, at the end.
  if (group_.rank() == 0 && file_.keeps()) (void)file_.keep(report_text(machine_, rows_));
}

void Session::print(const std::string& text) {
  if (options_.json == "-") return;  // standard output is for the JSON
  if (options_.rows_to_terminal) {
    progress_->print(text);
    return;
  }
  progress_->clear();
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) != 0 && errno == EPIPE) reader_gone_ = true;
}

int Session::finish() {
  std::size_t wrong = 0;
  for (const Row& row : rows_) wrong += row.wrong;
  if (group_.rank() != 0) return wrong > 0 ? kFailed : kDone;
  if (options_.summary) print("#\n" + summary_table(rows_));
  progress_->clear();
  if (Status status = file_.finish(report_text(machine_, rows_)); !status.ok())
    return complain("bench", status.annotate("--json"));
  if (wrong > 0) return complain("bench", fmt::format("{} elements were wrong", wrong), kFailed);
  return kDone;
}

}  // namespace tutti::tool
