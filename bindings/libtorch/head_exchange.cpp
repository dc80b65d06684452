#include "head_exchange.hpp"

#include <algorithm>

#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

// A run of one rank: where it lies among that rank's tokens. All ranks' runs in the order of the sequence.
struct OrderedRun {
  exchange::IndexRun run;
  int rank = 0;
  std::int64_t from = 0;
};

std::vector<OrderedRun> ordered_runs(const SequenceShares& shares) {
  std::vector<OrderedRun> list;
  for (std::size_t rank = 0; rank < shares.runs.size(); ++rank) {
    std::int64_t from = 0;
    for (const exchange::IndexRun& run : shares.runs[rank]) {
      list.push_back({run, static_cast<int>(rank), from});
      from += run.count;
    }
  }
  std::sort(list.begin(), list.end(),
            [](const OrderedRun& a, const OrderedRun& b) { return a.run.first < b.run.first; });
  return list;
}

// One part for each rank, sent and received. `tokens[r]`: of the part that comes from rank r.
std::vector<torch::Tensor> exchanged(const HeadExchange& ranks,
                                     const std::vector<torch::Tensor>& parts,
                                     const std::vector<std::size_t>& tokens) {
  const auto& like = parts[0];
  std::vector<torch::Tensor> flat, received;
  std::vector<std::size_t> sent_counts, received_counts;
  const std::int64_t token = like.size(0) * like.size(1) * like.size(3);
  std::int64_t all = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    flat.push_back(parts[rank].reshape({-1}));
    sent_counts.push_back(static_cast<std::size_t>(flat.back().numel()));
    received_counts.push_back(tokens[rank] * static_cast<std::size_t>(token));
    all += static_cast<std::int64_t>(received_counts.back());
  }
  const auto out = torch::cat(flat), in = torch::empty({all}, like.options());
  const CallOptions options = call_on(out, "context parallel");
  exchange::ExchangeMeter meter(lend(out).device, options.stream);
  meter.follow(
      ranks.group->all_to_all_v_async(lend(out), sent_counts, lend(in), received_counts, options));
  const Status status = meter.wait_for_all();
  ranks.note(meter.times());
  throw_failure(status);
  std::int64_t first = 0;
  for (const std::size_t count : received_counts) {
    const auto elements = static_cast<std::int64_t>(count);
    received.push_back(in.narrow(0, first, elements)
                           .view({like.size(0), like.size(1), elements / token, like.size(3)}));
    first += elements;
  }
  return received;
}

torch::Tensor heads_to_tokens(const HeadExchange& ranks, const torch::Tensor& x) {
  const auto size = static_cast<std::int64_t>(ranks.shares.runs.size());
  std::vector<torch::Tensor> parts, pieces;
  for (std::int64_t rank = 0; rank < size; ++rank)
    parts.push_back(x.narrow(1, rank * (x.size(1) / size), x.size(1) / size));
  const auto received = exchanged(ranks, parts, ranks.shares.counts());
  for (const OrderedRun& one : ordered_runs(ranks.shares))
    pieces.push_back(
        received[static_cast<std::size_t>(one.rank)].narrow(2, one.from, one.run.count));
  return pieces.empty() ? received[0] : torch::cat(pieces, 2);
}

torch::Tensor tokens_to_heads(const HeadExchange& ranks, const torch::Tensor& x) {
  std::vector<std::vector<torch::Tensor>> pieces(ranks.shares.runs.size());
  std::int64_t from = 0;
  for (const OrderedRun& one : ordered_runs(ranks.shares)) {
    pieces[static_cast<std::size_t>(one.rank)].push_back(x.narrow(2, from, one.run.count));
    from += one.run.count;
  }
  std::vector<torch::Tensor> parts;
  // A rank's own runs are in the order of the sequence.
  for (const auto& own : pieces)
    parts.push_back(own.empty() ? x.narrow(2, 0, 0) : torch::cat(own, 2));
  const std::vector<std::size_t> tokens(
      parts.size(), ranks.shares.counts()[static_cast<std::size_t>(ranks.shares.rank)]);
  return torch::cat(exchanged(ranks, parts, tokens), 1);
}

struct ExchangedHeads : torch::autograd::Function<ExchangedHeads> {
  using Ranks = std::shared_ptr<const HeadExchange>;
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const Ranks& ranks, bool to_tokens) {
    context->saved_data["ranks"] = keep(ranks);
    context->saved_data["to_tokens"] = to_tokens;
    return to_tokens ? heads_to_tokens(*ranks, x) : tokens_to_heads(*ranks, x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto& ranks = kept<Ranks>(*context, "ranks");
    const bool to_tokens = context->saved_data["to_tokens"].toBool();
    return {
        to_tokens ? tokens_to_heads(*ranks, gradients[0]) : heads_to_tokens(*ranks, gradients[0]),
        torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

TokenRuns runs_of_all(const SequenceShares& shares) {
  TokenRuns runs;
  for (const OrderedRun& one : ordered_runs(shares)) runs.push_back(one.run);
  return exchange::joined(runs);
}

torch::Tensor to_all_tokens(const std::shared_ptr<const HeadExchange>& ranks,
                            const torch::Tensor& x) {
  const auto size = static_cast<std::int64_t>(ranks->shares.runs.size());
  if (x.size(1) % size != 0)
    throw_invalid("all_to_all: " + std::to_string(x.size(1)) +
                  " heads cannot be shared out evenly to " + std::to_string(size) +
                  " context-parallel ranks; take a number of ranks that divides them, or the ring");
  return ExchangedHeads::apply(x, ranks, true);
}

torch::Tensor to_all_heads(const std::shared_ptr<const HeadExchange>& ranks,
                           const torch::Tensor& x) {
  return ExchangedHeads::apply(x, ranks, false);
}

}  // namespace tutti::libtorch
