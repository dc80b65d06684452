// bench/overlap_tutti.cpp - one rank of the training whose communication is to be hidden, for
// bench/overlap; bench/overlap_ddp.py is the same under PyTorch DDP. By hand, on one host:
//
//   tutti run -n 2 build/bin/bench_overlap_tutti --model mlp --layers 4 --out /dev/stdout
//
//   communication   the collectives of a step back to back, without compute
//   compute         the same processes at once, each a group of its own: nothing to send
//   train           all overlaps on
//
// Times are medians over the steps, and of those the slowest rank's, in seconds.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/overlap_models.hpp"
#include "bench/overlap_replay.hpp"
#include "bench/protocol.hpp"
#include "tutti/libtorch.hpp"

namespace {

using tutti::Collective;
using tutti::bench::check;
using tutti::bench::checked;
using tutti::bench::fail;
using tutti::bench::median_of;
using tutti::bench::now_us;
using tutti::bench::Replay;
using tutti::bench::slowest;
using tutti::libtorch::DataParallel;
using tutti::train::RankOverlap;
using tutti::train::StepOverlap;

// ---- options

class Words {
 public:
  Words(int count, char** words) {
    for (int i = 1; i < count; i += 2) {
      const std::string name = words[i];
      if (!values_.contains(name)) fail(2, "there is no option '" + name + "'");
      if (i + 1 == count) fail(2, name + " needs a value");
      values_[name] = words[i + 1];
    }
    if (text("--out").empty()) fail(2, "--out FILE is missing");
  }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  double number(const std::string& name) const {
    char* end = nullptr;
    const double value = std::strtod(text(name).c_str(), &end);
    if (*end != 0 || text(name).empty() || value < 0)
      fail(2, name + " needs a number, not '" + text(name) + "'");
    return value;
  }
  int whole(const std::string& name) const { return static_cast<int>(number(name)); }

 private:
  std::map<std::string, std::string> values_ = {{"--model", "timed"},
                                                {"--layers", "16"},
                                                {"--layer-bytes", "2097152"},
                                                {"--forward-ms", "0"},
                                                {"--backward-ms", "0"},
                                                {"--width", "256"},
                                                {"--tokens", "512"},
                                                {"--optimizer", "sgd"},
                                                {"--bucket-mib", "0"},
                                                {"--zero", "1"},
                                                {"--steps", "10"},
                                                {"--warmup", "3"},
                                                {"--repeats", "5"},
                                                {"--phases", "compute,train"},
                                                {"--grad-reduce-in-bf16", "0"},
                                                {"--out", ""}};
};

std::shared_ptr<tutti::bench::Net> make_net(const Words& words) {
  torch::manual_seed(1);
  if (words.text("--model") == "mlp")
    return std::make_shared<tutti::bench::MlpNet>(tutti::bench::MlpShape{
        words.whole("--layers"), words.whole("--width"), words.whole("--tokens")});
  if (words.text("--model") != "timed")
    fail(2, "--model is timed or mlp, not '" + words.text("--model") + "'");
  return std::make_shared<tutti::bench::TimedNet>(tutti::bench::TimedShape{
      words.whole("--layers"), words.whole("--layer-bytes"), words.number("--forward-ms") / 1e3,
      words.number("--backward-ms") / 1e3});
}

tutti::libtorch::Options options_of(const Words& words) {
  tutti::libtorch::Options options;
  options.layer.overlap_grad_reduce = true;
  options.layer.zero = words.whole("--zero");
  options.layer.grad_reduce_in_bf16 = words.whole("--grad-reduce-in-bf16") != 0;
  options.layer.overlap_param_gather = true;
  options.is_unit = [](const torch::nn::Module& module) {
    return dynamic_cast<const tutti::bench::TimedLayer*>(&module) != nullptr ||
           dynamic_cast<const tutti::bench::MlpBlock*>(&module) != nullptr;
  };
  options.layer.bucket_bytes = static_cast<std::size_t>(words.number("--bucket-mib") * (1 << 20));
  if (words.text("--optimizer") == "sgd")
    options.layer.optimizer = tutti::train::Sgd{};
  else if (words.text("--optimizer") != "adamw")
    fail(2, "--optimizer is sgd or adamw, not '" + words.text("--optimizer") + "'");
  options.broadcast_buffers = false;
  return options;
}

// ---- the training

class Training {
 public:
  Training(const Words& words, std::shared_ptr<tutti::Group> group)
      : net_(make_net(words)),
        model_(checked(DataParallel::create(net_, {group, nullptr}, options_of(words)))) {}

  // Its length in seconds, and where the time went.
  double step() {
    const double begin = now_us();
    check(model_->begin_micro_batch(true));
    check(model_->backward(net_->forward(model_.get())));
    // Small enough a step that no weight runs away: a step that is skipped gathers nothing.
    const auto report = checked(model_->step({.lr = 1e-6, .tokens = 1 << 20}));
    if (report.outcome != tutti::train::Outcome::updated) fail(3, "a step was skipped");
    return (now_us() - begin) * 1e-6;
  }
  tutti::train::StepTimes times() { return model_->layer().take_times(); }
  tutti::train::DataParallel& layer() { return model_->layer(); }

 private:
  std::shared_ptr<tutti::bench::Net> net_;
  std::shared_ptr<DataParallel> model_;
};

using Figures = std::vector<std::pair<std::string, double>>;

Figures compute(const Words& words, tutti::Group& group) {
  Training training(words, checked(group.split(group.rank(), 0)));
  for (int i = 0; i < words.whole("--warmup"); ++i) training.step();
  check(group.barrier());
  std::vector<double> step, forward, backward, update;
  for (int i = 0; i < words.whole("--steps"); ++i) {
    step.push_back(training.step());
    const auto times = training.times();
    forward.push_back(static_cast<double>(times.forward) * 1e-9);
    backward.push_back(static_cast<double>(times.backward) * 1e-9);
    update.push_back(static_cast<double>(times.update) * 1e-9);
  }
  return {{"step_s", slowest(group, median_of(step))},
          {"forward_s", slowest(group, median_of(forward))},
          {"backward_s", slowest(group, median_of(backward))},
          {"update_s", slowest(group, median_of(update))}};
}

// Over all ranks and steps; of each step the slowest rank, but for what is said to be a mean.
Figures summary(const std::vector<StepOverlap>& steps) {
  const auto median = [&](double RankOverlap::*field, bool mean) {
    std::vector<double> values;
    for (const StepOverlap& step : steps) values.push_back((mean ? step.mean : step.max).*field);
    return median_of(values);
  };
  double exposed = 0, wire = 0;
  for (const StepOverlap& step : steps) {
    exposed += step.mean.exposed_s;
    wire += step.mean.wire_s;
  }
  return {{"forward_s", median(&RankOverlap::forward_s, false)},
          {"backward_s", median(&RankOverlap::backward_s, false)},
          {"update_s", median(&RankOverlap::update_s, false)},
          {"wait_s", median(&RankOverlap::wait_s, false)},
          {"skew_s", median(&RankOverlap::skew_s, false)},
          {"exposed_s", median(&RankOverlap::exposed_s, false)},
          {"wire_s", median(&RankOverlap::wire_s, false)},
          {"reduce_wire_s", median(&RankOverlap::reduce_wire_s, false)},
          {"gather_wire_s", median(&RankOverlap::gather_wire_s, false)},
          {"tail_s", median(&RankOverlap::tail_s, false)},
          {"meter_bound_s", median(&RankOverlap::bound_s, false)},
          {"hidden_worst", median(&RankOverlap::hidden, false)},
          {"hidden", wire > 0 ? 1 - exposed / wire : 1}};
}

Figures train(const Words& words, const std::shared_ptr<tutti::Group>& group) {
  Training training(words, group);
  for (int i = 0; i < words.whole("--warmup"); ++i) training.step();
  auto meter = checked(tutti::train::OverlapMeter::create(*group));
  check(group->barrier());
  std::vector<double> lengths;
  std::vector<StepOverlap> steps;
  double begin = now_us();
  for (int i = 0; i < words.whole("--steps"); ++i) {
    training.step();
    check(meter->publish(i, training.times()));
    while (auto overlap = checked(meter->take(false))) steps.push_back(*overlap);
    const double now = now_us();
    lengths.push_back((now - begin) * 1e-6);
    begin = now;
  }
  while (steps.size() < lengths.size())
    if (auto overlap = checked(meter->take(true))) steps.push_back(*overlap);
  Figures figures = summary(steps);
  figures.insert(figures.begin(), {"step_s", slowest(*group, median_of(lengths))});
  if (group->rank() == 0) std::fprintf(stderr, "%s\n", training.layer().describe().c_str());
  return figures;
}

// ---- the collectives of a step without compute

Figures communication(const Words& words, const std::shared_ptr<tutti::Group>& group) {
  Training training(words, group);
  for (int i = 0; i < 4; ++i) training.step();
  Replay replay(*group, training.times().collectives);
  const int repeats = words.whole("--repeats");
  const double reduce = replay.seconds(Collective::reduce_scatter, repeats);
  const double gather = replay.seconds(Collective::all_gather, repeats);
  return {{"communication_s", reduce + gather},
          {"reduce_s", reduce},
          {"gather_s", gather},
          {"control_s", replay.seconds(Collective::all_reduce, repeats)},
          {"tail_s", replay.last_seconds(Collective::reduce_scatter, repeats)}};
}

// ---- the report

void write(const std::string& path, const std::vector<std::pair<std::string, Figures>>& phases) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) fail(1, "cannot write " + path);
  const char* comma = "{";
  for (const auto& [phase, figures] : phases) {
    std::fprintf(file, "%s\"%s\": ", comma, phase.c_str());
    const char* inner = "{";
    for (const auto& [name, value] : figures) {
      std::fprintf(file, "%s\"%s\": %.9g", inner, name.c_str(), value);
      inner = ", ";
    }
    std::fprintf(file, "}");
    comma = ", ";
  }
  std::fprintf(file, "}\n");
  std::fclose(file);
}

}  // namespace

int main(int count, char** arguments) {
  const Words words(count, arguments);
  at::set_num_threads(1);
  auto group = checked(tutti::Group::from_environment());
  std::vector<std::pair<std::string, Figures>> phases;
  std::istringstream names(words.text("--phases"));
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "communication")
      phases.emplace_back(name, communication(words, group));
    else if (name == "compute")
      phases.emplace_back(name, compute(words, *group));
    else if (name == "train")
      phases.emplace_back(name, train(words, group));
    else
      fail(2, "--phases knows communication, compute and train, not '" + name + "'");
  }
  if (group->rank() == 0) write(words.text("--out"), phases);
  check(group->barrier());
  return 0;
}
