// bench/step_gpt.hpp - one rank of a GPT that is split along four axes: its layers sleep as long as an
// accelerator of a given rate would compute, and everything between ranks is real.
//
//   tensor    all_gather and reduce_scatter around each half of a layer, or all_reduces
//   context   keys and values round a ring, attention's sleep shared out over the visits
//   pipeline  StageCompute, for a PipelineRunner
//   data      gates and hooks of train::DataParallel, in the order of use
//
// Each of them may be left out: then nothing is sent, and the sleeps are the same.
#pragma once

#include <sys/prctl.h>
#include <time.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/exchange.hpp"
#include "tutti/pipeline.hpp"
#include "tutti/plan.hpp"
#include "tutti/train.hpp"

namespace tutti::bench {

// How a model is spread, and what a rank computes in a second.
struct PlayedLayout {
  plan::Model model;
  int dp = 1, tp = 1, pp = 1, cp = 1;
  int virtual_stages = 1;
  int zero = 0;
  int micro_batch = 1, global_batch = 1;  // sequences
  bool sequence_parallel = true;
  double flops_per_s = 1e9;

  int ranks() const { return dp * tp * pp * cp; }
  int places() const { return pp * virtual_stages; }
  int micro_batches() const { return global_batch / dp / micro_batch; }
  std::size_t tokens() const { return static_cast<std::size_t>(model.context / cp * micro_batch); }
  // Of what goes from layer to layer, on one rank.
  std::size_t activation() const { return tokens() * static_cast<std::size_t>(model.hidden); }
  std::size_t boundary() const {
    return sequence_parallel ? activation() / static_cast<std::size_t>(tp) : activation();
  }
};

// The forward of a rank's share for one micro-batch; backward takes twice as long.
struct PlayedSeconds {
  double attention = 0, scores = 0, mlp = 0, head = 0;

  explicit PlayedSeconds(const PlayedLayout& layout) {
    const plan::ParameterCount count = plan::count_parameters(layout.model);
    const auto token = plan::token_flops(layout.model, layout.model.context);
    const auto layers = static_cast<double>(layout.model.layers);
    const double each = static_cast<double>(layout.tokens()) / layout.tp / layout.flops_per_s;
    attention = 2 * static_cast<double>(count.attention) * each;
    mlp = 2 * static_cast<double>(count.mlp) * each;
    scores = token.scores / layers * each;
    head = token.head * each;
  }
};

inline void sleep_for(double seconds) {
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const auto ns = static_cast<std::int64_t>(seconds * 1e9) + until.tv_nsec;
  until.tv_sec += ns / 1'000'000'000;
  until.tv_nsec = ns % 1'000'000'000;
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

// Activations that ranks of a tensor-parallel group hand each other. Without a group it does nothing.
class TensorCalls {
 public:
  TensorCalls(Group* group, bool by_sequence) : group_(group), by_sequence_(by_sequence) {}

  Status allocate(std::size_t elements) {
    if (group_ == nullptr) return {};
    auto memory = group_->allocate(2 * elements * sizeof(float));
    if (!memory.ok()) return memory.status();
    memory_ = *std::move(memory);
    auto* values = static_cast<float*>(memory_.data);
    whole_ = Buffer::of(values, elements);
    part_ = Buffer::of(values + elements, elements / static_cast<std::size_t>(group_->size()));
    return {};
  }
  bool by_sequence() const { return by_sequence_; }
  // What a column needs of the others' parts of the sequence.
  Status gather() {
    if (!by_sequence_) return {};
    return timed([&] { return group_->all_gather(part_, whole_); });
  }
  // What a row's products add up to.
  Status sum() {
    return timed([&] {
      return by_sequence_ ? group_->reduce_scatter(whole_, part_, ReduceOp::sum)
                          : group_->all_reduce(whole_, ReduceOp::sum);
    });
  }
  double take_seconds() { return std::exchange(seconds_, 0); }

 private:
  template <class Call>
  Status timed(const Call& call) {
    if (group_ == nullptr) return {};
    const double begin = now_us();
    Status status = call();
    seconds_ += (now_us() - begin) * 1e-6;
    return status;
  }

  Group* group_;
  bool by_sequence_;
  SymmetricMemory memory_;
  Buffer whole_, part_;
  double seconds_ = 0;
};

// Keys and values that visit every rank. Without a ring the visits only sleep.
class ContextVisits {
 public:
  ContextVisits(const PlayedLayout& layout, std::unique_ptr<exchange::RingExchange> ring)
      : ring_(std::move(ring)), visits_(layout.cp), counts_(visits_, layout.tokens()) {
    width_ = static_cast<std::size_t>(layout.model.kv_width() / layout.tp);
    if (ring_ != nullptr) values_.resize(4 * layout.tokens() * width_);
  }
  Status forward(double seconds) {
    if (ring_ == nullptr) return sleep_for(seconds), Status();
    return note(ring_->pass(counts_, arrays(0), napping(seconds)));
  }
  Status backward(double seconds) {
    if (ring_ == nullptr) return sleep_for(seconds), Status();
    return note(ring_->pass_back(counts_, arrays(0), arrays(2), napping(seconds)));
  }
  double take_seconds() { return std::exchange(seconds_, 0); }

 private:
  std::array<exchange::RingArray, 2> arrays(std::size_t first) {
    const std::size_t count = counts_[0] * width_;
    return {{{&values_[first * count], width_, Dtype::f32},
             {&values_[(first + 1) * count], width_, Dtype::f32}}};
  }
  exchange::VisitCallback napping(double seconds) const {
    return [each = seconds / static_cast<double>(visits_)](const exchange::RingVisit&) {
      sleep_for(each);
      return Status();
    };
  }
  Status note(const Result<exchange::ExchangeTimes>& times) {
    if (times.ok()) seconds_ += times->wait_s;
    return times.status();
  }

  std::unique_ptr<exchange::RingExchange> ring_;
  std::size_t visits_;
  std::vector<std::size_t> counts_;
  std::size_t width_ = 0;
  std::vector<float> values_;
  double seconds_ = 0;
};

// The parameters of a rank's places: two of each layer, and those of the ends.
class PlayedParameters {
 public:
  PlayedParameters(const PlayedLayout& layout, int stage, const std::string& part)
      : each_(static_cast<int>(layout.model.layers) / layout.places()), part_(part) {
    const plan::ParameterCount count = plan::count_parameters(layout.model);
    if (stage == 0) embedding_ = add("embedding", count.embedding / layout.tp);
    for (int i = 0; i < each_ * layout.virtual_stages; ++i) {
      add("attention " + std::to_string(i), count.attention / layout.tp);
      add("mlp " + std::to_string(i), count.mlp / layout.tp);
    }
    if (stage == layout.pp - 1) head_ = add("head", count.head / layout.tp);
  }
  int layers_of_place() const { return each_; }
  std::size_t embedding() const { return embedding_; }
  std::size_t attention(int virtual_stage, int layer) const {
    const std::size_t first = embedding_ == kNone ? 0 : 1;
    return first + 2 * static_cast<std::size_t>(virtual_stage * each_ + layer);
  }
  std::size_t mlp(int virtual_stage, int layer) const {
    return attention(virtual_stage, layer) + 1;
  }
  std::size_t head() const { return head_; }

  std::vector<train::Parameter> list() {
    std::vector<train::Parameter> parameters;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      train::Parameter one;
      one.name = part_ + names_[i];
      one.shape = {static_cast<std::int64_t>(values_[i].size())};
      one.value = Buffer::of(values_[i]);
      parameters.push_back(std::move(one));
    }
    return parameters;
  }

 private:
  static constexpr auto kNone = static_cast<std::size_t>(-1);
  std::size_t add(std::string name, std::int64_t elements) {
    names_.push_back(std::move(name));
    values_.emplace_back(static_cast<std::size_t>(elements));
    return names_.size() - 1;
  }

  int each_;
  std::string part_;
  std::size_t embedding_ = kNone, head_ = kNone;
  std::vector<std::string> names_;
  std::vector<std::vector<float>> values_;
};

// All is lent. `gates` null: nothing is trained.
class SleepingGpt : public pipeline::StageCompute {
 public:
  SleepingGpt(const PlayedLayout& layout, const PlayedParameters& parameters, TensorCalls& tensor,
              ContextVisits& context, train::DataParallel* gates)
      : seconds_(layout),
        parameters_(parameters),
        tensor_(tensor),
        context_(context),
        gates_(gates) {}

  Status forward(const pipeline::StagePass& pass) override {
    failure_ = {};
    if (gates_ != nullptr) keep(gates_->begin_micro_batch(false));
    if (pass.is_first_place) {
      need(parameters_.embedding());
      keep(tensor_.sum());
    }
    for (int layer = 0; layer < parameters_.layers_of_place(); ++layer) {
      need(parameters_.attention(pass.virtual_stage, layer));
      keep(tensor_.gather());
      sleep_for(seconds_.attention);
      keep(context_.forward(seconds_.scores));
      keep(tensor_.sum());
      need(parameters_.mlp(pass.virtual_stage, layer));
      keep(tensor_.gather());
      sleep_for(seconds_.mlp);
      keep(tensor_.sum());
    }
    if (pass.is_last_place) {
      need(parameters_.head());
      keep(tensor_.gather());
      sleep_for(seconds_.head);
    }
    if (gates_ != nullptr) gates_->end_forward();
    return failure_;
  }

  // Gradients of a row's output are gathered, and a column's input once more, for its weights.
  Status backward(const pipeline::StagePass& pass) override {
    failure_ = {};
    if (gates_ != nullptr) gates_->begin_backward(pass.is_last_micro_batch);
    if (pass.is_last_place) {
      keep(tensor_.gather());
      sleep_for(2 * seconds_.head);
      keep(tensor_.sum());
      ready(parameters_.head());
    }
    for (int layer = parameters_.layers_of_place(); layer-- > 0;) {
      for (int i = 0; i < 2; ++i) keep(tensor_.gather());
      sleep_for(2 * seconds_.mlp);
      keep(tensor_.sum());
      ready(parameters_.mlp(pass.virtual_stage, layer));
      for (int i = 0; i < 2; ++i) keep(tensor_.gather());
      keep(context_.backward(2 * seconds_.scores));
      sleep_for(2 * seconds_.attention);
      keep(tensor_.sum());
      ready(parameters_.attention(pass.virtual_stage, layer));
    }
    if (pass.is_first_place) {
      keep(tensor_.gather());
      ready(parameters_.embedding());
    }
    if (gates_ != nullptr) keep(gates_->end_backward());
    return failure_;
  }

 private:
  void keep(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  void need(std::size_t parameter) {
    if (gates_ != nullptr) keep(gates_->need(parameter));
  }
  void ready(std::size_t parameter) {
    if (gates_ != nullptr) gates_->ready(parameter);
  }

  PlayedSeconds seconds_;
  const PlayedParameters& parameters_;
  TensorCalls& tensor_;
  ContextVisits& context_;
  train::DataParallel* gates_;
  Status failure_;
};

}  // namespace tutti::bench
