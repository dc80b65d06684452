// The processor that this program runs on.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "reduce/fold.hpp"
#include "train/workplace.hpp"

namespace tutti::train {

std::int64_t now_ns() { return steady_clock().now().count(); }

namespace {

class HostWorkplace final : public Workplace {
 public:
  Device device() const override { return Device::cpu; }
  void* stream() const override { return nullptr; }
  Status status() const override { return {}; }
  void synchronize() override {}

  std::shared_ptr<float> allocate(std::size_t floats) override {
    auto values = std::make_shared<std::vector<float>>(floats, 0.0F);
    return {values, values->data()};
  }
  void zero(void* data, std::size_t bytes) override { std::memset(data, 0, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  void update(const UpdateArrays& arrays,
              std::span<const UpdatePart<AdamWFactors>> parts) override {
    for (const auto& [first, count, factors] : parts)
      adamw(factors, arrays.weights + first, arrays.gradient + first, arrays.moments[0] + first,
            arrays.moments[1] + first, count);
  }
  void update(const UpdateArrays& arrays, std::span<const UpdatePart<SgdFactors>> parts) override {
    for (const auto& [first, count, factors] : parts)
      sgd(factors, arrays.weights + first, arrays.gradient + first, arrays.moments[0] + first,
          count);
  }
  void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count) override {
    train::narrow(dtype, from, to, count);
  }
  void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count) override {
    train::widen(dtype, from, to, count);
  }

  void add(float* to, const float* from, std::size_t count) override {
    const reduce::Operand operands[] = {{to}, {from}};
    reduce::fold({Dtype::f32, ReduceOp::sum}, to, operands, count);
  }

  void find_not_finite(std::size_t bucket, const float* values, std::size_t count) override {
    const std::size_t at = first_not_finite(values, count);
    if (at < count) findings_of(bucket).not_finite = at;
  }
  void sum_squares(std::size_t bucket, const float* values, std::size_t count) override;
  std::vector<Findings> take_findings(std::size_t count) override {
    findings_.resize(count);
    return std::exchange(findings_, {});
  }

  Status await(Work& work) override { return work.wait(); }
  Moment now() override { return {now_ns(), nullptr}; }
  Moment end_of(Work&) override { return {}; }
  std::int64_t ns_of(const Moment& moment) override { return moment.ns; }

 private:
  Findings& findings_of(std::size_t bucket) {
    findings_.resize(std::max(findings_.size(), bucket + 1));
    return findings_[bucket];
  }

  std::vector<Findings> findings_;
};

void HostWorkplace::sum_squares(std::size_t bucket, const float* values, std::size_t count) {
  Findings& findings = findings_of(bucket);
  for (std::size_t at = 0; at < count; at += kMostSquares) {
    const std::size_t some = std::min(kMostSquares, count - at);
    double sums[2];
    if (square_sums(values + at, some, sums)) {
      for (const double sum : sums) findings.squares.add(sum);
      continue;
    }
    add_squares(values + at, some, findings.squares);
    const std::size_t bad = first_not_finite(values + at, some);
    if (bad < some && !findings.not_finite_squared) findings.not_finite_squared = at + bad;
  }
}

}  // namespace

std::shared_ptr<Workplace> make_host_workplace() { return std::make_shared<HostWorkplace>(); }

Result<std::shared_ptr<Workplace>> Workplace::create(Group& group,
                                                     const DataParallelOptions& options) {
  if (options.device == Device::cuda) return make_cuda_workplace(group, options);
  return make_host_workplace();
}

}  // namespace tutti::train
