// The trainer's side of tutti/train/hand_over.hpp: takes the weights, and has a courier bring them.
//
// A receiver that is lost may still be copying out of this rank's memory, which changes from then on. That is
// why receivers show nothing before they have heard the end, and that is sent when all buckets are taken.
#include <fmt/format.h>

#include <set>

#include "core/secret.hpp"
#include "hand_over/courier.hpp"
#include "hand_over/flat_copy.hpp"
#include "hand_over/invitation.hpp"
#include "hand_over/weight_layout.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::hand_over {
namespace {

using train::NamedTensor;
using train::SenderOptions;
using train::SendOptions;
using train::WeightSender;

// On a GPU a bucket is one copy on the device: shorter ones leave it idle between them.
constexpr std::size_t kHostBucketBytes = std::size_t{16} << 20;
constexpr std::size_t kGpuBucketBytes = std::size_t{128} << 20;

class Sender final : public WeightSender {
 public:
  Sender(std::unique_ptr<Courier> courier, const SenderOptions& options)
      : bucket_bytes_(options.bucket_bytes),
        is_open_(!options.address.empty()),
        courier_(std::move(courier)) {}
  ~Sender() override {
    courier_->withdraw();
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
    courier_->withdraw();
    if (Status status = wait_until_ready(*gpu, weights, options.stream); !status.ok())
      return status;
    Parcel parcel;
    parcel.gpu = *gpu;
    Pieces pieces{pieces_of(*layout, bucket_bytes_for(*gpu), options.lend), {}};
    if (options.lend)
      lend(*layout, weights, pieces, parcel);
    else if (Status status = copy(*layout, weights, options.stream, pieces, parcel); !status.ok())
      return status;
    if (*gpu && pieces.noted < pieces.all.size())
      if (Status status = note(parcel, options.stream); !status.ok()) return status;
    announce(version, *layout, *gpu, options.lend);
    parcel.announcement = announcement_;
    parcel.layout = std::move(layout->text);
    if (*gpu) parcel.duty = cuda::DeviceTraffic::Duty((*gpu)->traffic());
    lent_ = options.lend;
    courier_->post(std::move(parcel));
    return {};
  }

  Status flush() override {
    if (lent_)
      courier_->withdraw();
    else
      courier_->wait();
    return {};
  }

  std::vector<std::pair<int, Status>> lost() const override { return courier_->lost(); }
  std::vector<train::AttachedReceiver> receivers() const override { return courier_->receivers(); }
  std::string address() const override { return is_open_ ? courier_->addresses() : ""; }

 private:
  // Of a version, in the order in which they are sent; of the first `noted` it is known when they are there.
  struct Pieces {
    std::vector<WeightPiece> all;
    std::size_t noted = 0;
  };

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

  std::size_t bucket_bytes_for(const Gpu& gpu) const {
    return bucket_bytes_ > 0 ? bucket_bytes_ : gpu ? kGpuBucketBytes : kHostBucketBytes;
  }

  static void lend(const WeightLayout& layout, std::span<const NamedTensor> weights,
                   const Pieces& pieces, Parcel& parcel) {
    for (const WeightPiece& piece : pieces.all) {
      const ConstBuffer& values = weights[piece.tensor].values;
      auto* data = static_cast<std::byte*>(const_cast<void*>(values.data));
      const std::size_t begin = piece.offset - layout.places[piece.tensor].offset;
      parcel.pieces.push_back({data + begin, piece.bytes, Dtype::u8, values.device});
    }
  }

  // On a GPU receivers begin with the first pieces while the last ones are still copied here.
  Status copy(const WeightLayout& layout, std::span<const NamedTensor> weights, void* stream,
              Pieces& pieces, Parcel& parcel) {
    freed_->sweep();
    if (!copy_.fits(layout, parcel.gpu)) forget_copy();
    if (Status status = copy_.prepare(layout, parcel.gpu, stream); !status.ok()) return status;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (Status status = copy_.set(i, weights[i].values, stream); !status.ok()) return status;
      const std::size_t there = layout.places[i].offset + layout.places[i].bytes();
      const auto is_there = [&](const WeightPiece& piece) {
        return piece.offset + piece.bytes <= there;
      };
      for (; parcel.gpu && pieces.noted < pieces.all.size() && is_there(pieces.all[pieces.noted]);
           ++pieces.noted)
        if (Status status = note(parcel, stream); !status.ok()) return status;
    }
    for (const WeightPiece& piece : pieces.all) parcel.pieces.push_back(copy_.at(piece));
    return {};
  }

  // The next piece, and those behind it, are there when the stream has come so far.
  Status note(Parcel& parcel, void* stream) {
    const std::size_t i = parcel.events.size();
    if (i == events_.size()) {
      auto event = parcel.gpu->make_event();
      if (!event.ok()) return event.status();
      events_.push_back(*std::move(event));
    }
    parcel.events.push_back(events_[i].get());
    return parcel.gpu->record(events_[i].get(), stream);
  }

  // Its memory is about to be freed.
  void forget_copy() {
    if (copy_.gpu()) courier_->forget(copy_.data());
  }

  void announce(std::uint64_t version, const WeightLayout& layout, const Gpu& gpu, bool lend) {
    Announcement& it = announcement_;
    it.version = version;
    it.layout_hash = layout.hash;
    it.bytes = layout.bytes;
    it.bucket_bytes = bucket_bytes_for(gpu);
    it.buckets = count_pieces(layout, it.bucket_bytes, lend);
    it.flags = (gpu ? Announcement::kOnDevice : 0) | (lend ? Announcement::kByTensor : 0) |
               (gpu || lend ? 0 : Announcement::kChecked);
    it.checksum = it.has(Announcement::kChecked) ? checksum(copy_.data(), layout.bytes) : 0;
  }

  std::size_t bucket_bytes_;  // 0: as is usual where the weights lie
  bool is_open_;              // for receivers of other jobs
  bool lent_ = false;         // the version that was sent last
  std::shared_ptr<FreedLater> freed_ = std::make_shared<FreedLater>();
  FlatCopy copy_{freed_};
  std::vector<cuda::Event> events_;  // of pieces
  Announcement announcement_;
  std::unique_ptr<Courier> courier_;  // last: it ends before the memory that it sends from
};

Status refuse_sending(std::string what) {
  return {Code::invalid_argument, "handing over weights: " + std::move(what)};
}

Status check(const Group& group, int trainer, std::span<const int> receivers) {
  if (group.rank() != trainer)
    return refuse_sending(
        fmt::format("rank {} is not the trainer, which is rank {}", group.rank(), trainer));
  std::set<int> seen;
  for (const int rank : receivers) {
    if (rank < 0 || rank >= group.size())
      return refuse_sending(
          fmt::format("receiver {} is not a rank of a group of {}", rank, group.size()));
    if (rank == trainer)
      return refuse_sending(fmt::format("rank {} cannot be trainer and receiver", rank));
    if (!seen.insert(rank).second)
      return refuse_sending(fmt::format("receiver {} is listed twice", rank));
  }
  return {};
}

// Empty: nobody is to come from elsewhere.
Result<Secret> secret_of(const SenderOptions& options) {
  if (options.address.empty() && options.secret_file.empty()) return Secret();
  if (options.address.empty())
    return refuse_sending("a secret was given, and no address to listen at");
  if (options.secret_file.empty())
    return refuse_sending("whoever reaches " + options.address +
                          " could take them: give a file with a secret");
  return read_secret_file(options.secret_file);
}

// `group` null: for receivers of other jobs alone.
Result<std::unique_ptr<WeightSender>> make_sender(Group* group, std::span<const int> receivers,
                                                  const SenderOptions& options) {
  const auto secret = secret_of(options);
  if (!secret.ok()) return secret.status();
  auto config = config_for_rounds(options.config);
  if (!config.ok()) return config.status();
  bool one_host = true;
  const std::vector<int> hosts = group != nullptr ? group->hosts() : std::vector<int>();
  for (const int rank : receivers)
    one_host = one_host && hosts[static_cast<std::size_t>(rank)] ==
                               hosts[static_cast<std::size_t>(group->rank())];
  auto door = Entrance::open(options.address, secret->text(), *config, one_host);
  if (!door.ok()) return door.status();
  for (const int rank : receivers)
    if (Status status = invite(*group, rank, **door); !status.ok())
      return status.annotate(fmt::format("handing over weights to rank {}", rank));
  const std::string name = group != nullptr ? group->name() + "/weights" : "weights";
  auto courier = Courier::create(*std::move(door), name, *std::move(config),
                                 {receivers.begin(), receivers.end()});
  if (!courier.ok()) return courier.status();
  return std::unique_ptr<WeightSender>(std::make_unique<Sender>(*std::move(courier), options));
}

}  // namespace
}  // namespace tutti::hand_over

namespace tutti::train {

Result<std::unique_ptr<WeightSender>> WeightSender::create(Group& group, int trainer,
                                                           std::span<const int> receivers,
                                                           const SenderOptions& options) {
  if (Status status = hand_over::check(group, trainer, receivers); !status.ok()) return status;
  return hand_over::make_sender(&group, receivers, options);
}

Result<std::unique_ptr<WeightSender>> WeightSender::listen(const SenderOptions& options) {
  if (options.address.empty()) return hand_over::refuse_sending("no address to listen at");
  return hand_over::make_sender(nullptr, {}, options);
}

}  // namespace tutti::train
