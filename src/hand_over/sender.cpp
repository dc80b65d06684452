// The trainer's side of tutti/train/hand_over.hpp.
//
// Each receiver has a group of its own with the trainer, so that one that is lost ends nothing but
// that. A receiver that lives but does not take its buckets is dropped when the sends' own deadline
// has passed (Config::timeout): so send() and flush() end in about that time, whatever happens.
#include <fmt/format.h>

#include <cstring>
#include <set>

#include "hand_over/weight_layout.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::hand_over {
namespace {

using train::NamedTensor;
using train::WeightSender;

constexpr int kReceiver = 1;  // the other rank of a pair

struct Recipient {
  int rank = 0;  // of the receiver, in the members' group
  std::shared_ptr<Group> pair;
  std::vector<Work> works;  // of the version on its way
};

class Sender final : public WeightSender {
 public:
  Sender(std::vector<Recipient> recipients, std::size_t bucket_bytes)
      : bucket_bytes_(bucket_bytes), recipients_(std::move(recipients)) {}
  ~Sender() override { (void)flush(); }

  Status send(std::uint64_t version, std::span<const NamedTensor> weights) override {
    if (version <= announcement_.version)
      return {Code::invalid_argument,
              fmt::format("version {} is not newer than {}", version, announcement_.version)};
    auto layout = layout_of(weights);
    if (!layout.ok()) return layout.status();
    if (Status status = flush(); !status.ok()) return status;
    if (Status status = copy(*std::move(layout), weights); !status.ok()) return status;
    announcement_.version = version;
    for (Recipient& recipient : recipients_) start(recipient);
    return {};
  }

  Status flush() override {
    for (Recipient& recipient : recipients_) {
      Status outcome;
      for (Work& work : recipient.works) {
        const Status status = work.wait();
        if (!status.ok() && outcome.ok()) {
          outcome = status;
          // The rest of the version ends at once, and the receiver hears of it.
          recipient.pair->abort(
              fmt::format("version {} did not get through", announcement_.version));
        }
      }
      recipient.works.clear();
      if (!outcome.ok()) drop(recipient, outcome);
    }
    std::erase_if(recipients_,
                  [](const Recipient& recipient) { return recipient.pair == nullptr; });
    return {};
  }

  std::vector<std::pair<int, Status>> lost() const override { return lost_; }

 private:
  Status copy(WeightLayout layout, std::span<const NamedTensor> weights) {
    const bool same = has_layout_ && layout.hash == layout_.hash;
    if (Status status = copy_.prepare(layout); !status.ok()) return status;
    layout_ = std::move(layout);
    has_layout_ = true;
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (const std::size_t bytes = weights[i].values.bytes(); bytes > 0)
        std::memcpy(copy_.data() + layout_.places[i].offset, weights[i].values.data, bytes);
    announcement_.layout_hash = layout_.hash;
    announcement_.layout_bytes = same ? 0 : layout_.text.size();
    announcement_.bytes = layout_.bytes;
    announcement_.bucket_bytes = bucket_bytes_;
    announcement_.buckets = buckets_of(layout_.bytes, bucket_bytes_);
    announcement_.checksum = checksum(copy_.data(), layout_.bytes);
    return {};
  }

  void start(Recipient& recipient) const {
    const auto post = [&](ConstBuffer buffer, std::uint32_t tag) {
      recipient.works.push_back(recipient.pair->isend(buffer, kReceiver, tag));
    };
    post({&announcement_, sizeof announcement_, Dtype::u8}, kAnnouncement);
    if (announcement_.layout_bytes > 0)
      post({layout_.text.data(), layout_.text.size(), Dtype::u8}, kLayout);
    for (std::size_t i = 0; i < announcement_.buckets; ++i)
      post(copy_.bucket(i, bucket_bytes_), kBucket);
  }

  void drop(Recipient& recipient, const Status& why) {
    recipient.pair.reset();
    lost_.emplace_back(recipient.rank,
                       why.annotate(fmt::format("the receiver on rank {} did not get "
                                                "version {} and is left out",
                                                recipient.rank, announcement_.version)));
  }

  std::size_t bucket_bytes_;
  WeightLayout layout_;
  bool has_layout_ = false;
  FlatCopy copy_;
  Announcement announcement_;
  std::vector<std::pair<int, Status>> lost_;
  std::vector<Recipient> recipients_;  // last: groups end before the memory that they send from
};

Status refuse(std::string what) {
  return {Code::invalid_argument, "handing over weights: " + std::move(what)};
}

Status check(const Group& group, int trainer, std::span<const int> receivers,
             std::size_t bucket_bytes) {
  if (group.rank() != trainer)
    return refuse(
        fmt::format("rank {} is not the trainer, which is rank {}", group.rank(), trainer));
  if (bucket_bytes == 0) return refuse("buckets need at least one byte");
  std::set<int> seen;
  for (const int rank : receivers) {
    if (rank < 0 || rank >= group.size())
      return refuse(fmt::format("receiver {} is not a rank of a group of {}", rank, group.size()));
    if (rank == trainer) return refuse(fmt::format("rank {} cannot be trainer and receiver", rank));
    if (!seen.insert(rank).second) return refuse(fmt::format("receiver {} is listed twice", rank));
  }
  return {};
}

Result<std::unique_ptr<WeightSender>> make_sender(Group& group, int trainer,
                                                  std::span<const int> receivers,
                                                  std::size_t bucket_bytes) {
  if (Status status = check(group, trainer, receivers, bucket_bytes); !status.ok()) return status;
  std::vector<Recipient> recipients;
  for (const int rank : receivers) {
    const int pair[] = {trainer, rank};
    auto made = group.subgroup(pair, kPairTag, fmt::format("{}/weights to {}", group.name(), rank));
    if (!made.ok())
      return made.status().annotate(fmt::format("handing over weights to rank {}", rank));
    recipients.push_back({rank, *std::move(made), {}});
  }
  return std::unique_ptr<WeightSender>(
      std::make_unique<Sender>(std::move(recipients), bucket_bytes));
}

}  // namespace
}  // namespace tutti::hand_over

namespace tutti::train {

Result<std::unique_ptr<WeightSender>> WeightSender::create(Group& group, int trainer,
                                                           std::span<const int> receivers,
                                                           std::size_t bucket_bytes) {
  return hand_over::make_sender(group, trainer, receivers, bucket_bytes);
}

}  // namespace tutti::train
