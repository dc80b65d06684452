#include "train/norm_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <unordered_map>

#include "train/agreement.hpp"
#include "train/take_number.hpp"

namespace tutti::train {
namespace {

constexpr std::size_t kFirstTokens = ExactSum::kLimbs;

// Tells data groups apart: drawn by rank 0 of each. (Groups have names, but nothing keeps two from
// having the same.)
Result<std::uint64_t> share_key(Group& data) {
  std::random_device random;
  std::uint64_t key = std::uint64_t{random()} << 32 | random();
  if (Status status = data.broadcast(Buffer::of(&key, 1), 0); !status.ok()) return status;
  return key;
}

// Replicas that sum other norms would clip differently and drift apart.
Status compare_within(Group& data, std::vector<std::uint64_t> keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  Digest digest;
  digest.add(keys.data(), keys.size() * sizeof keys[0]);
  const auto others = ranks_that_differ(data, digest.value());
  if (!others.ok()) return others.status();
  if (others->empty()) return {};
  return {Code::mismatch, fmt::format("the norm group of rank {} holds other data groups than that "
                                      "of rank 0 does; replicas must sum the norm of one model",
                                      others->front())};
}

// A name may have any letters: its length stands before it.
std::string text_of(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults)
    text += fmt::format("rank {} loss {} bucket {} name {}:{}", fault.rank, int{fault.is_loss},
                        fault.bucket, fault.parameter.size(), fault.parameter);
  return text;
}

Status append_faults(std::string_view text, int data_group, std::vector<Fault>& faults) {
  while (!text.empty()) {
    Fault fault;
    int loss = 0;
    std::size_t length = 0;
    if (!(take_number(text, "rank ", fault.rank) && take_number(text, " loss ", loss) &&
          take_number(text, " bucket ", fault.bucket) && take_number(text, " name ", length) &&
          text.starts_with(':') && length < text.size()))
      return {Code::internal, "a list of faults cannot be read"};
    fault.is_loss = loss != 0;
    fault.parameter = text.substr(1, length);
    fault.data_group = data_group;
    text.remove_prefix(1 + length);
    faults.push_back(std::move(fault));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<NormGroup>> NormGroup::create(Group& data, Group& norm) {
  const auto key = share_key(data);
  if (!key.ok()) return key.status();
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(norm.size()));
  Status status = norm.all_gather(ConstBuffer::of(&*key, 1), Buffer::of(keys));
  if (!status.ok()) return status.annotate("norm group");
  if (status = agree(norm, compare_within(data, keys)); !status.ok()) return status;
  if (std::count(keys.begin(), keys.end(), *key) == norm.size())
    return std::unique_ptr<NormGroup>();
  auto group = norm.duplicate({norm.name() + "/norm", ReductionOrder::rank, Urgency::urgent});
  if (!group.ok()) return group.status();
  return std::unique_ptr<NormGroup>(new NormGroup(*std::move(group), keys));
}

NormGroup::NormGroup(std::shared_ptr<Group> group, const std::vector<std::uint64_t>& keys)
    : group_(std::move(group)) {
  std::unordered_map<std::uint64_t, std::size_t> known;
  for (int rank = 0; rank < group_->size(); ++rank)
    if (known.emplace(keys[static_cast<std::size_t>(rank)], speakers_.size()).second)
      speakers_.push_back(rank);
  mine_ = known.at(keys[static_cast<std::size_t>(group_->rank())]);
  words_.resize(kFirstTokens + 2 * speakers_.size() + 1);
}

Work NormGroup::start(const ExactSum& norm, std::int64_t tokens, bool has_faults, bool stop) {
  std::fill(words_.begin(), words_.end(), 0);
  if (speakers_[mine_] == group_->rank()) {
    const auto limbs = norm.limbs();
    std::copy(limbs.begin(), limbs.end(), words_.begin());
    words_[kFirstTokens + mine_] = tokens;
    words_[kFirstTokens + speakers_.size() + mine_] = has_faults ? 1 : 0;
    words_.back() = stop ? 1 : 0;
  }
  CallOptions call;
  call.name = "norm";
  return group_->all_reduce_async(Buffer::of(words_), ReduceOp::sum, call);
}

double NormGroup::norm_squared() const {
  std::array<std::int64_t, ExactSum::kLimbs> limbs;
  std::copy_n(words_.begin(), limbs.size(), limbs.begin());
  return ExactSum::from_limbs(limbs).value();
}

Status NormGroup::check_tokens() const {
  for (std::size_t i = 1; i < speakers_.size(); ++i)
    if (words_[kFirstTokens + i] != words_[kFirstTokens])
      return {
          Code::mismatch,
          fmt::format("the data group of rank {} of the norm group has {} tokens in this step, "
                      "and that of rank {} has {}: all parts of a model must see one batch",
                      speakers_[0], words_[kFirstTokens], speakers_[i], words_[kFirstTokens + i])};
  return {};
}

Result<std::vector<Fault>> NormGroup::faults(const std::vector<Fault>& mine) {
  std::vector<Fault> all;
  for (std::size_t i = 0; i < speakers_.size(); ++i) {
    if (words_[kFirstTokens + speakers_.size() + i] == 0) continue;
    const auto text = share_text(*group_, i == mine_ ? text_of(mine) : "", speakers_[i]);
    if (!text.ok()) return text.status();
    if (Status status = append_faults(*text, speakers_[i], all); !status.ok()) return status;
  }
  return all;
}

}  // namespace tutti::train
