#include "key_values.hpp"

#include <numeric>

#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

constexpr const char* kContextCall = "context parallel";

// Of another rank's block.
std::vector<std::int64_t> block_shape(const torch::Tensor& own, std::int64_t tokens) {
  return {own.size(0), own.size(1), tokens, own.size(3)};
}

// Elements of one token, all batches and heads of it.
std::int64_t token_elements(const torch::Tensor& x) { return x.size(0) * x.size(1) * x.size(3); }

torch::Tensor tensor_of(const Buffer& buffer, const torch::Tensor& like, torch::ScalarType type,
                        std::int64_t tokens) {
  return torch::from_blob(buffer.data, block_shape(like, tokens),
                          like.options().dtype(type).requires_grad(false));
}

KeyValue sums_like(const KeyValue& block) {
  return {torch::empty_like(block.key, sum_type(block.key)),
          torch::empty_like(block.value, sum_type(block.value))};
}

class AloneExchange final : public KeyValueExchange {
 public:
  void pass(const SequenceShares& shares, const KeyValue& own, const Visit& visit) override {
    visit(shares.rank, own);
  }
  KeyValue pass_back(const SequenceShares& shares, const KeyValue& own,
                     const VisitBack& visit) override {
    KeyValue gradient = sums_like(own);
    visit(shares.rank, own, gradient);
    return gradient;
  }
};

class RingOfBlocks final : public KeyValueExchange {
 public:
  RingOfBlocks(std::shared_ptr<Group> group, int window, NoteTimes note)
      : group_(std::move(group)), window_(window), note_(std::move(note)) {}

  void pass(const SequenceShares& shares, const KeyValue& own, const Visit& visit) override {
    const auto arrays = arrays_of(own);
    note(ring_on(own.key).pass(
        shares.counts(), arrays,
        [&](const exchange::RingVisit& at) {
          return status_of("attention", [&] { visit(at.source, block_at(shares, own, at)); });
        },
        call_on(own.key, kContextCall)));
  }

  KeyValue pass_back(const SequenceShares& shares, const KeyValue& own,
                     const VisitBack& visit) override {
    KeyValue sums = sums_like(own);
    const auto arrays = arrays_of(own), gradients = arrays_of(sums);
    note(ring_on(own.key).pass_back(
        shares.counts(), arrays, gradients,
        [&](const exchange::RingVisit& at) {
          return status_of("gradient of attention", [&] {
            const std::int64_t tokens = exchange::count_of(runs_at(shares, at.source));
            KeyValue part = {tensor_of(at.gradient[0], own.key, sum_type(own.key), tokens),
                             tensor_of(at.gradient[1], own.value, sum_type(own.value), tokens)};
            visit(at.source, block_at(shares, own, at), part);
          });
        },
        call_on(own.key, kContextCall)));
    return sums;
  }

 private:
  static const TokenRuns& runs_at(const SequenceShares& shares, int source) {
    return shares.runs[static_cast<std::size_t>(source)];
  }
  static KeyValue block_at(const SequenceShares& shares, const KeyValue& own,
                           const exchange::RingVisit& at) {
    const std::int64_t tokens = exchange::count_of(runs_at(shares, at.source));
    return {tensor_of(at.block[0], own.key, own.key.scalar_type(), tokens),
            tensor_of(at.block[1], own.value, own.value.scalar_type(), tokens)};
  }
  static std::vector<exchange::RingArray> arrays_of(const KeyValue& block) {
    std::vector<exchange::RingArray> arrays;
    for (const torch::Tensor& tensor : {block.key, block.value})
      arrays.push_back({tensor.data_ptr(), static_cast<std::size_t>(token_elements(tensor)),
                        lend(tensor).dtype});
    return arrays;
  }

  // Made when it is known on which device.
  exchange::RingExchange& ring_on(const torch::Tensor& like) {
    if (ring_ != nullptr) return *ring_;
    exchange::RingOptions options;
    options.window = window_;
    options.device = lend(like).device;
    if (like.device().is_cuda())
      options.add = [device = like.device()](const Buffer& into, const ConstBuffer& from) {
        const auto type = into.dtype == Dtype::f64 ? torch::kDouble : torch::kFloat;
        const auto options = torch::TensorOptions().dtype(type).device(device);
        const auto count = static_cast<std::int64_t>(into.count);
        torch::from_blob(into.data, {count}, options)
            .add_(torch::from_blob(const_cast<void*>(from.data), {count}, options));
      };
    ring_ = value_or_throw(exchange::RingExchange::create(group_, std::move(options)));
    return *ring_;
  }
  void note(const Result<exchange::ExchangeTimes>& times) {
    throw_failure(times.status());
    note_(*times);
  }

  std::shared_ptr<Group> group_;
  int window_;
  NoteTimes note_;
  std::unique_ptr<exchange::RingExchange> ring_;
};

class GatheredBlocks final : public KeyValueExchange {
 public:
  GatheredBlocks(std::shared_ptr<Group> group, NoteTimes note)
      : group_(std::move(group)), note_(std::move(note)) {}

  void pass(const SequenceShares& shares, const KeyValue& own, const Visit& visit) override {
    for_each_block(shares, own, visit);
  }

  KeyValue pass_back(const SequenceShares& shares, const KeyValue& own,
                     const VisitBack& visit) override {
    const KeyValue all = {
        torch::empty({elements(shares, own.key)}, own.key.options().dtype(sum_type(own.key))),
        torch::empty({elements(shares, own.value)},
                     own.value.options().dtype(sum_type(own.value)))};
    for_each_block(shares, own, [&](int source, const KeyValue& block) {
      KeyValue part = {block_of(shares, all.key, own.key, source),
                       block_of(shares, all.value, own.value, source)};
      visit(source, block, part);
    });
    KeyValue sums = sums_like(own);
    exchange::ExchangeMeter meter = meter_on(own.key);
    scatter(meter, shares, all.key, sums.key);
    scatter(meter, shares, all.value, sums.value);
    finish(meter);
    return sums;
  }

 private:
  // The own block first, while the others come.
  void for_each_block(const SequenceShares& shares, const KeyValue& own, const Visit& visit) {
    const KeyValue all = {torch::empty({elements(shares, own.key)}, own.key.options()),
                          torch::empty({elements(shares, own.value)}, own.value.options())};
    exchange::ExchangeMeter meter = meter_on(own.key);
    gather(meter, shares, own.key, all.key);
    gather(meter, shares, own.value, all.value);
    const Status computed = status_of("attention", [&] { visit(shares.rank, own); });
    finish(meter);  // in any case: the tensors are lent
    throw_failure(computed);
    const int size = static_cast<int>(shares.runs.size());
    for (int step = 1; step < size; ++step) {
      const int source = (shares.rank + step) % size;
      visit(source, {block_of(shares, all.key, own.key, source),
                     block_of(shares, all.value, own.value, source)});
    }
  }

  static std::int64_t elements(const SequenceShares& shares, const torch::Tensor& own) {
    const auto counts = shares.counts();
    return token_elements(own) *
           static_cast<std::int64_t>(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  }
  static torch::Tensor block_of(const SequenceShares& shares, const torch::Tensor& all,
                                const torch::Tensor& own, int source) {
    const auto counts = shares.counts();
    const auto before = static_cast<std::int64_t>(
        std::accumulate(counts.begin(), counts.begin() + source, std::size_t{0}));
    const auto tokens = static_cast<std::int64_t>(counts[static_cast<std::size_t>(source)]);
    return all.narrow(0, before * token_elements(own), tokens * token_elements(own))
        .view(block_shape(own, tokens));
  }
  static std::vector<std::size_t> in_elements_of(const SequenceShares& shares,
                                                 const torch::Tensor& own) {
    auto counts = shares.counts();
    for (std::size_t& count : counts) count *= static_cast<std::size_t>(token_elements(own));
    return counts;
  }

  exchange::ExchangeMeter meter_on(const torch::Tensor& x) const {
    return exchange::ExchangeMeter(lend(x).device, call_on(x, kContextCall).stream);
  }
  void gather(exchange::ExchangeMeter& meter, const SequenceShares& shares,
              const torch::Tensor& own, const torch::Tensor& all) {
    const auto counts = in_elements_of(shares, own);
    meter.follow(
        group_->all_gather_v_async(lend(own), lend(all), counts, call_on(own, kContextCall)));
  }
  void scatter(exchange::ExchangeMeter& meter, const SequenceShares& shares,
               const torch::Tensor& all, const torch::Tensor& sum) {
    const auto counts = in_elements_of(shares, sum);
    meter.follow(group_->reduce_scatter_v_async(lend(all), counts, lend(sum), ReduceOp::sum,
                                                call_on(sum, kContextCall)));
  }
  void finish(exchange::ExchangeMeter& meter) {
    const Status status = meter.wait_for_all();
    note_(meter.times());
    throw_failure(status);
  }

  std::shared_ptr<Group> group_;
  NoteTimes note_;
};

}  // namespace

std::vector<std::size_t> SequenceShares::counts() const {
  std::vector<std::size_t> list;
  for (const TokenRuns& own : runs)
    list.push_back(static_cast<std::size_t>(exchange::count_of(own)));
  return list;
}

std::unique_ptr<KeyValueExchange> make_alone() { return std::make_unique<AloneExchange>(); }
std::unique_ptr<KeyValueExchange> make_ring(std::shared_ptr<Group> group, int window,
                                            NoteTimes note) {
  return std::make_unique<RingOfBlocks>(std::move(group), window, std::move(note));
}
std::unique_ptr<KeyValueExchange> make_gather(std::shared_ptr<Group> group, NoteTimes note) {
  return std::make_unique<GatheredBlocks>(std::move(group), std::move(note));
}

}  // namespace tutti::libtorch
