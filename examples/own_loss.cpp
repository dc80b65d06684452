// pretrain_gpt with a loss of one's own: cross entropy with label smoothing, and a small price for scores that run away
// (z-loss). All other flags are pretrain_gpt's.
//
//   tutti run -n 2 build/bin/examples/own_loss --data-path /usr/share/common-licenses/GPL-3 --train-iters 100
#include "tutti/libtorch/trainer.hpp"

constexpr double kSmoothing = 0.1;
constexpr double kPrice = 1e-4;

// [b, s, v], [b, s] -> [b, s]
torch::Tensor smoothed_loss(const torch::Tensor& scores, const torch::Tensor& labels) {
  const auto logs = torch::log_softmax(scores, -1);
  const auto right = -logs.gather(-1, labels.unsqueeze(-1)).squeeze(-1);
  const auto all = -logs.mean(-1);
  const auto size = torch::logsumexp(scores, -1);
  return (1 - kSmoothing) * right + kSmoothing * all + kPrice * size.square();
}

int main(int argc, char** argv) { return tutti::libtorch::pretrain_gpt(argc, argv, smoothed_loss); }
