#include "tutti/libtorch/context_parallel.hpp"

#include <cmath>

#include "head_exchange.hpp"
#include "tensor_calls.hpp"

namespace tutti::libtorch {

struct ContextParallel::State {
  std::shared_ptr<Group> group;  // null: alone
  ContextParallelOptions options;
  std::shared_ptr<Group> inner;  // that exchange heads; null: nobody does
  std::shared_ptr<Group> outer;  // between which keys and values go; null: nowhere
  std::unique_ptr<KeyValueExchange> blocks;
  exchange::ExchangeTimes times;
};

namespace {

Status check_sizes(int size, const ContextParallelOptions& options) {
  const auto wrong = [&](const char* what, int given) {
    return Status(Code::invalid_argument, std::to_string(size) +
                                              " context-parallel ranks cannot be cut into " + what +
                                              " of " + std::to_string(given) +
                                              "; take a divisor of " + std::to_string(size));
  };
  if (options.window < 0 || (options.window > 0 && size % options.window != 0))
    return wrong("windows", options.window);
  if (options.window > 0 && options.exchange != ContextExchange::ring)
    return {Code::invalid_argument,
            "a window is of the ring, not of " + std::string(to_string(options.exchange))};
  if (options.exchange == ContextExchange::all_to_all_ring &&
      (options.inner < 1 || size % options.inner != 0))
    return wrong("inner groups", options.inner);
  return {};
}

// Collective: makes the groups in which heads, and in which keys and values are exchanged.
Status make_groups(ContextParallel::State& state) {
  switch (state.options.exchange) {
    case ContextExchange::ring:
    case ContextExchange::all_gather: state.outer = state.group; return {};
    case ContextExchange::all_to_all: state.inner = state.group; return {};
    case ContextExchange::all_to_all_ring: break;
  }
  const int rank = state.group->rank(), inner = state.options.inner;
  auto heads = state.group->split(rank / inner, rank, {"context heads"});
  if (!heads.ok()) return heads.status();
  auto ring = state.group->split(rank % inner, rank, {"context ring"});
  if (!ring.ok()) return ring.status();
  state.inner = *heads;
  state.outer = *ring;
  return {};
}

void make_exchange(ContextParallel::State& state) {
  const NoteTimes note = [times = &state.times](const auto& spent) { *times += spent; };
  if (state.outer == nullptr || state.outer->size() == 1)
    state.blocks = make_alone();
  else if (state.options.exchange == ContextExchange::all_gather)
    state.blocks = make_gather(state.outer, note);
  else
    state.blocks = make_ring(state.outer, state.options.window, note);
}

// Everything about one attention but the tensors.
struct AttentionPlan {
  std::shared_ptr<ContextParallel> ranks;
  AttentionSite site;
  SequenceShares shares;  // of those between which keys and values go
};

struct Attended : torch::autograd::Function<Attended> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& query, const torch::Tensor& key,
                               const torch::Tensor& value, const AttentionPlan& plan) {
    const SequenceShares& shares = plan.shares;
    ForwardBlocks blocks(plan.site, query, shares.runs[static_cast<std::size_t>(shares.rank)]);
    plan.ranks->state().blocks->pass(
        shares, {key.contiguous(), value.contiguous()}, [&](int source, const KeyValue& block) {
          blocks.visit(block.key, block.value, shares.runs[static_cast<std::size_t>(source)]);
        });
    const auto output = blocks.output();
    context->save_for_backward({query, key, value, output, blocks.log_sums()});
    context->saved_data["plan"] = keep(plan);
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto& plan = kept<AttentionPlan>(*context, "plan");
    const SequenceShares& shares = plan.shares;
    BackwardBlocks blocks(plan.site, saved[0], shares.runs[static_cast<std::size_t>(shares.rank)],
                          saved[3], saved[4], gradients[0]);
    const KeyValue sums = plan.ranks->state().blocks->pass_back(
        shares, {saved[1].contiguous(), saved[2].contiguous()},
        [&](int source, const KeyValue& block, KeyValue& part) {
          blocks.visit(block.key, block.value, shares.runs[static_cast<std::size_t>(source)],
                       part.key, part.value);
        });
    return {blocks.query_gradient(), sums.key.to(saved[1].scalar_type()),
            sums.value.to(saved[2].scalar_type()), torch::Tensor()};
  }
};

SequenceShares shares_of(const ContextParallel& ranks, std::int64_t length, int first, int count,
                         int rank) {
  SequenceShares shares{rank, {}};
  for (int one = first; one < first + count; ++one)
    shares.runs.push_back(exchange::runs_of(ranks.options().cut, length, ranks.size(), one));
  return shares;
}

void check_shapes(const ContextParallel& ranks, const torch::Tensor& query,
                  const torch::Tensor& key, const torch::Tensor& value, std::int64_t length) {
  const bool alike = query.dim() == 4 && key.sizes() == value.sizes() && key.dim() == 4 &&
                     key.size(0) == query.size(0) && key.size(2) == query.size(2) &&
                     key.size(3) == query.size(3);
  if (!alike || key.size(1) == 0 || query.size(1) % key.size(1) != 0)
    throw_invalid(
        "attention: query [b, heads, s, d], key and value [b, kv_heads, s, d] with kv_heads "
        "that divide heads are needed");
  const std::int64_t own = exchange::count_of(ranks.runs(length));
  if (query.size(2) != own)
    throw_invalid("attention: rank " + std::to_string(ranks.rank()) + " of " +
                  std::to_string(ranks.size()) + " has " + std::to_string(query.size(2)) +
                  " tokens; its share of " + std::to_string(length) + " is " + std::to_string(own));
}

// With what the caller left out.
AttentionOptions completed(AttentionOptions options, const ContextParallel& ranks,
                           const torch::Tensor& query) {
  if (options.length == 0) options.length = query.size(2) * ranks.size();
  if (options.scale == 0) options.scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
  if (options.batch.whole == 0) options.batch = held_all(query.size(0));
  if (options.heads.whole == 0) options.heads = held_all(query.size(1));
  return options;
}

torch::Tensor attended(const AttentionPlan& given, const torch::Tensor& query,
                       const torch::Tensor& key, const torch::Tensor& value) {
  AttentionPlan plan = given;
  plan.site.batch = query.size(0);
  plan.site.kv_heads = key.size(1);
  plan.site.shared = query.size(1) / key.size(1);
  return Attended::apply(query, key, value, plan);
}

// Heads are exchanged among neighbours; each then has more tokens of fewer heads.
torch::Tensor attended_by_heads(AttentionPlan plan, const torch::Tensor& query,
                                const torch::Tensor& key, const torch::Tensor& value) {
  ContextParallel::State& state = plan.ranks->state();
  const int inner = state.inner->size(), place = state.inner->rank();
  const int groups = plan.ranks->size() / inner, own_group = plan.ranks->rank() / inner;
  const std::int64_t length = plan.site.options.length;
  plan.shares = {own_group, {}};
  for (int group = 0; group < groups; ++group)
    plan.shares.runs.push_back(
        runs_of_all(shares_of(*plan.ranks, length, group * inner, inner, place)));
  const auto heads = std::make_shared<const HeadExchange>(
      HeadExchange{state.inner, shares_of(*plan.ranks, length, own_group * inner, inner, place),
                   [times = &state.times](const auto& spent) { *times += spent; }});
  const std::int64_t each = query.size(1) / inner;
  HeldIndices& held = plan.site.options.heads;
  held.runs = exchange::slice_of(held.runs, place * each, each);
  // One after the other: the order of arguments is the compiler's, and that of collectives is not.
  const auto own_query = to_all_tokens(heads, query);
  const auto own_key = to_all_tokens(heads, key);
  const auto own_value = to_all_tokens(heads, value);
  return to_all_heads(heads, attended(plan, own_query, own_key, own_value));
}

}  // namespace

std::string_view to_string(ContextExchange exchange) noexcept {
  switch (exchange) {
    case ContextExchange::ring: return "ring";
    case ContextExchange::all_gather: return "all_gather";
    case ContextExchange::all_to_all: return "all_to_all";
    case ContextExchange::all_to_all_ring: return "all_to_all_ring";
  }
  return "?";
}

std::optional<ContextExchange> parse_cp_comm_type(std::string_view word) noexcept {
  if (word == "p2p") return ContextExchange::ring;
  if (word == "allgather") return ContextExchange::all_gather;
  if (word == "a2a") return ContextExchange::all_to_all;
  if (word == "a2a+p2p") return ContextExchange::all_to_all_ring;
  return {};
}

ContextParallel::ContextParallel(std::unique_ptr<State> state) : state_(std::move(state)) {}
ContextParallel::~ContextParallel() = default;

Result<std::shared_ptr<ContextParallel>> ContextParallel::create(std::shared_ptr<Group> group,
                                                                 ContextParallelOptions options) {
  auto state = std::make_unique<State>();
  state->options = options;
  if (group != nullptr && group->size() > 1) {
    if (Status status = check_sizes(group->size(), options); !status.ok()) return status;
    state->group = std::move(group);
    if (Status status = make_groups(*state); !status.ok()) return status;
  }
  make_exchange(*state);
  return std::shared_ptr<ContextParallel>(new ContextParallel(std::move(state)));
}

int ContextParallel::rank() const { return state_->group ? state_->group->rank() : 0; }
int ContextParallel::size() const { return state_->group ? state_->group->size() : 1; }
const ContextParallelOptions& ContextParallel::options() const { return state_->options; }
exchange::ExchangeTimes ContextParallel::take_times() { return std::exchange(state_->times, {}); }

std::vector<exchange::IndexRun> ContextParallel::runs(std::int64_t length) const {
  return exchange::runs_of(state_->options.cut, length, size(), rank());
}

torch::Tensor attention(const std::shared_ptr<ContextParallel>& ranks, const torch::Tensor& query,
                        const torch::Tensor& key, const torch::Tensor& value,
                        const AttentionOptions& options) {
  AttentionPlan plan;
  plan.ranks = ranks;
  plan.site.options = completed(options, *ranks, query);
  const std::int64_t length = plan.site.options.length;
  check_shapes(*ranks, query, key, value, length);
  if (ranks->state().inner != nullptr) return attended_by_heads(plan, query, key, value);
  plan.shares = shares_of(*ranks, length, 0, ranks->size(), ranks->rank());
  return attended(plan, query, key, value);
}

}  // namespace tutti::libtorch
