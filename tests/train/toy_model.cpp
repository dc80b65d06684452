#include "train/toy_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

#include "train/kernels.hpp"

namespace tutti::test {
namespace {

constexpr int kLength = 6;

// As bit patterns of 16 bits.
std::uint16_t to_half(Dtype dtype, float x) {
  std::uint16_t half = 0;
  train::reference::narrow(dtype, &x, &half, 1);
  return half;
}
float from_half(Dtype dtype, std::uint16_t half) {
  float x = 0;
  train::reference::widen(dtype, &half, &x, 1);
  return x;
}

std::string weight(int layer) { return "layers." + std::to_string(layer) + ".weight"; }
std::string bias(int layer) { return "layers." + std::to_string(layer) + ".bias"; }

}  // namespace

struct ToyModel::Trace {
  std::vector<float> embedding, scale, frozen, extra;
  std::vector<std::vector<float>> weights;
  // By position: the input of every layer and, last, what the scale sees; tanh of every layer.
  std::vector<std::vector<std::vector<float>>> x, t;
  std::vector<std::vector<float>> y, p;  // scaled, and the softmax
  double loss = 0;
};

ToyModel::ToyModel(const ToyOptions& options) : options_(options) {
  const std::int64_t d = options.width;
  define("embedding.weight", {kTokens, d}, 0.5F);
  tensors_.back()->parameter.aliases = {"head.weight"};
  std::vector<int> layers(static_cast<std::size_t>(options.layers));
  std::iota(layers.begin(), layers.end(), 0);
  if (options.shuffled_definition) std::reverse(layers.begin(), layers.end());
  for (int layer : layers) {
    if (options.shuffled_definition) define(bias(layer), {d}, 0.1F);
    define(weight(layer), {d, d}, 0.3F);
    if (!options.shuffled_definition) define(bias(layer), {d}, 0.1F);
  }
  define("scale", {d}, 1.0F);
  define("extra", {d}, 0.2F);
  define("never", {37}, 1.0F);
  define("empty", {0, d}, 1.0F);
  define("frozen", {d}, 0.5F);
  tensors_.back()->parameter.frozen = true;
}

// Values depend on the name, not on the place of the definition.
void ToyModel::define(const std::string& name, std::vector<std::int64_t> shape, float spread) {
  auto tensor = std::make_unique<Tensor>();
  std::size_t count = 1;
  for (std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  std::seed_seq seed(name.begin(), name.end());
  std::mt19937 random(seed);
  random.discard(options_.seed);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = spread * (static_cast<float>(random() % 2001) / 1000.0F - 1.0F);
    const std::uint16_t half = to_half(options_.dtype, value);
    tensor->f32.push_back(options_.dtype == Dtype::f32 ? value : from_half(options_.dtype, half));
    tensor->half.push_back(half);
  }
  tensor->parameter.name = name;
  tensor->parameter.shape = std::move(shape);
  void* data = options_.dtype == Dtype::f32 ? static_cast<void*>(tensor->f32.data())
                                            : static_cast<void*>(tensor->half.data());
  tensor->parameter.value = {data, count, options_.dtype};
  tensor->parameter.group = name.ends_with(".weight") ? 1 : 0;
  tensors_.push_back(std::move(tensor));
}

std::vector<train::Parameter> ToyModel::parameters() const {
  std::vector<train::Parameter> list;
  for (const auto& tensor : tensors_) {
    list.push_back(tensor->parameter);
    list.back().name = options_.prefix + list.back().name;
  }
  return list;
}

std::size_t ToyModel::index_of(const std::string& name) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i]->parameter.name == name) return i;
  throw std::out_of_range(name);
}

std::vector<float> ToyModel::read(const std::string& name) const {
  Buffer values = layer_->parameter(index_of(name));
  std::vector<float> result(values.count, std::nanf(""));
  if (values.data == nullptr) return result;
  std::vector<std::byte> here(values.device == Device::cpu ? 0 : values.bytes());
  if (!here.empty()) {
    if (!layer_->read(values, here.data()).ok()) return result;
    values.data = here.data();
  }
  for (std::size_t i = 0; i < values.count; ++i)
    result[i] = values.dtype == Dtype::f32
                    ? static_cast<const float*>(values.data)[i]
                    : from_half(values.dtype, static_cast<const std::uint16_t*>(values.data)[i]);
  return result;
}

Result<std::vector<float>> ToyModel::use(const std::string& name, const Pass& pass) const {
  if (name == pass.ungated) return read(name);
  if (Status status = layer_->need(index_of(name)); !status.ok()) return status;
  std::vector<float> values = read(name);
  layer_->done(index_of(name));
  return values;
}

Status ToyModel::use(const std::string& name, const Pass& pass, std::vector<float>& values) const {
  auto used = use(name, pass);
  if (used.ok()) values = *std::move(used);
  return used.status();
}

void ToyModel::add_gradient(const std::string& name, const std::vector<float>& gradient) const {
  const std::size_t index = index_of(name);
  const Buffer view = layer_->gradient(index);
  if (view.data == nullptr && !gradient.empty()) return;  // the layer has failed, and will say so
  std::vector<float> here(view.device == Device::cpu ? 0 : view.count);
  auto* into = here.empty() ? static_cast<float*>(view.data) : here.data();
  // What fails here shows in the layer's next call.
  if (!here.empty()) (void)layer_->read(view, into).ok();
  for (std::size_t i = 0; i < gradient.size(); ++i) into[i] += gradient[i];
  if (!here.empty()) (void)layer_->write(view, into).ok();
  layer_->ready(index);
}

void ToyModel::add_part(const std::string& name, std::vector<float> gradient, const Pass& pass,
                        Gradients& later) const {
  for (float& value : gradient) value /= static_cast<float>(pass.parts);  // halves are exact
  add_gradient(name, gradient);
  if (pass.after_gradient) pass.after_gradient(name);
  if (pass.parts > 1) later.emplace_back(name, std::move(gradient));
}

Status ToyModel::forward(const Sequence& sequence, const Pass& pass, Trace& trace) const {
  const auto d = static_cast<std::size_t>(options_.width);
  const auto layers = static_cast<std::size_t>(options_.layers);
  if (Status status = use("embedding.weight", pass, trace.embedding); !status.ok()) return status;
  const std::size_t positions = sequence.size() - 1;
  trace.x.assign(positions, std::vector<std::vector<float>>(layers + 1));
  trace.t.assign(positions, std::vector<std::vector<float>>(layers));
  for (std::size_t s = 0; s < positions; ++s) {
    const auto* row = trace.embedding.data() + static_cast<std::size_t>(sequence[s]) * d;
    trace.x[s][0].assign(row, row + d);
  }
  for (std::size_t l = 0; l < layers; ++l) {
    const int layer = static_cast<int>(l);
    std::vector<float> b;
    trace.weights.emplace_back();
    if (Status status = use(weight(layer), pass, trace.weights.back()); !status.ok()) return status;
    if (Status status = use(bias(layer), pass, b); !status.ok()) return status;
    for (std::size_t s = 0; s < positions; ++s) {
      const std::vector<float>& x = trace.x[s][l];
      std::vector<float>& t = trace.t[s][l];
      std::vector<float>& next = trace.x[s][l + 1];
      t.resize(d);
      next.resize(d);
      for (std::size_t i = 0; i < d; ++i) {
        float sum = b[i];
        for (std::size_t j = 0; j < d; ++j) sum += trace.weights[l][i * d + j] * x[j];
        t[i] = std::tanh(sum);
        next[i] = t[i] + x[i];
      }
    }
  }
  if (Status status = use("scale", pass, trace.scale); !status.ok()) return status;
  if (Status status = use("frozen", pass, trace.frozen); !status.ok()) return status;
  trace.extra.assign(d, 0.0F);
  if (pass.with_extra)
    if (Status status = use("extra", pass, trace.extra); !status.ok()) return status;
  if (Status status = use("embedding.weight", pass, trace.embedding); !status.ok()) return status;
  for (std::size_t s = 0; s < positions; ++s) {
    std::vector<float> y(d), p(kTokens);
    for (std::size_t i = 0; i < d; ++i)
      y[i] = trace.x[s][layers][i] * trace.scale[i] * trace.frozen[i] + trace.extra[i];
    float total = 0;
    for (std::size_t k = 0; k < kTokens; ++k) {
      float logit = 0;
      for (std::size_t i = 0; i < d; ++i) logit += trace.embedding[k * d + i] * y[i];
      total += p[k] = std::exp(logit);
    }
    for (float& share : p) share /= total;
    trace.loss -= std::log(p[static_cast<std::size_t>(sequence[s + 1])]);
    trace.y.push_back(std::move(y));
    trace.p.push_back(std::move(p));
  }
  return {};
}

// Reads weights once more, as a framework does that has saved views of them.
Status ToyModel::backward(const Sequence& sequence, const Pass& pass, Trace& trace) const {
  const auto d = static_cast<std::size_t>(options_.width);
  const auto layers = static_cast<std::size_t>(options_.layers);
  const std::size_t positions = sequence.size() - 1;
  std::vector<float> embedding(trace.embedding.size(), 0.0F), scale(d, 0.0F), extra(d, 0.0F);
  if (Status status = use("embedding.weight", pass, trace.embedding); !status.ok()) return status;
  if (Status status = use("scale", pass, trace.scale); !status.ok()) return status;
  std::vector<std::vector<float>> dx(positions, std::vector<float>(d, 0.0F));
  for (std::size_t s = 0; s < positions; ++s) {
    std::vector<float> dy(d, 0.0F);
    for (std::size_t k = 0; k < kTokens; ++k) {
      const float dlogit = trace.p[s][k] - (static_cast<int>(k) == sequence[s + 1] ? 1.0F : 0.0F);
      for (std::size_t i = 0; i < d; ++i) {
        dy[i] += dlogit * trace.embedding[k * d + i];
        embedding[k * d + i] += dlogit * trace.y[s][i];
      }
    }
    for (std::size_t i = 0; i < d; ++i) {
      extra[i] += dy[i];
      scale[i] += dy[i] * trace.x[s][layers][i] * trace.frozen[i];
      dx[s][i] = dy[i] * trace.scale[i] * trace.frozen[i];
    }
  }
  Gradients later;
  if (pass.with_extra) add_part("extra", extra, pass, later);
  add_part("scale", scale, pass, later);
  for (std::size_t l = layers; l-- > 0;) {
    const std::string here = weight(static_cast<int>(l));
    if (Status status = use(here, pass, trace.weights[l]); !status.ok()) return status;
    std::vector<float> dw(d * d, 0.0F), db(d, 0.0F);
    for (std::size_t s = 0; s < positions; ++s) {
      std::vector<float> before = dx[s];
      for (std::size_t i = 0; i < d; ++i) {
        const float du = dx[s][i] * (1 - trace.t[s][l][i] * trace.t[s][l][i]);
        db[i] += du;
        for (std::size_t j = 0; j < d; ++j) {
          dw[i * d + j] += du * trace.x[s][l][j];
          before[j] += du * trace.weights[l][i * d + j];
        }
      }
      dx[s] = std::move(before);
    }
    if (l == 1) dw[5] += pass.planted;
    add_part(bias(static_cast<int>(l)), db, pass, later);
    add_part(here, dw, pass, later);
  }
  for (std::size_t s = 0; s < positions; ++s)
    for (std::size_t i = 0; i < d; ++i)
      embedding[static_cast<std::size_t>(sequence[s]) * d + i] += dx[s][i];
  add_part("embedding.weight", embedding, pass, later);
  for (const auto& [name, part] : later) add_gradient(name, part);
  if (!pass.told_again.empty()) layer_->ready(index_of(pass.told_again));
  return {};
}

Result<double> ToyModel::run(const Sequence& sequence, const Pass& pass) {
  if (Status status = layer_->begin_micro_batch(pass.last); !status.ok()) return status;
  Trace trace;
  if (Status status = forward(sequence, pass, trace); !status.ok()) return status;
  layer_->begin_backward();
  if (Status status = backward(sequence, pass, trace); !status.ok()) return status;
  if (Status status = layer_->end_backward(); !status.ok()) return status;
  return trace.loss;
}

double ToyModel::evaluate(const Sequence& sequence) const {
  if (!layer_->parameters_ready().ok()) return std::nan("");
  Trace trace;
  return forward(sequence, {}, trace).ok() ? trace.loss : std::nan("");
}

ToyModel::Sequence toy_sequence(std::int64_t index) {
  std::mt19937 random(static_cast<unsigned>(index * 2654435761U + 17));
  ToyModel::Sequence sequence;
  // Something to learn: the next token mostly follows from the last.
  int token = static_cast<int>(random() % ToyModel::kTokens);
  for (int i = 0; i < kLength; ++i) {
    sequence.push_back(token);
    token = random() % 5 == 0 ? static_cast<int>(random() % ToyModel::kTokens)
                              : (token * 3 + 1) % ToyModel::kTokens;
  }
  return sequence;
}

}  // namespace tutti::test
