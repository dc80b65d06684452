#include "train/buddy.hpp"

namespace tutti::train {

Result<std::unique_ptr<Buddy>> Buddy::create(Group& group, std::size_t floats) {
  auto own = group.duplicate({.name = group.name() + "/buddies", .urgency = Urgency::bulk});
  if (!own.ok()) return own.status().annotate("copies of shards");
  return std::unique_ptr<Buddy>(new Buddy(*std::move(own), floats));
}

Buddy::Buddy(std::shared_ptr<Group> group, std::size_t floats) : group_(std::move(group)) {
  for (Versions* versions : {&own_, &neighbours_})
    for (ShardCopy& copy : *versions) copy.values.resize(floats);
}

Buddy::~Buddy() { (void)finish().ok(); }

ShardCopy& Buddy::own_of_step(std::int64_t step) {
  ShardCopy& copy = own_[turn_];
  copy.step = step;
  return copy;
}

void Buddy::exchange() {
  const int ranks = group_->size();
  ShardCopy& theirs = neighbours_[turn_];
  theirs.step = -1;
  const std::vector<float>& mine = own_[turn_].values;
  if (ranks > 1) {
    receive_ = group_->irecv(Buffer::of(theirs.values), neighbour());
    send_ = group_->isend(ConstBuffer::of(mine.data(), mine.size()), (group_->rank() + 1) % ranks);
  }
  under_way_ = true;
}

Status Buddy::finish() {
  if (!under_way_) return {};
  under_way_ = false;
  const Status sent = send_.wait();
  const Status received = receive_.wait();
  if (received.ok()) neighbours_[turn_].step = own_[turn_].step;
  turn_ = 1 - turn_;
  return (received.ok() ? sent : received).annotate("copying shards");
}

const ShardCopy* Buddy::find(const Versions& versions, std::int64_t step) {
  for (const ShardCopy& copy : versions)
    if (step >= 0 && copy.step == step) return &copy;
  return nullptr;
}

}  // namespace tutti::train
