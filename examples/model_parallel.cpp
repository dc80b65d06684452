// A model that is cut in two: rank 0 holds the first half, rank 1 the second, and activations and gradients
// go back and forth. First by plain send and recv, one micro-batch at a time, in which one of the ranks
// always waits; then by a pipeline, which keeps both busy. The gradients are the same to the bit.
//
//   tutti run -n 2 build/bin/examples/model_parallel
#include "example.hpp"
#include "tutti/pipeline.hpp"

using namespace example;
using namespace tutti::pipeline;

constexpr int kMicroBatches = 4, kWidth = 3;
using Values = std::vector<float>;

// One half: y = weight · x, element by element.
struct Half {
  float weight;
  float gradient = 0;

  void forward(const float* x, float* y) const {
    for (int i = 0; i < kWidth; ++i) y[i] = weight * x[i];
  }
  void backward(const float* x, const float* dy, float* dx) {
    for (int i = 0; i < kWidth; ++i) {
      gradient += dy[i] * x[i];
      dx[i] = dy[i] * weight;
    }
  }
};

static Values sample(int micro_batch) {
  Values x(kWidth);
  for (int i = 0; i < kWidth; ++i) x[i] = 0.1F * static_cast<float>(1 + i + kWidth * micro_batch);
  return x;
}

// The loss is ½ Σ (y − 1)²: what its gradient is.
static Values loss_gradient(const float* y) {
  Values dy(y, y + kWidth);
  for (float& value : dy) value -= 1;
  return dy;
}

static void by_hand(tutti::Group& group, Half& half) {
  Values x(kWidth), y(kWidth), dx(kWidth), dy(kWidth);
  for (int i = 0; i < kMicroBatches; ++i) {
    if (group.rank() == 0) {
      x = sample(i);
      half.forward(x.data(), y.data());
      check(group.send(tutti::Buffer::of(y), /*peer=*/1));
      check(group.recv(tutti::Buffer::of(dy), /*source=*/1).status());  // nothing to do until then
      half.backward(x.data(), dy.data(), dx.data());
    } else {
      check(group.recv(tutti::Buffer::of(x), /*source=*/0).status());
      half.forward(x.data(), y.data());
      half.backward(x.data(), loss_gradient(y.data()).data(), dx.data());
      check(group.send(tutti::Buffer::of(dx), /*peer=*/0));
    }
  }
}

// The same half, asked by the pipeline. Memory that it is given belongs to the runner.
struct Stage : StageCompute {
  Half& half;
  std::vector<Values> outputs{kMicroBatches, Values(kWidth)};
  explicit Stage(Half& which) : half(which) {}

  static float* data(std::span<const tutti::Buffer> tensors) {
    return static_cast<float*>(tensors[0].data);
  }
  tutti::Status forward(const StagePass& pass) override {
    const Values first = sample(pass.micro_batch);
    Values& y = outputs[static_cast<std::size_t>(pass.micro_batch)];
    half.forward(pass.is_first_place ? first.data() : data(pass.input), y.data());
    if (!pass.is_last_place) std::copy(y.begin(), y.end(), data(pass.output));
    return {};
  }
  tutti::Status backward(const StagePass& pass) override {
    const Values first = sample(pass.micro_batch);
    const Values dy = loss_gradient(outputs[static_cast<std::size_t>(pass.micro_batch)].data());
    Values dx(kWidth);
    half.backward(pass.is_first_place ? first.data() : data(pass.input),
                  pass.is_last_place ? dy.data() : data(pass.output_gradient), dx.data());
    if (!pass.is_first_place) std::copy(dx.begin(), dx.end(), data(pass.input_gradient));
    return {};
  }
};

int main() {
  auto group = join(2, "model_parallel");
  Half plain{group->rank() == 0 ? 0.5F : 3.0F}, piped = plain;
  by_hand(*group, plain);

  PipelineOptions options;
  options.kind = PipelineKind::one_f_one_b;
  options.micro_batches = kMicroBatches;
  options.boundaries = {{{kWidth, tutti::Dtype::f32}}};
  auto pipeline = value_of(PipelineRunner::create(*group, options));
  Stage stage(piped);
  check(pipeline->run(stage).status());
  say("rank %d: gradient %.6f by hand, %.6f by the pipeline%s", group->rank(), plain.gradient,
      piped.gradient, plain.gradient == piped.gradient ? ", to the bit" : "");
}
