#include "compute_peak.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "device.hpp"

namespace pretrain {

namespace {

using tutti::Buffer;
using tutti::ReduceOp;
using tutti::Result;
using tutti::Status;

constexpr int kWindows = 5;

class Products {
 public:
  explicit Products(const Flags& flags)
      : on_gpu_(flags.device == kCuda), size_(on_gpu_ ? 8192 : 512) {
    const auto options = torch::dtype(flags.bf16 ? torch::kBFloat16 : torch::kFloat);
    a_ = torch::ones({size_, size_}, options.device(device_of(flags)));
    product_ = torch::mm(a_, a_);  // the first one also loads what it needs
    finish();
  }

  // FLOP/s, of at least one product.
  double rate() {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    std::chrono::duration<double> spent{};
    int count = 0;
    do {
      torch::mm_out(product_, a_, a_);
      finish();
      ++count;
      spent = Clock::now() - begin;
    } while (spent.count() < 0.02);
    const auto edge = static_cast<double>(size_);
    return count * 2 * edge * edge * edge / spent.count();
  }

 private:
  void finish() const {
    if (on_gpu_) torch::cuda::synchronize();
  }

  bool on_gpu_;
  std::int64_t size_;
  torch::Tensor a_, product_;
};

}  // namespace

Result<ComputePeak> find_compute_peak(tutti::Group& group, const Flags& flags) {
  const torch::NoGradGuard no_grad;
  std::array<double, kWindows> rates{};
  if (flags.peak_flops > 0) {
    rates[0] = flags.peak_flops / ranks_on_device(flags);
  } else {
    Products products(flags);
    for (double& rate : rates) {
      if (Status status = group.barrier(); !status.ok()) return status;
      rate = products.rate();
    }
  }
  if (Status status = group.all_reduce(Buffer::of(rates.data(), rates.size()), ReduceOp::sum);
      !status.ok())
    return status;
  return ComputePeak{*std::max_element(rates.begin(), rates.end()) / group.size(),
                     flags.peak_flops == 0};
}

}  // namespace pretrain
