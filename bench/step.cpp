// bench/step.cpp - how long does a training step of a GPT take that is split dp × tp × pp × cp, and how much of it
// is communication? bench/plan_check runs it on emulated hosts beside the plan. By hand, on one host:
//
//   tutti run -n 8 build/bin/bench_step --dp 2 --tp 2 --pp 2 --layers 8 --hidden 256 --flops-per-s 40e9
//   tutti run -n 4 build/bin/bench_step --links 1          # what links and memory give, for a cluster file
//
// Layers sleep (bench/step_gpt.hpp), so that a few cores are enough for many ranks; what ranks say to each other is
// real. Rank 0 writes JSON, in seconds; medians of the steps:
//
//   step_s     a whole step, of the slowest rank; steps follow each other without a barrier
//   silent_s   the same sleeps and schedule with nothing to send and nothing to train
//   update_s   the optimizer's part of step_s; exposed_s = step_s − silent_s − update_s
//   tensor_s, context_s, pipeline_s, bubble_s, data_s      what the ranks' own meters say, on average
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "bench/step_gpt.hpp"
#include "bench/step_links.hpp"
#include "tutti/mesh.hpp"
#include "tutti/tutti.hpp"

namespace tutti::bench {
namespace {

[[noreturn]] void give_up(int code, const std::string& what) {
  std::fprintf(stderr, "bench_step: %s\n", what.c_str());
  std::_Exit(code);
}
void must(const Status& status) {
  if (!status.ok()) give_up(1, status.to_string());
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return *std::move(result);
}

// ---- the command line

class StepWords {
 public:
  StepWords(int count, char** words) {
    for (int i = 1; i < count; i += 2) {
      const std::string name = words[i];
      if (i + 1 == count) give_up(2, name + " needs a value");
      if (name == "--out") {
        out_ = words[i + 1];
        continue;
      }
      if (!values_.contains(name)) give_up(2, "there is no option '" + name + "'");
      char* end = nullptr;
      values_[name] = std::strtod(words[i + 1], &end);
      if (*end != 0 || values_[name] < 0) give_up(2, name + " needs a number");
    }
  }
  double number(const char* name) const { return values_.at(name); }
  int whole(const char* name) const { return static_cast<int>(number(name)); }
  const std::string& out() const { return out_; }

 private:
  std::map<std::string, double> values_ = {{"--dp", 1},
                                           {"--tp", 1},
                                           {"--pp", 1},
                                           {"--cp", 1},
                                           {"--virtual-stages", 1},
                                           {"--zero", 0},
                                           {"--layers", 8},
                                           {"--hidden", 256},
                                           {"--heads", 8},
                                           {"--vocab", 1024},
                                           {"--seq", 512},
                                           {"--micro-batch", 1},
                                           {"--global-batch", 16},
                                           {"--sequence-parallel", 1},
                                           {"--flops-per-s", 40e9},
                                           {"--bucket-bytes", 4 << 20},
                                           {"--steps", 5},
                                           {"--links", 0}};
  std::string out_;
};

PlayedLayout layout_of(const StepWords& words) {
  plan::Model model;
  model.name = "played";
  model.layers = words.whole("--layers");
  model.hidden = words.whole("--hidden");
  model.heads = words.whole("--heads");
  model.vocab = words.whole("--vocab");
  model.context = words.whole("--seq");
  PlayedLayout layout;
  layout.model = must(plan::complete(model));
  layout.dp = words.whole("--dp");
  layout.tp = words.whole("--tp");
  layout.pp = words.whole("--pp");
  layout.cp = words.whole("--cp");
  layout.virtual_stages = words.whole("--virtual-stages");
  layout.zero = words.whole("--zero");
  layout.micro_batch = words.whole("--micro-batch");
  layout.global_batch = words.whole("--global-batch");
  layout.sequence_parallel = layout.tp > 1 && words.whole("--sequence-parallel") != 0;
  layout.flops_per_s = words.number("--flops-per-s");
  if (layout.zero > 1) give_up(2, "--zero is 0 or 1");
  if (layout.ranks() < 1 || layout.model.layers % layout.places() != 0 ||
      layout.global_batch % (layout.dp * layout.micro_batch) != 0 ||
      layout.model.context % (layout.cp * layout.tp) != 0)
    give_up(2, "layers, batch or sequence cannot be shared out over this layout");
  return layout;
}

// ---- a rank's place, and the steps it plays

class PlayedRank {
 public:
  PlayedRank(const StepWords& words, std::shared_ptr<Group> group)
      : words_(words), layout_(layout_of(words)), group_(std::move(group)) {
    if (layout_.ranks() != group_->size())
      give_up(2, "the layout is of " + std::to_string(layout_.ranks()) + " ranks, the job has " +
                     std::to_string(group_->size()));
    MeshOptions options;
    for (const char* axis : {"tp", "cp", "pp"}) options.specs[axis] = {axis, {}, Urgency::urgent};
    options.combinations = {{"dp", "cp"}};
    mesh_ = must(Mesh::create(
        group_, {{"pp", layout_.pp}, {"dp", layout_.dp}, {"cp", layout_.cp}, {"tp", layout_.tp}},
        options));
  }

  // Everything but data parallelism's weights and gradients, and but what is said.
  double silent_s() {
    TensorCalls tensor(nullptr, layout_.sequence_parallel);
    ContextVisits context(layout_, nullptr);
    const PlayedParameters parameters = own_parameters();
    SleepingGpt stages(layout_, parameters, tensor, context, nullptr);
    auto runner = make_runner(1);
    std::vector<double> lengths;
    for (int i = 0; i < 3; ++i) {
      must(group_->barrier());
      const double begin = now_us();
      must(runner->run(stages));
      lengths.push_back(slowest((now_us() - begin) * 1e-6));
    }
    return median_of(lengths);
  }

  std::map<std::string, double> step() {
    const auto tensor_group = must(mesh_->along("tp"));
    TensorCalls tensor(layout_.tp > 1 ? tensor_group.get() : nullptr, layout_.sequence_parallel);
    must(tensor.allocate(layout_.activation()));
    std::unique_ptr<exchange::RingExchange> ring;
    if (layout_.cp > 1) ring = must(exchange::RingExchange::create(must(mesh_->along("cp"))));
    ContextVisits context(layout_, std::move(ring));
    PlayedParameters parameters = own_parameters();
    const auto model = make_model(parameters);
    SleepingGpt stages(layout_, parameters, tensor, context, model.get());
    auto runner = make_runner(layout_.boundary());
    return median_step([&](double begin_us) {
      const auto times = must(runner->run(stages));
      must(model->step({.lr = 1e-6, .tokens = 1}));
      const auto data = model->take_times();
      return std::map<std::string, double>{{"step_s", (now_us() - begin_us) * 1e-6},
                                           {"update_s", static_cast<double>(data.update) * 1e-9},
                                           {"tensor_s", tensor.take_seconds()},
                                           {"context_s", context.take_seconds()},
                                           {"pipeline_s", times.waiting_s},
                                           {"bubble_s", times.bubble_s},
                                           {"data_s", waited(data)}};
    });
  }

 private:
  PlayedParameters own_parameters() const {
    const Coordinates at = mesh_->coordinates();
    return {layout_, at[0], "pp " + std::to_string(at[0]) + ", tp " + std::to_string(at[3]) + ": "};
  }

  std::unique_ptr<pipeline::PipelineRunner> make_runner(std::size_t elements) {
    pipeline::PipelineOptions options;
    options.kind = layout_.virtual_stages > 1 ? pipeline::PipelineKind::interleaved
                                              : pipeline::PipelineKind::one_f_one_b;
    options.micro_batches = layout_.micro_batches();
    options.virtual_stages = layout_.virtual_stages;
    options.boundaries = {{{elements, Dtype::f32}}};
    return must(pipeline::PipelineRunner::create(*must(mesh_->along("pp")), options));
  }

  std::unique_ptr<train::DataParallel> make_model(PlayedParameters& parameters) {
    train::DataParallelOptions options;
    options.overlap_grad_reduce = true;
    options.use_distributed_optimizer = options.overlap_param_gather = layout_.zero == 1;
    options.bucket_bytes = static_cast<std::size_t>(words_.number("--bucket-bytes"));
    options.pipelined = true;
    train::Groups groups;
    groups.data = must(mesh_->along("dp", "cp"));
    groups.everyone = group_;
    return must(train::DataParallel::create(groups, parameters.list(), options));
  }

  // Buckets only: who comes to the step's agreement first waits there for the pipeline.
  static double waited(const train::StepTimes& times) {
    std::int64_t sum = 0;
    for (const train::CollectiveTimes& each : times.collectives)
      if (each.bucket >= 0) sum += each.wait_end - each.wait_begin;
    return static_cast<double>(sum) * 1e-9;
  }

  template <class Step>
  std::map<std::string, double> median_step(const Step& play) {
    constexpr int kWarmup = 3;  // the order of use is learned, the memory cold
    std::map<std::string, std::vector<double>> values;
    double begin_us = now_us();
    for (int i = 0; i < kWarmup + words_.whole("--steps"); ++i) {
      const auto one = play(begin_us);
      begin_us = now_us();
      if (i < kWarmup) continue;
      for (const auto& [name, value] : one) values[name].push_back(value);
    }
    std::map<std::string, double> medians;
    for (const auto& [name, list] : values) {
      const double median = median_of(list);
      medians[name] = name == "step_s" ? slowest(median) : mean(median);
    }
    return medians;
  }

  double slowest(double value) {
    must(group_->all_reduce(Buffer::of(&value, 1), ReduceOp::max));
    return value;
  }
  double mean(double value) {
    must(group_->all_reduce(Buffer::of(&value, 1), ReduceOp::avg));
    return value;
  }

  const StepWords& words_;
  PlayedLayout layout_;
  std::shared_ptr<Group> group_;
  std::shared_ptr<Mesh> mesh_;
};

// ---- the report

std::map<std::string, double> link_figures(const std::shared_ptr<Group>& group) {
  const int host = group->hosts()[static_cast<std::size_t>(group->rank())];
  const auto figures = must(LinkMeter(group, must(group->split(host, 0))).measure());
  return {{"within_latency_s", figures.within_latency_s},
          {"within_bandwidth", figures.within_bandwidth},
          {"between_latency_s", figures.between_latency_s},
          {"between_bandwidth", figures.between_bandwidth},
          {"memory_bandwidth", figures.memory_bandwidth},
          {"reduce_bandwidth", figures.reduce_bandwidth}};
}

void write(const std::string& path, const std::map<std::string, double>& figures) {
  std::FILE* file = path.empty() ? stdout : std::fopen(path.c_str(), "w");
  if (file == nullptr) give_up(2, "cannot write " + path);
  const char* comma = "{";
  for (const auto& [name, value] : figures) {
    std::fprintf(file, "%s\"%s\": %.9g", comma, name.c_str(), value);
    comma = ", ";
  }
  std::fprintf(file, "}\n");
  if (file != stdout) std::fclose(file);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** arguments) {
  using namespace tutti::bench;
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // a sleep that is late is compute that nobody asked for
  const StepWords words(count, arguments);
  const auto group = must(tutti::Group::from_environment());
  std::map<std::string, double> figures;
  if (words.whole("--links") != 0) {
    figures = link_figures(group);
  } else {
    PlayedRank rank(words, group);
    const double silent_s = rank.silent_s();
    figures = rank.step();
    figures["silent_s"] = silent_s;
    figures["exposed_s"] = figures["step_s"] - silent_s - figures["update_s"];
  }
  if (group->rank() == 0) write(words.out(), figures);
  must(group->barrier());
  return 0;
}
