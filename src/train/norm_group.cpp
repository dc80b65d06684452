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

Result<std::unique_ptr<NormGroup>> NormGroup::create(Group& data, Group& everyone,
                                                     const std::string& part) {
  const auto key = share_key(data);
  if (!key.ok()) return key.status();
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(everyone.size()));
  Status status = everyone.all_gather(ConstBuffer::of(&*key, 1), Buffer::of(keys));
  if (!status.ok()) return status.annotate("Groups::everyone");
  const auto found = std::count(keys.begin(), keys.end(), *key);
  if (found != data.size())
    status = {Code::invalid_argument,
              fmt::format("Groups::everyone holds {} of the {} ranks of this rank's data group; it "
                          "must hold all ranks of all of them",
                          found, data.size())};
  if (status = agree(everyone, status); !status.ok()) return status;
  if (found == everyone.size()) return std::unique_ptr<NormGroup>();
  auto parts = exchange_texts(everyone, part);
  if (!parts.ok()) return parts.status();
  auto group =
      everyone.duplicate({everyone.name() + "/norm", ReductionOrder::rank, Urgency::urgent});
  if (!group.ok()) return group.status();
  return std::unique_ptr<NormGroup>(new NormGroup(*std::move(group), keys, *std::move(parts)));
}

NormGroup::NormGroup(std::shared_ptr<Group> group, const std::vector<std::uint64_t>& keys,
                     std::vector<std::string> parts)
    : group_(std::move(group)), parts_(std::move(parts)) {
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

std::string NormGroup::name_of(std::size_t data_group) const {
  const int speaker = speakers_[data_group];
  const std::string& part = parts_[static_cast<std::size_t>(speaker)];
  return fmt::format("the data group of rank {}{}", speaker, part.empty() ? "" : " (" + part + ")");
}

Status NormGroup::check_tokens() const {
  for (std::size_t i = 1; i < speakers_.size(); ++i)
    if (words_[kFirstTokens + i] != words_[kFirstTokens])
      return {Code::mismatch,
              fmt::format("{} has {} tokens in this step, and {} has {}: all parts of a model must "
                          "see one batch",
                          name_of(0), words_[kFirstTokens], name_of(i), words_[kFirstTokens + i])};
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
  for (Fault& fault : all) fault.part = parts_[static_cast<std::size_t>(fault.data_group)];
  return all;
}

}  // namespace tutti::train
