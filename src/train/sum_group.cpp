#include "train/sum_group.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "train/agreement.hpp"
#include "train/tensor_box.hpp"

namespace tutti::train {
namespace {

// What ranks of a sum must have alike.
Digest::Value digest_of(const std::vector<Parameter>& parameters,
                        const std::vector<std::size_t>& members, int data_ranks) {
  Digest digest;
  digest.add_number(data_ranks);
  for (const std::size_t index : members) {
    const Parameter& parameter = parameters[index];
    const TensorBox box = box_of(parameter);
    digest.add_text(parameter.name);
    digest.add_number(static_cast<std::int64_t>(parameter.value.dtype));
    for (const auto* numbers : {&box.whole, &box.first, &box.extent})
      for (const std::int64_t number : *numbers) digest.add_number(number);
  }
  return digest.value();
}

}  // namespace

std::vector<std::size_t> summed_parameters(const std::vector<Parameter>& parameters, int sum) {
  std::vector<std::size_t> members;
  for (std::size_t index = 0; index < parameters.size(); ++index)
    if (parameters[index].place.sum == sum && !parameters[index].frozen) members.push_back(index);
  std::sort(members.begin(), members.end(),
            [&](std::size_t a, std::size_t b) { return parameters[a].name < parameters[b].name; });
  return members;
}

Result<std::unique_ptr<SumGroup>> SumGroup::create(Group& group,
                                                   const std::vector<Parameter>& parameters,
                                                   int sum, int data_ranks) {
  std::vector<std::size_t> members = summed_parameters(parameters, sum);
  const auto others = ranks_that_differ(group, digest_of(parameters, members, data_ranks));
  if (!others.ok()) return others.status().annotate(fmt::format("sums[{}]", sum));
  if (!others->empty())
    return Status(Code::mismatch,
                  fmt::format("sums[{}]: rank {} of it has other parameters to add up than rank 0, "
                              "or other boxes of them, or a data group of another size",
                              sum, others->front()));
  auto own = group.duplicate({group.name() + "/sums", ReductionOrder::rank, Urgency::bulk});
  if (!own.ok()) return own.status();
  return std::unique_ptr<SumGroup>(new SumGroup(*std::move(own), std::move(members)));
}

void SumGroup::start_uses(const std::vector<bool>& used) {
  uses_.clear();
  for (const std::size_t index : members_) uses_.push_back(used[index] ? 1 : 0);
  CallOptions call;
  call.name = "uses";
  work_ = group_->all_reduce_async(Buffer::of(uses_), ReduceOp::sum, call);
}

Status SumGroup::take_uses(std::vector<bool>& used) {
  if (Status status = work_.wait(); !status.ok()) return status;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (uses_[i] > 0) used[members_[i]] = true;
  return {};
}

}  // namespace tutti::train
