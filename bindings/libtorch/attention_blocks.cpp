#include "attention_blocks.hpp"

#include <limits>

namespace tutti::libtorch {

namespace {

using exchange::IndexRun;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// The rows of a run out of [b, heads, s, …]: [b, kv_heads, shared · run, …].
torch::Tensor rows_of_run(const AttentionSite& site, const torch::Tensor& x, std::int64_t from,
                          std::int64_t count) {
  auto shape = std::vector<std::int64_t>{site.batch, site.kv_heads, site.shared * count};
  if (x.dim() == 4) shape.push_back(x.size(3));
  return x.narrow(2, from, count).reshape(shape);
}

// Back to [b, heads, s, …], run after run.
torch::Tensor in_order(const AttentionSite& site, const std::vector<torch::Tensor>& rows) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& part : rows) {
    auto shape = std::vector<std::int64_t>{site.batch, site.kv_heads * site.shared,
                                           part.size(2) / site.shared};
    if (part.dim() == 4) shape.push_back(part.size(3));
    parts.push_back(part.reshape(shape));
  }
  return torch::cat(parts, 2);
}

bool leaves_nothing(const AttentionSite& site, const IndexRun& queries, const IndexRun& keys) {
  return site.options.causal && keys.first >= queries.end();
}

// Scores [b, kv_heads, shared · queries, keys]; what a query may not see is −∞.
torch::Tensor scores_of(const AttentionSite& site, const QueryRun& queries,
                        const torch::Tensor& key, const IndexRun& keys) {
  auto scores = torch::matmul(queries.query, key.transpose(-2, -1));
  const IndexRun& run = queries.run;
  if (!site.options.causal || keys.end() - 1 <= run.first) return scores;
  const auto places = torch::TensorOptions().dtype(torch::kLong).device(key.device());
  const auto hidden = torch::arange(keys.first, keys.end(), places)
                          .gt(torch::arange(run.first, run.end(), places).unsqueeze(1));
  scores.view({site.batch, site.kv_heads, site.shared, run.count, keys.count})
      .masked_fill_(hidden, kNothing);
  return scores;
}

// Drops what the probabilities' dropout drops, of anything that has their shape.
torch::Tensor dropped(const AttentionSite& site, const torch::Tensor& x, const IndexRun& queries,
                      const IndexRun& keys) {
  const AttentionOptions& options = site.options;
  if (options.dropout == 0) return x;
  const auto whole = x.view({site.batch, site.kv_heads * site.shared, queries.count, keys.count});
  return dropout(
             whole, options.dropout, options.key,
             {options.batch, options.heads, {options.length, {queries}}, {options.length, {keys}}})
      .view(x.sizes());
}

std::vector<QueryRun> queries_of(const AttentionSite& site, const torch::Tensor& query,
                                 const TokenRuns& runs) {
  std::vector<QueryRun> list;
  std::int64_t from = 0;
  const TokenRuns none = {
      {0, 0}};  // results of a rank without tokens have their shape all the same
  for (const IndexRun& run : runs.empty() ? none : runs) {
    QueryRun one;
    one.run = run;
    one.query = rows_of_run(site, query, from, run.count).to(sum_type(query)) * site.options.scale;
    from += run.count;
    list.push_back(std::move(one));
  }
  return list;
}

// visit(keys' run, where it begins in the block) for each.
template <class Visit>
void for_each_run_of(const TokenRuns& runs, Visit&& visit) {
  std::int64_t from = 0;
  for (const IndexRun& run : runs) {
    visit(run, from);
    from += run.count;
  }
}

}  // namespace

torch::ScalarType sum_type(const torch::Tensor& x) {
  return x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

ForwardBlocks::ForwardBlocks(AttentionSite site, const torch::Tensor& query, TokenRuns runs)
    : site_(std::move(site)), type_(query.scalar_type()), queries_(queries_of(site_, query, runs)) {
  for (QueryRun& one : queries_) {
    one.largest = torch::full({site_.batch, site_.kv_heads, one.query.size(2), 1}, kNothing,
                              one.query.options());
    one.sum = torch::zeros_like(one.largest);
    one.output = torch::zeros_like(one.query);
  }
}

void ForwardBlocks::visit(const torch::Tensor& key, const torch::Tensor& value,
                          const TokenRuns& runs) {
  const auto wide_key = key.to(sum_type(key)), wide_value = value.to(sum_type(value));
  for (QueryRun& one : queries_) {
    for_each_run_of(runs, [&](const IndexRun& keys, std::int64_t from) {
      if (leaves_nothing(site_, one.run, keys)) return;
      auto weights = scores_of(site_, one, wide_key.narrow(2, from, keys.count), keys);
      const auto largest = torch::maximum(one.largest, weights.amax(-1, true));
      const auto shrink = torch::exp(one.largest - largest);
      weights.sub_(largest).exp_();
      one.sum.mul_(shrink).add_(weights.sum(-1, true));
      weights = dropped(site_, weights, one.run, keys);
      one.output.mul_(shrink).add_(torch::matmul(weights, wide_value.narrow(2, from, keys.count)));
      one.largest = largest;
    });
  }
}

torch::Tensor ForwardBlocks::output() const {
  std::vector<torch::Tensor> rows;
  for (const QueryRun& one : queries_) rows.push_back(one.output / one.sum);
  return in_order(site_, rows).to(type_);
}

torch::Tensor ForwardBlocks::log_sums() const {
  std::vector<torch::Tensor> rows;
  for (const QueryRun& one : queries_) rows.push_back((one.largest + one.sum.log()).squeeze(-1));
  return in_order(site_, rows);
}

BackwardBlocks::BackwardBlocks(AttentionSite site, const torch::Tensor& query, TokenRuns runs,
                               const torch::Tensor& output, const torch::Tensor& log_sums,
                               const torch::Tensor& gradient)
    : site_(std::move(site)), type_(query.scalar_type()), queries_(queries_of(site_, query, runs)) {
  const auto wide_gradient = gradient.to(sum_type(query));
  const auto delta = (wide_gradient * output.to(sum_type(query))).sum(-1);
  std::int64_t from = 0;
  for (QueryRun& one : queries_) {
    const std::int64_t count = one.run.count;
    one.log_sum = rows_of_run(site_, log_sums, from, count).unsqueeze(-1);
    one.delta = rows_of_run(site_, delta, from, count).unsqueeze(-1);
    one.gradient = rows_of_run(site_, wide_gradient, from, count);
    one.query_gradient = torch::zeros_like(one.query);
    from += count;
  }
}

void BackwardBlocks::visit(const torch::Tensor& key, const torch::Tensor& value,
                           const TokenRuns& runs, torch::Tensor key_gradient,
                           torch::Tensor value_gradient) {
  const auto wide_key = key.to(sum_type(key)), wide_value = value.to(sum_type(value));
  key_gradient.zero_();
  value_gradient.zero_();
  for (QueryRun& one : queries_) {
    for_each_run_of(runs, [&](const IndexRun& keys, std::int64_t from) {
      if (leaves_nothing(site_, one.run, keys)) return;
      const auto k = wide_key.narrow(2, from, keys.count),
                 v = wide_value.narrow(2, from, keys.count);
      const auto weights = scores_of(site_, one, k, keys).sub_(one.log_sum).exp_();
      const auto kept_weights = dropped(site_, weights, one.run, keys);
      value_gradient.narrow(2, from, keys.count)
          .add_(torch::matmul(kept_weights.transpose(-2, -1), one.gradient));
      auto slope = torch::matmul(one.gradient, v.transpose(-2, -1));
      slope = dropped(site_, slope, one.run, keys).sub_(one.delta).mul_(weights);
      one.query_gradient.add_(torch::matmul(slope, k));
      // The queries are scaled already.
      key_gradient.narrow(2, from, keys.count)
          .add_(torch::matmul(slope.transpose(-2, -1), one.query));
    });
  }
}

torch::Tensor BackwardBlocks::query_gradient() const {
  std::vector<torch::Tensor> rows;
  for (const QueryRun& one : queries_) rows.push_back(one.query_gradient * site_.options.scale);
  return in_order(site_, rows).to(type_);
}

}  // namespace tutti::libtorch
