// apps/pretrain_gpt/report.hpp - what rank 0 tells: a line for a step, a JSON object in the log,
// and a table at the end. docs/formats/training_log.md.
//
// Thread-safety  one thread at a time.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "event_file.hpp"
#include "flags.hpp"
#include "pass_sums.hpp"
#include "prediction.hpp"
#include "tutti/plan.hpp"
#include "tutti/train/data_parallel.hpp"

namespace pretrain {

// All that is known of a step once every rank's numbers are here.
struct StepLine {
  std::int64_t step = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();  // there is none where nothing counts
  double grad_norm = 0;
  double lr = 0;
  double weight_decay = 0;
  double loss_scale = 0;  // 0: there is none
  std::int64_t counted =
      0;  // what the loss is a mean of: tokens, or what a program's own loss says
  tutti::train::Outcome outcome = tutti::train::Outcome::updated;
  tutti::train::StepOverlap overlap;
  AxisWaits waits;  // mean over the ranks
  int ranks = 1;
  int sequences = 0;  // of the global batch; samples of a program's own model
};

// Of a rank at most, in bytes; its fields are those of kMemoryKinds in report.cpp.
struct TakenMemory {
  double weights = 0, gradients = 0, optimizer = 0, pool = 0;
  double activations = 0;  // NaN: nobody counts
};

struct MemoryLine {
  std::vector<TakenMemory> ranks;
  std::optional<tutti::plan::ReplicaMemory> predicted;
};

// How fast a step was, by the slowest rank: in tokens, or in samples of a program's own model.
struct Throughput {
  const char* of = "tokens";
  double per_s = 0;
};

// What a step's share of the devices' peak is told of.
struct Compute {
  double token_flops = 0;  // forward and backward, each product once
  double peak_flops = 0;   // a second, of a rank
  bool measured = false;
};

struct SavedCheckpoint {
  std::int64_t step = 0;
  double held_s = 0;  // for which training stood still
  double took_s = 0;  // until it was whole
};

class TrainingReport {
 public:
  // io names a log that cannot be written. `first_step`: after a checkpoint it is not 1.
  static tutti::Result<std::unique_ptr<TrainingReport>> open(const Flags& flags, int ranks,
                                                             std::int64_t first_step);
  ~TrainingReport();
  TrainingReport(const TrainingReport&) = delete;
  TrainingReport& operator=(const TrainingReport&) = delete;

  // `mesh`: who has which part; empty: all the whole.
  void begin(const std::string& model, const std::string& mesh, const std::string& layout);
  // After a checkpoint; where its step is the last one, there is nothing left to do.
  void resumed(const std::string& from);
  void nothing_left();
  // Weights in other tools' folders.
  void read(const std::string& folder);
  void wrote(const std::string& folder);
  // --load latest, and there is none in `folder`.
  void begun_anew(const std::string& folder);
  // Ranks were lost, for that reason; those that are left go on after this step.
  void shrunk(std::int64_t step, int before, int now, const std::string& why);
  void grown(std::int64_t step, int before, int now);
  // By a signal to some rank, after this step.
  void stopped(std::int64_t step, bool saved);
  // To be compared with what is measured, at the end.
  void predict(const Foretold& prediction);
  // From here on steps tell their MFU.
  void compute(const Compute& compute);
  // Tells of buckets that have moved since it was last called.
  void layout(const std::string& layout);
  void step(const StepLine& line);
  Throughput throughput(const StepLine& line) const;
  void validation(std::int64_t step, double loss);
  void warning(std::int64_t step, const std::string& text);
  void checkpoint(const SavedCheckpoint& saved, const std::string& folder);
  // What the run has taken at most, beside what model arithmetic says.
  void memory(const MemoryLine& line);
  // What rank 0's compute waited for each unit, where weights are gathered for use; told at the end.
  void units(std::span<const tutti::train::BucketWaits> waits);
  void end(std::int64_t step, std::int64_t skipped, std::int64_t transient,
           const std::string& weight_hash);
  // io: something could not be written, as on a full disk.
  const tutti::Status& failure() const { return failure_; }

 private:
  TrainingReport(const Flags& flags, int ranks, std::int64_t first_step);
  void print_line(const StepLine& line);
  double mfu(const StepLine& line) const;      // NaN: the peak is not known
  double done_in(const StepLine& line) const;  // of what throughput tells
  std::string step_json(const StepLine& line) const;
  template <class... Values>
  void print(fmt::format_string<Values...> text, Values&&... values) {
    put(fmt::format(text, std::forward<Values>(values)...));
  }
  void put(const std::string& text);
  void fail(const std::string& text);
  void write_log(const std::string& json);
  void write_events(std::int64_t step, std::span<const Scalar> scalars);
  void add_to_table(const StepLine& line);
  void print_table(std::int64_t last_step);
  void print_units();
  void tell_prediction();
  std::string time_left(std::int64_t step) const;

  Flags flags_;
  int ranks_;
  std::int64_t first_step_;
  std::chrono::steady_clock::time_point begin_;
  std::FILE* log_ = nullptr;
  tutti::Status failure_;  // the first
  bool stdout_failed_ = false;
  std::unique_ptr<EventFile> events_;  // for TensorBoard
  std::string layout_;                 // as told last
  std::optional<Foretold> prediction_;
  std::optional<Compute> compute_;
  // Sums over the steps in the table.
  std::int64_t steps_ = 0;
  double done_ = 0;  // tokens or samples
  double used_ = 0;  // seconds of the peak
  double first_loss_ = std::numeric_limits<double>::quiet_NaN(), last_loss_ = first_loss_;
  tutti::train::RankOverlap mean_, max_;
  std::map<int, tutti::train::BucketWaits> units_;
  std::int64_t unit_steps_ = 0;
};

}  // namespace pretrain
