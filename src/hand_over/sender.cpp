// The trainer's side of tutti/train/hand_over.hpp.
//
// Each receiver has a group of its own with the trainer, so that one that is lost ends nothing but
// that. A receiver that lives but does not take its buckets is dropped when the sends' own deadline
// has passed (Config::timeout): so send() and flush() end in about that time, whatever happens.
//
// A receiver that was dropped may still be copying out of this rank's memory, which changes from then on.
// That is why it shows nothing before it has heard the end, and that is sent when all buckets are taken.
#include <fmt/format.h>

#include <future>
#include <set>

#include "hand_over/flat_copy.hpp"
#include "hand_over/weight_layout.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::hand_over {
namespace {

using train::NamedTensor;
using train::SendOptions;
using train::WeightSender;

constexpr int kReceiver = 1;  // the other rank of a pair
// On a GPU a bucket is one copy on the device: shorter ones leave it idle between them.
constexpr std::size_t kHostBucketBytes = std::size_t{16} << 20;
constexpr std::size_t kGpuBucketBytes = std::size_t{64} << 20;

// One version on its way to one receiver.
struct Delivery {
  std::uint64_t version = 0;  // sent as the end
  Work work;                  // all but the end
  std::promise<Work> end;     // one without an operation: there is none to send

  // When all is taken the end follows, in whichever thread that is found out.
  void conclude(Group& pair, const Status& outcome) {
    end.set_value(outcome.ok() ? pair.isend(ConstBuffer::of(&version, 1), kReceiver, kEnd)
                               : Work());
  }
};

struct Recipient {
  int rank = 0;  // of the receiver, in the members' group
  std::shared_ptr<Group> pair;
  std::shared_ptr<Delivery> delivery;  // null: nothing is on its way
};

class Sender final : public WeightSender {
 public:
  Sender(std::vector<Recipient> recipients, std::size_t bucket_bytes)
      : bucket_bytes_(bucket_bytes), recipients_(std::move(recipients)) {}
  ~Sender() override {
    (void)flush();
    forget_copy();
  }

  Status send(std::uint64_t version, std::span<const NamedTensor> weights,
              const SendOptions& options) override {
    if (version <= announcement_.version)
      return {Code::invalid_argument,
              fmt::format("version {} is not newer than {}", version, announcement_.version)};
    auto layout = layout_of(weights);
    if (!layout.ok()) return layout.status();
    const auto gpu = gpu_of(weights);
    if (!gpu.ok()) return gpu.status();
    if (Status status = check_stream(*gpu, options.stream); !status.ok()) return status;
    if (Status status = flush(); !status.ok()) return status;
    if (Status status = wait_until_ready(*gpu, weights, options.stream); !status.ok())
      return status;
    if (!options.lend)
      if (Status status = copy(*layout, *gpu, weights, options.stream); !status.ok()) return status;
    announce(version, *std::move(layout), *gpu != nullptr, options.lend);
    const std::vector<Transfer> transfers = transfers_of(weights);
    CallOptions call;
    call.stream = options.stream;
    for (Recipient& recipient : recipients_) start(recipient, transfers, call);
    return {};
  }

  Status flush() override {
    for (Recipient& recipient : recipients_) {
      if (!recipient.delivery) continue;
      const Status outcome = await(*recipient.pair, *recipient.delivery);
      recipient.delivery.reset();
      if (!outcome.ok()) drop(recipient, outcome);
    }
    std::erase_if(recipients_,
                  [](const Recipient& recipient) { return recipient.pair == nullptr; });
    return {};
  }

  std::vector<std::pair<int, Status>> lost() const override { return lost_; }

 private:
  static Status check_stream(const Gpu& gpu, void* stream) {
    if (!gpu)
      return stream == nullptr ? Status()
                               : Status(Code::invalid_argument,
                                        "weights in CPU memory know of no streams; leave it null");
    const auto capturing = gpu->is_capturing(stream);
    if (!capturing.ok()) return capturing.status();
    if (!*capturing) return {};
    return {Code::unsupported,
            "weights cannot be sent while the stream is captured in a CUDA graph"};
  }

  static Status wait_until_ready(const Gpu& gpu, std::span<const NamedTensor> weights,
                                 void* stream) {
    for (const NamedTensor& tensor : weights)
      if (gpu && tensor.values.ready != nullptr)
        if (Status status = gpu->wait(stream, tensor.values.ready); !status.ok()) return status;
    return {};
  }

  Status copy(const WeightLayout& layout, const Gpu& gpu, std::span<const NamedTensor> weights,
              void* stream) {
    freed_->sweep();
    if (!copy_.fits(layout, gpu)) forget_copy();
    if (Status status = copy_.prepare(layout, gpu, stream); !status.ok()) return status;
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (Status status = copy_.set(i, weights[i].values, stream); !status.ok()) return status;
    return {};
  }

  // Its memory is about to be freed.
  void forget_copy() {
    if (!copy_.gpu()) return;
    for (const Recipient& recipient : recipients_) recipient.pair->forget(copy_.data());
  }

  void announce(std::uint64_t version, WeightLayout layout, bool on_gpu, bool lend) {
    const bool same = has_layout_ && layout.hash == layout_.hash;
    layout_ = std::move(layout);
    has_layout_ = true;
    const std::size_t usual = on_gpu ? kGpuBucketBytes : kHostBucketBytes;
    Announcement& it = announcement_;
    it.version = version;
    it.layout_hash = layout_.hash;
    it.layout_bytes = same ? 0 : layout_.text.size();
    it.bytes = layout_.bytes;
    it.bucket_bytes = bucket_bytes_ > 0 ? bucket_bytes_ : usual;
    it.buckets = count_pieces(layout_, it.bucket_bytes, lend);
    it.flags = (on_gpu ? Announcement::kOnDevice : 0) | (lend ? Announcement::kByTensor : 0) |
               (on_gpu || lend ? 0 : Announcement::kChecked);
    it.checksum = it.has(Announcement::kChecked) ? checksum(copy_.data(), layout_.bytes) : 0;
  }

  std::vector<Transfer> transfers_of(std::span<const NamedTensor> weights) {
    std::vector<Transfer> transfers;
    const auto post = [&](const Buffer& buffer, std::uint32_t tag) {
      transfers.push_back({Transfer::Kind::send, buffer, kReceiver, tag});
    };
    post({&announcement_, sizeof announcement_, Dtype::u8}, kAnnouncement);
    if (announcement_.layout_bytes > 0)
      post({layout_.text.data(), layout_.text.size(), Dtype::u8}, kLayout);
    const bool lent = announcement_.has(Announcement::kByTensor);
    for (const WeightPiece& piece : pieces_of(layout_, announcement_.bucket_bytes, lent))
      post(lent ? part_of(weights[piece.tensor].values, piece) : copy_.at(piece), kBucket);
    return transfers;
  }

  Buffer part_of(const ConstBuffer& values, const WeightPiece& piece) const {
    auto* data = static_cast<std::byte*>(const_cast<void*>(values.data));
    const std::size_t begin = piece.offset - layout_.places[piece.tensor].offset;
    return {data + begin, piece.bytes, Dtype::u8, values.device};
  }

  void start(Recipient& recipient, const std::vector<Transfer>& transfers,
             const CallOptions& call) const {
    auto delivery = std::make_shared<Delivery>();
    delivery->version = announcement_.version;
    delivery->work = recipient.pair->transfer(transfers, call);
    delivery->work.on_complete([delivery, pair = recipient.pair.get()](const Status& outcome) {
      delivery->conclude(*pair, outcome);
    });
    recipient.delivery = std::move(delivery);
  }

  Status await(Group& pair, Delivery& delivery) const {
    Status outcome = delivery.work.wait();
    Work end = delivery.end.get_future().get();
    if (outcome.ok()) outcome = end.wait();
    // The rest of the version ends at once, and the receiver hears of it.
    if (!outcome.ok())
      pair.abort(fmt::format("version {} did not get through", announcement_.version));
    return outcome;
  }

  void drop(Recipient& recipient, const Status& why) {
    recipient.pair.reset();
    lost_.emplace_back(recipient.rank,
                       why.annotate(fmt::format("the receiver on rank {} did not get "
                                                "version {} and is left out",
                                                recipient.rank, announcement_.version)));
  }

  std::size_t bucket_bytes_;  // 0: as is usual where the weights lie
  WeightLayout layout_;
  bool has_layout_ = false;
  std::shared_ptr<FreedLater> freed_ = std::make_shared<FreedLater>();
  FlatCopy copy_{freed_};
  Announcement announcement_;
  std::vector<std::pair<int, Status>> lost_;
  std::vector<Recipient> recipients_;  // last: groups end before the memory that they send from
};

Status refuse(std::string what) {
  return {Code::invalid_argument, "handing over weights: " + std::move(what)};
}

Status check(const Group& group, int trainer, std::span<const int> receivers) {
  if (group.rank() != trainer)
    return refuse(
        fmt::format("rank {} is not the trainer, which is rank {}", group.rank(), trainer));
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
  if (Status status = check(group, trainer, receivers); !status.ok()) return status;
  std::vector<Recipient> recipients;
  for (const int rank : receivers) {
    const int pair[] = {trainer, rank};
    auto made =
        group.subgroup(pair, kPairTag, {fmt::format("{}/weights to {}", group.name(), rank)});
    if (!made.ok())
      return made.status().annotate(fmt::format("handing over weights to rank {}", rank));
    recipients.push_back({rank, *std::move(made), nullptr});
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
