#include "tutti/libtorch/tensor_parallel.hpp"

#include <map>
#include <tuple>
#include <unordered_map>

#include "tensor_calls.hpp"

namespace tutti::libtorch {

struct TensorParallel::State {
  struct PlacedTensor {
    torch::Tensor tensor;  // held, so that nobody else gets its address
    Placed placed;
  };

  std::shared_ptr<Group> group;
  TensorParallelOptions options;
  std::unordered_map<const void*, PlacedTensor> placed;  // by TensorImpl
  exchange::ExchangeTimes times;
  SymmetricMemory scratch;
  std::map<std::tuple<Collective, std::size_t, double>, int> pieces;  // as predicted
};

TensorParallel::TensorParallel(std::shared_ptr<Group> group, TensorParallelOptions options)
    : state_(std::make_unique<State>()) {
  if (options.overlap && options.pieces == 0 && !(options.flops_per_s > 0))
    throw_invalid(
        "tensor parallel: to choose the number of pieces, say how fast a rank multiplies "
        "(flops_per_s)");
  state_->group = std::move(group);
  state_->options = options;
}
TensorParallel::~TensorParallel() = default;

int TensorParallel::rank() const { return state_->group ? state_->group->rank() : 0; }
int TensorParallel::size() const { return state_->group ? state_->group->size() : 1; }
Group& TensorParallel::group() const { return *state_->group; }
const TensorParallelOptions& TensorParallel::options() const { return state_->options; }

void TensorParallel::place(const torch::Tensor& parameter, Placed placed) {
  state_->placed[parameter.unsafeGetTensorImpl()] = {parameter, std::move(placed)};
}

Placed TensorParallel::placed(const torch::Tensor& parameter) const {
  const auto found = state_->placed.find(parameter.unsafeGetTensorImpl());
  return found == state_->placed.end() ? Placed::whole_of(parameter) : found->second.placed;
}

void TensorParallel::mark_partial(const torch::nn::Module& module) {
  if (!state_->options.sequence_parallel || size() == 1) return;
  for (const torch::Tensor& parameter : module.parameters()) {
    Placed known = placed(parameter);
    known.partial = true;
    place(parameter, std::move(known));
  }
}

exchange::ExchangeTimes TensorParallel::take_times() { return std::exchange(state_->times, {}); }
void TensorParallel::add_times(const exchange::ExchangeTimes& times) { state_->times += times; }

int TensorParallel::pieces(Collective collective, std::size_t bytes, double flops) {
  const TensorParallelOptions& options = state_->options;
  if (options.pieces > 0) return options.pieces;
  const auto [known, is_new] = state_->pieces.try_emplace({collective, bytes, flops}, 1);
  if (is_new)
    known->second = value_or_throw(exchange::plan_pieces(group(), collective, bytes,
                                                         flops / options.flops_per_s))
                        .pieces;
  return known->second;
}

torch::Tensor TensorParallel::scratch(std::int64_t bytes, torch::Device device) {
  SymmetricMemory& memory = state_->scratch;
  if (memory.bytes < static_cast<std::size_t>(bytes)) {
    memory = {};
    memory = value_or_throw(
        state_->group->allocate(static_cast<std::size_t>(bytes),
                                device.is_cuda() ? tutti::Device::cuda : tutti::Device::cpu));
  }
  return torch::from_blob(memory.data, {bytes},
                          torch::TensorOptions().dtype(torch::kByte).device(device));
}

}  // namespace tutti::libtorch
