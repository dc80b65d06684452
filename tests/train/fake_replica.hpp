// train/fake_replica.hpp - a DataParallel that holds parameters and state and does nothing else,
// for tests of checkpoints: state may be split over ranks in any way.
//
// Every value is a function of parameter, kind and element, so that a reader can tell whether it
// got the right ones without asking the writer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/train/data_parallel.hpp"

namespace tutti::test {

// Who keeps the state.
enum class Split {
  everything,  // every rank keeps all of it: plain data parallelism
  shards,  // contiguous shards that cut through parameters, as the distributed optimizer has them
  scattered,  // pieces of uneven sizes, dealt out in turn, several of a parameter to a rank
};
const char* to_string(Split split);

struct FakeParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::f32;
  bool frozen = false;
  std::vector<std::string> aliases{};
};
// Matrices, a scalar, an empty one, bf16, a frozen and a tied one, and names with odd letters.
std::vector<FakeParameter> fake_parameters();

class FakeReplica final : public train::DataParallel {
 public:
  FakeReplica(Group& group, Split split, const std::vector<FakeParameter>& parameters);

  // All values of training's step number `version`; 0: zeros everywhere.
  void fill(int version);
  // How many parameters and pieces have not the values of that version.
  int wrong(int version) const;
  // Called by state() the n-th time, from 1 on.
  std::function<void(int)> on_state{};

  const std::vector<train::Parameter>& parameters() const override { return parameters_; }
  const train::DataParallelOptions& options() const override { return options_; }
  Group& group() const override { return group_; }
  Group& everyone() const override { return group_; }
  Buffer parameter(std::size_t index) const override { return parameters_[index].value; }
  void set_buffers(std::function<std::vector<train::ModuleBuffer>()> list) override {
    list_buffers_ = std::move(list);
  }
  std::vector<train::ModuleBuffer> buffers() const override {
    return list_buffers_ ? list_buffers_() : std::vector<train::ModuleBuffer>();
  }
  std::vector<train::StatePiece> state() override;
  std::vector<train::StatePiece> weights() override;
  std::vector<std::int64_t> step_counts() const override { return steps_; }
  Status set_step_counts(std::span<const std::int64_t> counts) override;
  Status adopt_parameters() override;
  Status adopt_state(std::int64_t) override { return {}; }
  Status parameters_ready() override { return {}; }
  std::vector<std::string> order() const override { return {"last", "first"}; }

  // ---- not for checkpoints
  Buffer gradient(std::size_t) override { return {}; }
  void on_layout(std::function<void()>) override {}
  Status begin_micro_batch(bool) override { return {}; }
  Status need(std::size_t) override { return {}; }
  void begin_backward() override {}
  void begin_backward(bool) override {}
  void end_forward() override {}
  void ready(std::size_t) override {}
  Status end_backward() override { return {}; }
  Result<train::StepReport> step(const train::StepInput&) override { return train::StepReport(); }
  Status discard_gradients() override { return {}; }
  Result<std::int64_t> recover(train::Groups) override { return std::int64_t{0}; }
  Result<std::int64_t> join(train::Groups) override { return std::int64_t{0}; }
  void on_gate(std::function<void(std::size_t, bool)>) override {}
  Result<std::string> weight_hash() override { return std::string(); }
  Status check_weights() override { return {}; }
  train::StepTimes take_times() override { return {}; }
  std::string describe() const override { return "fake"; }

 private:
  struct Piece {
    std::size_t parameter;
    std::size_t first;
    std::string name;
    std::vector<float> values;
  };
  void keep(std::size_t parameter, std::size_t first, std::size_t count);
  // The elements of a parameter that this rank answers for.
  Buffer part_of(std::size_t parameter, int rank, std::size_t& first);

  Group& group_;
  train::DataParallelOptions options_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<train::Parameter> parameters_;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> steps_;
  std::function<std::vector<train::ModuleBuffer>()> list_buffers_;
  int state_calls_ = 0;
};

}  // namespace tutti::test
