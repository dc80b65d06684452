// The receiving side of tutti/train/hand_over.hpp.
//
//   front   the last complete version, which is shown
//   back    takes in the next one; becomes the front when all of it is there, the trainer has confirmed
//           it, and its checksum is right
//
// Whatever fails leaves the front alone: nothing is ever received into it. On a GPU the back was the front
// before: it is written when the stream that reads has come to where it was shown another one.
#include <fmt/format.h>

#include <algorithm>

#include "core/clock.hpp"
#include "hand_over/flat_copy.hpp"
#include "hand_over/weight_layout.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::hand_over {
namespace {

using train::NamedTensor;
using train::ReceiverOptions;
using train::WeightReceiver;
using Clock = std::chrono::steady_clock;

constexpr int kTrainer = 0;  // within a pair
constexpr std::size_t kLongestLayout = std::size_t{256} << 20;
constexpr std::size_t kMostBuckets = 1 << 20;

class Receiver final : public WeightReceiver {
 public:
  // `gpu`: what was asked for; null: none was.
  Receiver(std::shared_ptr<Group> pair, int trainer, const ReceiverOptions& options, Gpu gpu)
      : trainer_(trainer), options_(options), gpu_(std::move(gpu)), pair_(std::move(pair)) {
    await_announcement();
  }

  Result<bool> poll(void* stream) override {
    stream_ = stream;
    while (failure_.ok()) {
      if (!std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.done(); }))
        return false;
      const auto newer = take_in();
      if (newer.ok() && *newer) return true;
      if (!newer.ok()) fail(newer.status());
    }
    return failure_;
  }

  Status wait_for(std::uint64_t version, std::chrono::nanoseconds timeout, void* stream) override {
    const auto begin = Clock::now();
    for (;;) {
      if (version_ >= version && version_ > 0) return {};
      const auto newer = poll(stream);
      if (!newer.ok()) return newer.status();
      if (*newer) continue;
      const auto left = timeout - (Clock::now() - begin);
      if (left <= std::chrono::nanoseconds(0))
        return {Code::timed_out,
                fmt::format("version {} did not come from the trainer, rank {}, within {} s; the "
                            "last one is {}",
                            version, trainer_, in_seconds(timeout), version_)};
      for (Work& work : works_)
        if (!work.done()) {
          (void)work.wait(left);
          break;
        }
    }
  }

  std::uint64_t version() const override { return version_; }
  std::span<const NamedTensor> weights() const override { return front_.tensors(); }

 private:
  enum class Awaited : std::uint8_t { announcement, layout, buckets };

  // Everything posted has ended: goes on to what comes next. True when a version is complete.
  Result<bool> take_in() {
    for (const Work& work : works_)
      if (const Status status = work.status(); !status.ok()) return status;
    switch (awaited_) {
      case Awaited::announcement:
        if (Status status = check_announcement(); !status.ok()) return status;
        if (announcement_.layout_bytes > 0) return await_layout();
        return await_buckets();
      case Awaited::layout: {
        auto layout = parse_layout(layout_text_);
        if (!layout.ok()) return layout.status();
        layout_ = *std::move(layout);
        has_layout_ = true;
        return await_buckets();
      }
      case Awaited::buckets: return flip();
    }
    return false;
  }

  Status corrupt(std::string_view what) const {
    return {Code::corrupt, fmt::format("version {} {}", announcement_.version, what)};
  }

  Status check_announcement() const {
    const Announcement& it = announcement_;
    if (works_[0].received().bytes != sizeof it || it.magic != Announcement::kMagic)
      return {Code::corrupt, "a message that announces no weights came"};
    if (it.format != Announcement::kFormat)
      return corrupt(
          fmt::format("has format {}, and this build reads {}", it.format, Announcement::kFormat));
    if (it.version <= version_) return corrupt(fmt::format("comes after {}", version_));
    if (it.layout_bytes > kLongestLayout || it.bucket_bytes == 0 || it.buckets > kMostBuckets)
      return corrupt("is announced with sizes that cannot be");
    return {};
  }

  void await(Awaited awaited, Buffer buffer, std::uint32_t tag, const CallOptions& options = {}) {
    awaited_ = awaited;
    works_.push_back(pair_->irecv(buffer, kTrainer, tag, options));
  }

  // The next version may be long in coming.
  void await_announcement() {
    works_.clear();
    CallOptions options;
    options.timeout = std::chrono::nanoseconds::max();
    await(Awaited::announcement, {&announcement_, sizeof announcement_, Dtype::u8}, kAnnouncement,
          options);
  }

  bool await_layout() {
    works_.clear();
    layout_text_.resize(announcement_.layout_bytes);
    await(Awaited::layout, Buffer::of(layout_text_.data(), layout_text_.size()), kLayout);
    return false;
  }

  Result<bool> await_buckets() {
    const Announcement& it = announcement_;
    const bool by_tensor = it.has(Announcement::kByTensor);
    if (!has_layout_ || layout_.hash != it.layout_hash || layout_.bytes != it.bytes ||
        count_pieces(layout_, it.bucket_bytes, by_tensor) != it.buckets)
      return corrupt("is not of the layout that was announced");
    const Gpu gpu = gpu_for(it.has(Announcement::kOnDevice));
    CallOptions options;
    if (gpu) {
      if (Status status = open_streams(gpu); !status.ok()) return status;
      options.stream = behind_readers_.get();
    }
    if (Status status = back_.prepare(layout_, gpu, options.stream); !status.ok()) return status;
    works_.clear();
    pieces_ = pieces_of(layout_, it.bucket_bytes, by_tensor);
    for (const WeightPiece& piece : pieces_)
      await(Awaited::buckets, back_.at(piece), kBucket, options);
    await(Awaited::buckets, Buffer::of(&end_, 1), kEnd);
    return false;
  }

  // Where the next version goes; null: to CPU memory. One that was asked for is there.
  Gpu gpu_for(bool trainer_has_one) {
    if (options_.device || !trainer_has_one || gpu_) return gpu_;
    auto opened = cuda::Device::open(options_.gpu < 0 ? cuda::current_device() : options_.gpu);
    if (opened.ok())
      gpu_ = *std::move(opened);
    else
      options_.device = Device::cpu;  // and so it stays
    return gpu_;
  }

  Status open_streams(const Gpu& gpu) {
    if (behind_readers_.get() != nullptr) return {};
    auto stream = gpu->make_stream();
    if (!stream.ok()) return stream.status();
    auto event = gpu->make_event();
    if (!event.ok()) return event.status();
    behind_readers_ = *std::move(stream);
    readers_ = *std::move(event);
    return {};
  }

  // What was the front was lent to the caller's stream until now.
  Status wait_for_readers() {
    if (!back_.gpu() || back_.data() == nullptr) return {};
    const Status status = back_.gpu()->record(readers_.get(), stream_);
    return status.ok() ? back_.gpu()->wait(behind_readers_.get(), readers_.get()) : status;
  }

  Result<bool> flip() {
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (works_[i].received().bytes != pieces_[i].bytes)
        return corrupt(fmt::format("has too short a bucket {}", i));
    if (end_ != announcement_.version) return corrupt("has the end of another one");
    if (announcement_.has(Announcement::kChecked) && !back_.gpu() &&
        checksum(back_.data(), back_.bytes()) != announcement_.checksum)
      return corrupt("has not the checksum that was announced");
    std::swap(front_, back_);
    version_ = announcement_.version;
    await_announcement();
    freed_->sweep();
    if (Status status = wait_for_readers(); !status.ok()) return status;
    return true;
  }

  // The trainer hears of it, if it lives, and goes on without this receiver.
  void fail(const Status& why) {
    failure_ = why.annotate(fmt::format(
        "weights from the trainer, rank {} (version {} is the last)", trainer_, version_));
    pair_->abort(why.message());
  }

  int trainer_;
  ReceiverOptions options_;
  Gpu gpu_;
  void* stream_ = nullptr;  // of the last poll
  std::uint64_t version_ = 0;
  Status failure_;
  Awaited awaited_ = Awaited::announcement;
  Announcement announcement_;
  std::string layout_text_;
  WeightLayout layout_;
  bool has_layout_ = false;
  std::shared_ptr<FreedLater> freed_ = std::make_shared<FreedLater>();
  FlatCopy front_{freed_}, back_{freed_};
  cuda::Stream behind_readers_;  // into which the back is received
  cuda::Event readers_;          // the caller's stream, when it was last shown another front
  std::vector<WeightPiece> pieces_;
  std::uint64_t end_ = 0;
  std::vector<Work> works_;
  std::shared_ptr<Group> pair_;  // last: the group ends before the memory that it receives into
};

Result<std::unique_ptr<WeightReceiver>> make_receiver(Group& group, int trainer,
                                                      std::span<const int> receivers,
                                                      const ReceiverOptions& options) {
  const auto refuse = [](std::string what) {
    return Status(Code::invalid_argument, "receiving weights: " + std::move(what));
  };
  if (std::find(receivers.begin(), receivers.end(), group.rank()) == receivers.end())
    return refuse(fmt::format("rank {} is not among the receivers", group.rank()));
  if (trainer < 0 || trainer >= group.size() || trainer == group.rank())
    return refuse(fmt::format("rank {} cannot be the trainer", trainer));
  Gpu gpu;
  if (options.device == Device::cuda) {
    auto opened = cuda::Device::open(options.gpu < 0 ? cuda::current_device() : options.gpu);
    if (!opened.ok()) return opened.status().annotate("receiving weights on a GPU");
    gpu = *std::move(opened);
  }
  const int pair[] = {trainer, group.rank()};
  auto made =
      group.subgroup(pair, kPairTag, {fmt::format("{}/weights to {}", group.name(), group.rank())});
  if (!made.ok())
    return made.status().annotate(fmt::format("receiving weights from rank {}", trainer));
  return std::unique_ptr<WeightReceiver>(
      std::make_unique<Receiver>(*std::move(made), trainer, options, std::move(gpu)));
}

}  // namespace
}  // namespace tutti::hand_over

namespace tutti::train {

Result<std::unique_ptr<WeightReceiver>> WeightReceiver::create(Group& group, int trainer,
                                                               std::span<const int> receivers,
                                                               const ReceiverOptions& options) {
  return hand_over::make_receiver(group, trainer, receivers, options);
}

}  // namespace tutti::train
