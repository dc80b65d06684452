#include "train/replica.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "train/agreement.hpp"

namespace tutti::train {
namespace {

Status wrong(std::string text) { return Status(Code::invalid_argument, std::move(text)); }

constexpr int kMostZero = 3;
// How many reductions may be on their way while the next bucket's gradients come: slots are there for
// them. One that is being reduced, and one that was just launched.
constexpr std::size_t kReductionsBehind = 2;

Status check_zero(const DataParallelOptions& options) {
  const int zero = options.zero.value_or(options.use_distributed_optimizer ? 1 : 0);
  if (zero < 0 || zero > kMostZero)
    return wrong(fmt::format("zero is {}; there are 0 to {}", zero, kMostZero));
  if (options.use_distributed_optimizer && zero != 1)
    return wrong(fmt::format("use_distributed_optimizer means zero = 1, and zero is {}", zero));
  if (zero >= 2 && !options.overlap_grad_reduce)
    return wrong(
        fmt::format("zero = {} needs overlap_grad_reduce: gradients that were not reduced "
                    "as they come would all be there at once",
                    zero));
  if (options.pipelined && (zero >= 2 || options.reduce_every_micro_batch))
    return wrong(fmt::format(
        "{} and pipelined do not go together: gradients of several micro-batches are under "
        "way at once",
        zero >= 2 ? fmt::format("zero = {}", zero) : "reduce_every_micro_batch"));
  if (zero == 3 && options.buddy)
    return wrong("buddy needs zero below 3: weights of a lost rank have no copy");
  if (zero == 3 && options.device != Device::cpu)
    return Status(Code::unsupported, "zero = 3 is for the CPU; on a GPU there is zero = 2");
  if (options.prefetch_units < 0) return wrong("prefetch_units must not be negative");
  if (options.reduce_every_micro_batch && zero == 0)
    return wrong("reduce_every_micro_batch needs zero = 1 or more: sums are kept in shards");
  if (options.overlap_param_gather && !(zero >= 1 && options.overlap_grad_reduce))
    return wrong(
        "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce as well");
  return {};
}

// What follows from `zero` is said in one way from here on.
DataParallelOptions spelled_out(DataParallelOptions options) {
  options.zero = options.zero.value_or(options.use_distributed_optimizer ? 1 : 0);
  options.use_distributed_optimizer = *options.zero >= 1;
  options.reduce_every_micro_batch = options.reduce_every_micro_batch || *options.zero >= 2;
  return options;
}

Status check_options(const DataParallelOptions& options) {
  if (Status status = check_zero(options); !status.ok()) return status;
  if (options.groups.empty()) return wrong("groups: there must be at least one parameter group");
  if (options.reduction_order == ReductionOrder::any)
    return wrong(
        "reduction_order must be rank or tree: any promises no bits from one mode to another");
  if (!(options.clip_grad >= 0)) return wrong("clip_grad must not be negative");
  if (options.stream && options.device == Device::cpu)
    return wrong("stream: a stream of a GPU needs device = cuda");
  return {};
}

Status check_sums(const std::vector<Parameter>& parameters,
                  const std::vector<std::shared_ptr<Group>>& sums) {
  std::vector<const Parameter*> first(sums.size(), nullptr);
  for (const Parameter& parameter : parameters) {
    const int sum = parameter.place.sum;
    if (sum < 0) continue;
    const auto index = static_cast<std::size_t>(sum);
    if (index >= sums.size() || !sums[index])
      return wrong(
          fmt::format("the gradient of parameter {} is to be added up over sums[{}], and "
                      "there is no such group",
                      parameter.name, sum));
    if (first[index] == nullptr) first[index] = &parameter;
    if (first[index]->place.counted != parameter.place.counted)
      return wrong(
          fmt::format("of parameters {} and {}, both of sums[{}], one counts here and the "
                      "other does not; a data group counts all of them or none",
                      first[index]->name, parameter.name, sum));
  }
  return {};
}

Status check_parameters(const std::vector<Parameter>& parameters, std::size_t groups) {
  std::set<std::string_view> names;
  for (const Parameter& parameter : parameters) {
    if (!names.insert(parameter.name).second)
      return wrong(fmt::format("two parameters are called {}", parameter.name));
    const Dtype dtype = parameter.value.dtype;
    if (!parameter.frozen && dtype != Dtype::f32 && dtype != Dtype::bf16 && dtype != Dtype::f16)
      return wrong(
          fmt::format("parameter {} is {}; those that are trained must be f32, bf16 or f16",
                      parameter.name, to_string(dtype)));
    if (parameter.value.data == nullptr && parameter.count() > 0)
      return wrong(fmt::format("parameter {} has no memory", parameter.name));
    if (parameter.group < 0 || static_cast<std::size_t>(parameter.group) >= groups)
      return wrong(fmt::format("parameter {} is in group {}, but there are {}", parameter.name,
                               parameter.group, groups));
    if (Status status = check_place(parameter); !status.ok()) return status;
  }
  return {};
}

// Everything that ranks must have alike.
Digest::Value digest_of(const std::vector<Parameter>& parameters,
                        const DataParallelOptions& options) {
  Digest digest;
  for (const Parameter& parameter : parameters) {
    digest.add_text(parameter.name);
    digest.add_number(static_cast<std::int64_t>(parameter.count()));
    digest.add_number(static_cast<std::int64_t>(parameter.value.dtype));
    digest.add_number(parameter.frozen * 2 + (parameter.aliases.empty() ? 0 : 1));
    digest.add_number(parameter.group);
    digest.add_number(parameter.unit);
    const TensorBox box = box_of(parameter);
    for (const auto* numbers : {&box.whole, &box.first, &box.extent})
      for (const std::int64_t number : *numbers) digest.add_number(number);
    digest.add_number(parameter.place.sum * 2 + parameter.place.counted);
  }
  digest.add_number(options.overlap_grad_reduce + 2 * options.use_distributed_optimizer +
                    4 * options.overlap_param_gather + 8 * options.check_for_nan +
                    16 * options.buddy + 32 * static_cast<int>(options.device) +
                    256 * options.zero.value_or(0) + 1024 * options.reduce_every_micro_batch +
                    2048 * options.prefetch_units);
  digest.add_number(options.grad_reduce_in_bf16);
  digest.add_number(static_cast<std::int64_t>(options.reduction_order));
  digest.add_number(static_cast<std::int64_t>(options.bucket_bytes));
  digest.add(&options.clip_grad, sizeof options.clip_grad);
  for (const ParameterGroup& group : options.groups) digest.add(&group, sizeof group);
  digest.add_number(static_cast<std::int64_t>(options.optimizer.index()));
  std::visit([&](const auto& optimizer) { digest.add(&optimizer, sizeof optimizer); },
             options.optimizer);
  for (const std::string& name : options.order_hint) digest.add_text(name);
  return digest.value();
}

}  // namespace

std::string_view v1::to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::updated: return "updated";
    case Outcome::skipped: return "skipped";
    case Outcome::rejected: return "rejected";
    case Outcome::empty: return "empty";
  }
  return "?";
}

GroupSpec bucket_group_of(const Group& data, ReductionOrder order) {
  return {data.name() + "/buckets", order, Urgency::bulk};
}

Status DataParallel::read(const ConstBuffer& view, void* to) {
  if (view.bytes() > 0) std::memcpy(to, view.data, view.bytes());
  return {};
}
Status DataParallel::write(const Buffer& view, const void* from) {
  if (view.bytes() > 0) std::memcpy(view.data, from, view.bytes());
  return {};
}

namespace {

// Not known, or what there must be memory for.
std::vector<std::uint32_t> guessed_counts(const std::vector<Parameter>& parameters,
                                          const DataParallelOptions& options) {
  std::vector<std::uint32_t> counts(parameters.size(), 0);
  if (!keeps_of(options).whole_gradients)
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] = static_cast<std::uint32_t>(parameters[i].gradients);
  return counts;
}

}  // namespace

Result<ReplicaGroups> ReplicaGroups::create(const Groups& groups,
                                            const std::vector<Parameter>& parameters,
                                            ReductionOrder order) {
  ReplicaGroups made;
  auto data = groups.data->duplicate(bucket_group_of(*groups.data, order));
  if (!data.ok()) return data.status();
  made.data = *std::move(data);
  if (groups.everyone && groups.everyone != groups.data) {
    auto norm = NormGroup::create(*made.data, *groups.everyone, groups.part);
    if (!norm.ok()) return norm.status();
    made.norm = *std::move(norm);
  }
  for (std::size_t i = 0; i < groups.sums.size(); ++i) {
    made.sums.emplace_back();
    if (!groups.sums[i]) continue;
    auto sum =
        SumGroup::create(*groups.sums[i], parameters, static_cast<int>(i), made.data->size());
    if (!sum.ok()) return sum.status();
    made.sums.back() = *std::move(sum);
  }
  return made;
}

Result<std::unique_ptr<DataParallel>> DataParallel::create(Groups groups,
                                                           std::vector<Parameter> parameters,
                                                           DataParallelOptions options) {
  if (!groups.data) return wrong("DataParallel needs a data group");
  if (Status status = check_options(options); !status.ok()) return status;
  if (Status status = check_parameters(parameters, options.groups.size()); !status.ok())
    return status;
  if (Status status = check_sums(parameters, groups.sums); !status.ok()) return status;
  auto own = ReplicaGroups::create(groups, parameters, options.reduction_order);
  if (!own.ok()) return own.status();
  auto replica =
      std::make_unique<Replica>(*std::move(own), std::move(parameters), spelled_out(options));
  if (Status status = replica->start(); !status.ok()) return status;
  return std::unique_ptr<DataParallel>(std::move(replica));
}

Replica::Replica(ReplicaGroups groups, std::vector<Parameter> parameters,
                 DataParallelOptions options)
    : group_(std::move(groups.data)),
      norm_group_(std::move(groups.norm)),
      sum_groups_(std::move(groups.sums)),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      calls_(options_.pipelined),
      counts_(guessed_counts(parameters_, options_)),
      control_(group_->rank(), group_->size(), parameters_.size()),
      asked_(parameters_.size(), false),
      open_(parameters_.size(), true),
      passed_(parameters_.size(), false),
      used_(parameters_.size(), false),
      told_(parameters_.size(), false),
      steps_(parameters_.size(), 0) {
  if (keeps_whole_weights())
    for (Parameter& parameter : parameters_) parameter.unit = -1;
}

// Memory is lent to what is under way: it may not go before that has ended.
Replica::~Replica() { settle_everything(); }

void Replica::settle_everything() {
  for (const auto& bucket : buckets_)
    for (Pending* pending : {&bucket->sum, &bucket->reduction, &bucket->gather})
      (void)pending->work.wait().ok();
  gatherer_.settle();
  (void)watch_.settle().ok();
  if (workplace_->device() != Device::cpu) workplace_->synchronize();
}

CallOptions Replica::call_on(const Buffer& buffer, const char* name) const {
  CallOptions call;
  if (name != nullptr) call.name = name;
  if (buffer.device != Device::cpu) call.stream = workplace_->stream();
  return call;
}

Status Replica::start() {
  if (Status status = agree(*group_, options_); !status.ok()) return status;
  auto workplace = Workplace::create(*group_, options_);
  if (!workplace.ok()) return workplace.status();
  workplace_ = *std::move(workplace);
  watch_ = Stopwatch(workplace_);
  watch_.trace_to(group_->trace());
  if (Status status = choose_bucket_bytes(); !status.ok()) return status;
  learning_ = options_.order_hint.empty();
  order_ = hinted_order();
  layout_ = make_layout(parameters_, order_, options_.bucket_bytes, group_->size());
  auto buckets = make_buckets(*group_, layout_);
  if (!buckets.ok()) return buckets.status();
  buckets_ = *std::move(buckets);
  expect_gradients();
  if (Status status = make_slots(); !status.ok()) return status;
  if (Status status = fill_buckets(); !status.ok()) return status;
  workplace_->synchronize();  // their own memory may go now
  if (Status status = workplace_->status(); !status.ok() || !norm_group_) return status;
  // Whether the places make up a model is better said now than in the first checkpoint.
  return exchange_holdings(*this).status();
}

Status Replica::agree(Group& group, const DataParallelOptions& options) const {
  auto others = ranks_that_differ(group, digest_of(parameters_, options));
  if (!others.ok()) return others.status();
  if (others->empty()) return {};
  return Status(Code::mismatch,
                fmt::format("rank {} has other parameters or options of DataParallel than rank 0; "
                            "compare names, sizes, types, modes and bucket size",
                            others->front()));
}

// With k buckets the tail is t/k, and each costs a start α: k = √(t/α) makes the sum smallest when
// backward takes about as long as the reduction (docs/algorithms/distributed_optimizer.md).
Status Replica::choose_bucket_bytes() {
  if (options_.bucket_bytes != 0) return {};
  std::size_t total = 0;
  for (const Parameter& parameter : parameters_)
    if (!parameter.frozen) total += parameter.count() * sizeof(float);
  // What predict() knows is the CPU's memory. On a GPU a start costs what a few MiB take.
  if (options_.device == Device::cuda) {
    options_.bucket_bytes = std::clamp<std::size_t>(total / 8, 1 << 20, 64 << 20);
    return {};
  }
  const Collective collective =
      options_.use_distributed_optimizer ? Collective::reduce_scatter : Collective::all_reduce;
  auto whole = group_->predict(collective, std::max<std::size_t>(total, 1024));
  auto start = group_->predict(collective, 1024);
  if (!whole.ok()) return whole.status();
  if (!start.ok()) return start.status();
  const double alpha = std::max<double>(static_cast<double>(start->time.count()), 1);
  const double k = std::sqrt(static_cast<double>(whole->time.count()) / alpha);
  std::int64_t bytes =
      static_cast<std::int64_t>(static_cast<double>(total) / std::clamp(k, 4.0, 64.0));
  bytes = std::clamp<std::int64_t>(bytes, 256 << 10, 64 << 20);
  Status status = group_->broadcast(Buffer::of(&bytes, 1), 0);
  options_.bucket_bytes = static_cast<std::size_t>(bytes);
  return status;
}

Order Replica::hinted_order() const {
  Order order;
  for (const std::string& name : options_.order_hint)
    for (std::size_t index = 0; index < parameters_.size(); ++index)
      if (parameters_[index].name == name) order.backward.push_back(index);
  return order;
}

Result<Buckets> Replica::make_buckets(Group& group, const BucketLayout& layout) const {
  Buckets buckets;
  for (const BucketPlan& plan : layout.buckets) {
    auto bucket = Bucket::create(group, plan, keeps_of(options_), workplace_);
    if (!bucket.ok()) return bucket.status();
    (*bucket)->name = fmt::format("bucket {}", buckets.size());
    buckets.push_back(*std::move(bucket));
  }
  return buckets;
}

// Collective on the group that the replica is in now.
Status Replica::make_slots() {
  if (!options_.reduce_every_micro_batch) return {};
  auto beside = group_->duplicate({.name = group_->name() + "/beside", .urgency = Urgency::urgent});
  if (!beside.ok()) return beside.status();
  beside_ = *std::move(beside);
  if (!keeps_whole_weights()) {
    auto gathers = group_->duplicate({.name = group_->name() + "/weights"});
    if (!gathers.ok()) return gathers.status();
    gatherer_.set_up(*gathers, std::make_shared<BucketSlots>(*gathers, workplace_, 0));
  }
  if (keeps_whole_gradients()) return {};
  std::size_t largest = 0;
  for (const auto& bucket : buckets_) largest = std::max(largest, bucket->gradient_bytes());
  gradient_slots_ =
      std::make_shared<BucketSlots>(group_, workplace_, largest * (kReductionsBehind + 1));
  reducer_.set_slots(gradient_slots_);
  reducer_.set_may_go_again(!counts_known_);
  late_.assign(buckets_.size(), false);
  return learning_ ? Status() : make_pools();
}

// When the order of use is known.
Status Replica::make_pools() {
  if (!gradient_slots_) return {};
  late_.assign(buckets_.size(), false);
  return gradient_slots_->make_pool(gradients_at_once(
      parameters_, layout_, order_.backward, kReductionsBehind, options_.grad_reduce_in_bf16));
}

// Rank 0's weights; of a bucket that is not kept whole, by way of a slot.
Status Replica::fill_buckets() {
  for (const auto& bucket : buckets_) {
    if (!keeps_whole_weights()) {
      auto slot = gatherer_.slots()->take(bucket->value_bytes());
      if (!slot.ok()) return slot.status();
      bucket->set_values(*std::move(slot));
      workplace_->zero(bucket->values().data, bucket->value_bytes());
    }
    for (const std::size_t index : bucket->plan().parameters)
      if (parameters_[index].count() > 0)
        workplace_->copy(parameter(index).data, parameters_[index].value.data,
                         parameters_[index].value.bytes());
    const Buffer values = bucket->values();
    if (Status status = group_->broadcast(values, 0, call_on(values)); !status.ok()) return status;
    if (keeps_whole_weights()) continue;
    bucket->keep_shard();
    bucket->set_values({});
  }
  if (!keeps_whole_weights()) std::fill(open_.begin(), open_.end(), false);
  return broadcast_frozen(*group_);
}

Status Replica::broadcast_frozen(Group& group) const {
  for (const Parameter& parameter : parameters_)
    if (parameter.frozen && parameter.count() > 0)
      if (Status status = group.broadcast(parameter.value, 0, call_on(parameter.value));
          !status.ok())
        return status;
  return {};
}

Range Replica::range_of(std::size_t index) const {
  return {layout_.place[index]->offset, parameters_[index].count()};
}

Buffer Replica::parameter(std::size_t index) const {
  if (!layout_.place[index]) return parameters_[index].value;
  if (!bucket_of(index).has_values())
    return {nullptr, parameters_[index].count(), parameters_[index].value.dtype};
  return bucket_of(index).values(range_of(index));
}

// The last one that begins at or before it; padding belongs to the one before.
std::size_t Replica::parameter_at(std::size_t bucket, std::size_t offset) const {
  const auto& members = layout_.buckets[bucket].parameters;
  std::size_t found = members.front();
  for (std::size_t index : members)
    if (layout_.place[index]->offset <= offset && parameters_[index].count() > 0) found = index;
  return found;
}

MemoryUse Replica::memory() const {
  MemoryUse use;
  for (const auto& bucket : buckets_) {
    const MemoryUse more = bucket->memory();
    use.weights += more.weights;
    use.gradients += more.gradients;
    use.optimizer += more.optimizer;
  }
  for (const Parameter& parameter : parameters_)
    if (parameter.frozen) use.weights += parameter.value.bytes();
  if (gradient_slots_) use.pool += gradient_slots_->bytes();
  if (gatherer_.is_set_up()) use.pool += gatherer_.slots()->bytes();
  return use;
}

std::string Replica::describe() const {
  std::string text = train::describe(parameters_, layout_);
  if (!gatherer_.is_set_up() || gatherer_.is_learning()) return text;
  return text + fmt::format(
                    "weights: {} gathers in a micro-batch, {} ahead; foreseen: {:.3f} ms exposed\n",
                    gatherer_.plan().buckets.size(), gatherer_.plan().depth,
                    gatherer_.predicted_exposed_s() * 1e3);
}

Status Replica::fail(Status status) {
  if (status_.ok()) status_ = status;
  return status_;
}

}  // namespace tutti::train
