// The training layer without a framework: four ranks fit y = slope · x + offset, each on its own
// samples. Gradients are reduced beside backward, weights gathered beside the next forward; every
// rank ends with the same bits.
//
//   tutti run -n 4 build/bin/examples/line_fit
#include "example.hpp"
#include "tutti/train.hpp"

using namespace example;
namespace train = tutti::train;

constexpr int kSamples = 8;  // per rank and step

// Forward and backward through the layer's gates and hooks: the sum of squared errors.
static double pass(train::DataParallel& model, int step, int rank, int ranks) {
  check(model.begin_micro_batch(true));
  check(model.need(0));
  check(model.need(1));
  const float slope = *static_cast<const float*>(model.parameter(0).data);
  const float offset = *static_cast<const float*>(model.parameter(1).data);
  float loss = 0, d_slope = 0, d_offset = 0;
  for (int i = 0; i < kSamples; ++i) {
    const int number = (step * ranks + rank) * kSamples + i;
    const float x = static_cast<float>(number % 21 - 10) / 10;
    const float error = slope * x + offset - (3 * x - 1);
    loss += error * error;
    d_slope += 2 * error * x;
    d_offset += 2 * error;
  }
  model.begin_backward();
  *static_cast<float*>(model.gradient(1).data) += d_offset;
  model.ready(1);
  *static_cast<float*>(model.gradient(0).data) += d_slope;
  model.ready(0);
  check(model.end_backward());
  return loss;
}

// Prints what has arrived; the line of a step comes by the end of the next.
static void print_lines(train::MetricsBus& bus, bool wait, int rank) {
  while (auto line = value_of(bus.take(wait)))
    if (line->step % 20 == 0 && rank == 0)
      say("step %2d  loss %.4f", static_cast<int>(line->step),
          *line->find("loss_sum") / *line->find("samples"));
}

int main() {
  auto group = join();
  std::vector<float> slope = {0}, offset = {0};
  std::vector<train::Parameter> parameters(2);
  parameters[0].name = "slope";
  parameters[0].value = tutti::Buffer::of(slope);
  parameters[1].name = "offset";
  parameters[1].value = tutti::Buffer::of(offset);
  train::DataParallelOptions options;
  options.overlap_grad_reduce = options.use_distributed_optimizer = true;
  options.overlap_param_gather = true;
  options.optimizer = train::Sgd{0.5};
  auto model = value_of(train::DataParallel::create({group, nullptr}, parameters, options));
  auto bus = value_of(train::MetricsBus::create(*group, true));

  for (int step = 1; step <= 60; ++step) {
    bus->add("loss_sum", pass(*model, step, group->rank(), group->size()));
    bus->add("samples", kSamples);
    value_of(model->step({.lr = 0.02, .tokens = kSamples}));
    check(bus->publish(step));
    print_lines(*bus, false, group->rank());
  }
  print_lines(*bus, true, group->rank());
  check(model->check_weights());
  check(model->parameters_ready());
  if (group->rank() == 0)
    say("y = %.2f x %+.2f", *static_cast<const float*>(model->parameter(0).data),
        *static_cast<const float*>(model->parameter(1).data));
}
