// tool/bench/session.hpp - one rank's part of a benchmark: every cell in turn, rank 0 reports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "tool/bench/device_bench.hpp"
#include "tool/bench/floor.hpp"
#include "tool/bench/meeting.hpp"
#include "tool/bench/options.hpp"
#include "tool/bench/progress.hpp"
#include "tool/bench/row.hpp"
#include "tool/bench/table.hpp"
#include "tool/result_file.hpp"
#include "tutti/group.hpp"

namespace tutti::tool {

class Session {
 public:
  // `transport` is the word that is reported. `threads`: all ranks live in one process, so its CPU
  // time is everybody's.
  Session(Group& group, const BenchOptions& options, std::string transport, bool threads)
      : group_(group),
        options_(options),
        transport_(std::move(transport)),
        threads_(threads),
        table_(bench_table(options)),
        file_(options.json) {}
  ~Session();

  // Collective. The exit code: 1 when a result was wrong or the group failed.
  int run();

 private:
  struct Line {  // of the table: the forms of one size and algorithm
    std::vector<BenchCell> cells;
  };

  Status prepare();
  std::vector<Line> plan() const;
  std::vector<Algorithm> algorithms_for(Collective collective) const;
  Status open_device();
  Status make_areas();
  Result<Row> measure(const BenchCell& cell);
  // The task is a Task or a DeviceTask.
  template <class AnyTask>
  Result<bench::Timing> time(const AnyTask& task, std::size_t& wrong);
  template <class AnyTask>
  Status verify(const AnyTask& task, std::size_t& wrong);
  double time_of_host(const DeviceTask& task, int iterations);
  std::string where() const;
  std::string algorithm_word(const BenchCell& cell, const Prediction& prediction) const;
  void report(const std::vector<Row>& line);
  void print(const std::string& text);
  int finish();
  int leave();  // before the end: nobody reads any more

  Group& group_;
  const BenchOptions& options_;
  std::string transport_;
  bool threads_;
  std::unique_ptr<BenchMeeting> meeting_;
  std::unique_ptr<Floor> floor_;
  std::unique_ptr<DeviceBench> device_;  // null: buffers are in CPU memory
  std::optional<double> ceiling_gbs_;    // of its memory
  std::unique_ptr<BenchProgress> progress_;
  SymmetricMemory symmetric_;
  void* plain_ = nullptr;
  std::size_t area_bytes_ = 0;
  Areas areas_;
  std::vector<Row> rows_;
  bool reader_gone_ = false;
  FittedTable table_;
  ResultFile file_;
  Json machine_;  // rank 0's
};

}  // namespace tutti::tool
