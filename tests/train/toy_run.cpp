#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

constexpr std::int64_t kTokensPerSequence = 5;

Status take_lines(train::MetricsBus& bus, bool wait, ToyOutcome& outcome) {
  while (true) {
    auto line = bus.take(wait);
    if (!line.ok()) return line.status();
    if (!*line) return {};
    outcome.losses.push_back(*(**line).find("loss_sum") / *(**line).find("tokens"));
  }
}

}  // namespace

Result<ToyOutcome> train_toy(std::shared_ptr<Group> group, const ToyRun& run) {
  ToyModel model(run.model);
  train::DataParallelOptions options = run.options;
  options.groups = {{.weight_decay = 0.0}, {.weight_decay = 0.1}};
  auto layer = train::DataParallel::create({group, group}, model.parameters(), options);
  if (!layer.ok()) return layer.status();
  auto bus = train::MetricsBus::create(*group, run.asynchronous_log);
  if (!bus.ok()) return bus.status();
  model.attach(**layer);
  if (run.begin) run.begin(**layer);
  ToyOutcome outcome;
  const std::int64_t per_step = static_cast<std::int64_t>(group->size()) * run.accumulation;
  for (int step = 0; step < run.steps; ++step) {
    double loss = 0;
    for (int micro = 0; micro < run.accumulation; ++micro) {
      ToyModel::Pass pass;
      pass.last = micro + 1 == run.accumulation;
      if (run.change) run.change(step, group->rank(), micro, pass);
      auto sum =
          model.run(toy_sequence(step * per_step + group->rank() * run.accumulation + micro), pass);
      if (!sum.ok()) return sum.status();
      loss += *sum;
    }
    const std::int64_t tokens = kTokensPerSequence * run.accumulation;
    train::StepInput input{.lr = 0.02, .tokens = tokens};
    if (run.tell) run.tell(input);
    auto report = (*layer)->step(input);
    if (!report.ok()) return report.status();
    outcome.norms.push_back(report->grad_norm);
    (*bus)->add("loss_sum", loss);
    (*bus)->add("tokens", static_cast<double>(tokens));
    if (Status status = (*bus)->publish(step); !status.ok()) return status;
    if (Status status = take_lines(**bus, false, outcome); !status.ok()) return status;
    if (run.evaluate_every > 0 && (step + 1) % run.evaluate_every == 0)
      outcome.evaluated.push_back(model.evaluate(toy_sequence(1000)));
    if (run.look) run.look(step, **layer, *report);
    outcome.reports.push_back(*std::move(report));
  }
  if (Status status = take_lines(**bus, true, outcome); !status.ok()) return status;
  auto hash = (*layer)->weight_hash();
  if (!hash.ok()) return hash.status();
  outcome.hash = *hash;
  return outcome;
}

std::vector<Mode> five_modes() {
  std::vector<Mode> modes(5);
  modes[0].name = "plain";
  modes[1].name = "overlap-grad-reduce";
  modes[2].name = "distributed-optimizer";
  modes[3].name = "distributed-optimizer+overlap-grad-reduce";
  modes[4].name = "distributed-optimizer+overlap-grad-reduce+overlap-param-gather";
  for (int mode : {1, 3, 4})
    modes[static_cast<std::size_t>(mode)].options.overlap_grad_reduce = true;
  for (int mode : {2, 3, 4})
    modes[static_cast<std::size_t>(mode)].options.use_distributed_optimizer = true;
  modes[4].options.overlap_param_gather = true;
  return modes;
}

std::vector<Mode> zero_modes() {
  std::vector<Mode> modes(4);
  modes[0].name = "zero 2";
  modes[1].name = "zero 2+overlap-param-gather";
  modes[2].name = "zero 3";
  modes[3].name = "zero 3, three units ahead";
  for (Mode& mode : modes) {
    mode.options.zero = 2;
    mode.options.overlap_grad_reduce = true;
  }
  modes[1].options.overlap_param_gather = true;
  modes[2].options.zero = modes[3].options.zero = 3;
  modes[3].options.prefetch_units = 3;
  return modes;
}

Mode every_micro_batch() {
  Mode mode = five_modes()[3];
  mode.name = "zero 1, reducing every micro-batch";
  mode.options.reduce_every_micro_batch = true;
  return mode;
}

}  // namespace tutti::test
