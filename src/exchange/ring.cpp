#include "tutti/exchange/ring.hpp"

#include <fmt/format.h>

#include "exchange/ring_round.hpp"

namespace tutti::exchange {

namespace {

constexpr std::size_t kMostArrays = 0x10000;  // tags of a kind

class Ring final : public RingExchange {
 public:
  Ring(std::shared_ptr<Group> group, RingShape shape, RingOptions options)
      : group_(std::move(group)),
        shape_(shape),
        options_(std::move(options)),
        slots_(group_, options_.device) {}

  Result<ExchangeTimes> pass(std::span<const std::size_t> counts, std::span<const RingArray> block,
                             const VisitCallback& compute, const CallOptions& options) override {
    return go({*group_, shape_, options_, counts, block, {}, compute, options});
  }

  Result<ExchangeTimes> pass_back(std::span<const std::size_t> counts,
                                  std::span<const RingArray> block,
                                  std::span<const RingArray> gradients,
                                  const VisitCallback& compute,
                                  const CallOptions& options) override {
    return go({*group_, shape_, options_, counts, block, gradients, compute, options});
  }

 private:
  Result<ExchangeTimes> go(const RingCall& call) {
    if (call.counts.size() != static_cast<std::size_t>(shape_.size))
      return Status(Code::invalid_argument, fmt::format("row counts of {} ranks for a ring of {}",
                                                        call.counts.size(), shape_.size));
    if (call.block.size() >= kMostArrays || call.gradients.size() >= kMostArrays)
      return Status(Code::invalid_argument, fmt::format("a block of {} arrays; fewer than {}",
                                                        call.block.size(), kMostArrays));
    if (Status status = slots_.reserve(RingRound::slot_bytes(call)); !status.ok()) return status;
    RingRound round(call);
    Status status = round.run(slots_.data());
    round.settle();
    if (!status.ok()) return status;
    return round.times();
  }

  std::shared_ptr<Group> group_;
  RingShape shape_;
  RingOptions options_;
  Slots slots_;
};

}  // namespace

inline namespace v1 {

Result<std::unique_ptr<RingExchange>> RingExchange::create(std::shared_ptr<Group> group,
                                                           RingOptions options) {
  if (group == nullptr) return Status(Code::invalid_argument, "a ring exchange without a group");
  const int size = group->size();
  const int window = options.window == 0 ? size : options.window;
  if (window < 0 || size % window != 0)
    return Status(Code::invalid_argument,
                  fmt::format("a ring of {} ranks cannot be cut into windows of {}; take a divisor "
                              "of {}, or 0 for one ring",
                              size, options.window, size));
  if (options.device == Device::cuda && !options.add)
    return Status(Code::invalid_argument,
                  "a ring exchange on a GPU must be told how to add there (RingOptions::add)");
  // Windows of one rank are one ring of all.
  const RingShape shape{size, group->rank(), window == 1 ? size : window};
  return std::unique_ptr<RingExchange>(
      std::make_unique<Ring>(std::move(group), shape, std::move(options)));
}

}  // namespace v1
}  // namespace tutti::exchange
