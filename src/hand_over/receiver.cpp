// The receiving side of tutti/train/hand_over.hpp.
//
//   front   the last complete version, which is shown
//   back    takes in the next one; becomes the front at a poll, when all of it is there, the trainer has
//           confirmed it, and its checksum is right
//
// Messages are taken by a thread, so that a receiver that seldom looks holds up nobody: where a newer version
// comes before it has looked, the back takes that one in instead. Whatever fails leaves the front alone:
// nothing is ever received into it. On a GPU the back was the front before: it is written when the stream
// that reads has come to where it was shown another one.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/clock.hpp"
#include "core/secret.hpp"
#include "core/threads.hpp"
#include "hand_over/door.hpp"
#include "hand_over/flat_copy.hpp"
#include "hand_over/invitation.hpp"
#include "hand_over/weight_layout.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::hand_over {
namespace {

using namespace std::chrono_literals;
using train::NamedTensor;
using train::ReceiverOptions;
using train::WeightReceiver;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestLayout = std::size_t{256} << 20;
constexpr std::size_t kMostBuckets = 1 << 20;
// How long a whole version is left to be looked at before the next one is received over it.
constexpr auto kLookWithin = 100ms;
constexpr auto kLookForPlace = 100ms;
// Beyond the timeout: the trainer may be waiting for others to come back.
constexpr auto kServedWithin = 30s;

class Receiver final : public WeightReceiver {
 public:
  // `gpu`: what was asked for; null: none was.
  Receiver(std::unique_ptr<Visitor> visitor, std::string trainer, std::string name, Config config,
           const ReceiverOptions& options, Gpu gpu)
      : visitor_(std::move(visitor)),
        trainer_(std::move(trainer)),
        name_(std::move(name)),
        config_(std::move(config)),
        options_(options),
        gpu_(std::move(gpu)) {
    if (options_.gpu < 0 && options_.device != Device::cpu) options_.gpu = cuda::current_device();
    thread_ = start_quiet_thread("tutti-receiver", [this] { run(); });
  }

  ~Receiver() override {
    std::shared_ptr<Group> round;
    {
      std::scoped_lock lock(mutex_);
      stopping_ = true;
      round = round_;
    }
    changed_.notify_all();
    if (round) round->abort("a receiver of weights has left");
    round.reset();
    thread_.join();           // bounded: its round is aborted, and meetings have a deadline
    visitor_->say_goodbye();  // the last word
  }

  Result<bool> poll(void* stream) override {
    std::unique_lock lock(mutex_);
    if (!is_whole_) return failure_.ok() ? Result<bool>(false) : Result<bool>(failure_);
    std::swap(front_, back_);
    version_ = announcement_.version;
    is_whole_ = false;
    const Status status = wait_for_readers(stream);
    lock.unlock();
    changed_.notify_all();
    return status.ok() ? Result<bool>(true) : Result<bool>(status);
  }

  Status wait_for(std::uint64_t version, std::chrono::nanoseconds timeout, void* stream) override {
    const auto begin = Clock::now();
    while (version_ < version || version_ == 0) {
      const auto newer = poll(stream);
      if (!newer.ok()) return newer.status();
      if (*newer) continue;
      const auto left = timeout - (Clock::now() - begin);
      if (left <= 0ns)
        return {Code::timed_out,
                fmt::format("version {} did not come from {} within {} s; the last one is {}",
                            version, trainer_, in_seconds(timeout), version_)};
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(left, 1h),
                        [&] { return is_whole_ || !failure_.ok(); });
    }
    return {};
  }

  std::uint64_t version() const override { return version_; }
  std::span<const NamedTensor> weights() const override { return front_.tensors(); }

 private:
  enum class Next : std::uint8_t { round, nothing };

  // ---- the thread

  void run() {
    const Status why = follow();
    {
      std::scoped_lock lock(mutex_);
      failure_ = why.annotate(
          fmt::format("weights from {} (version {} is the last)", trainer_, received_));
    }
    changed_.notify_all();
  }

  // From round to round; why there is no more.
  Status follow() {
    for (;;) {
      auto round = next_round();
      if (!round.ok()) return round.status();
      if (!*round) continue;
      const auto next = take_part(**round);
      {
        std::scoped_lock lock(mutex_);
        round_.reset();
      }
      // The others hear of what this one cannot do.
      if (!next.ok()) (*round)->abort(next.status().message());
      if (!next.ok()) return next.status();
      if (*next == Next::nothing)
        return {Code::peer_lost, "the trainer has ended it", {visitor_->number(), kTrainer, 0}};
    }
  }

  // Null: it did not come about, and the trainer begins another one.
  Result<std::shared_ptr<Group>> next_round() {
    if (is_stopping()) return Status(Code::aborted, "this receiver was closed");
    const auto ticket = visitor_->say_ready(received_, on_host());
    if (!ticket.ok()) return why_gone(ticket.status());
    const Nanoseconds until =
        deadline_after(steady_clock().now(), deadline_after(config_.timeout, kServedWithin));
    for (;;) {
      if (is_stopping()) {
        visitor_->decline(*ticket);
        return Status(Code::aborted, "this receiver was closed");
      }
      const auto place = visitor_->place_for(
          *ticket, std::chrono::duration_cast<std::chrono::milliseconds>(kLookForPlace));
      if (place.ok()) return join(*place);
      if (place.status().code() != Code::timed_out) return why_gone(place.status());
      if (steady_clock().now() > until)
        return Status(Code::timed_out, "the trainer has no place for this receiver");
    }
  }

  Result<std::shared_ptr<Group>> join(const Place& place) {
    auto round = join_round(visitor_->store(), place, name_, config_);
    if (!round.ok()) return std::shared_ptr<Group>();
    std::scoped_lock lock(mutex_);
    if (stopping_) return Status(Code::aborted, "this receiver was closed");
    round_ = *round;
    return *std::move(round);
  }

  // The store is gone, and the trainer with it, or only its links: what was said there first counts.
  Status why_gone(const Status& store) const {
    if (last_.code() == Code::peer_lost && last_.peer() == kTrainer) return last_;
    return {Code::peer_lost,
            "the trainer is gone: " + store.message(),
            {visitor_->number(), kTrainer, 0}};
  }

  bool is_stopping() {
    std::scoped_lock lock(mutex_);
    return stopping_;
  }

  // Takes versions until the round ends. A failure is this receiver's own.
  Result<Next> take_part(Group& round) {
    for (;;) {
      Announcement next;
      CallOptions options;
      options.timeout = std::chrono::nanoseconds::max();  // it may be long in coming
      Work heard = round.irecv({&next, sizeof next, Dtype::u8}, kTrainer, kAnnouncement, options);
      last_ = heard.wait();
      if (!last_.ok()) return Next::round;
      if (Status status = check(next, heard.received().bytes); !status.ok()) return status;
      if (next.has(Announcement::kGoodbye)) return Next::nothing;
      if (next.has(Announcement::kNewRound)) return Next::round;
      if (!make_room(next)) return Next::round;
      auto taken = take_version(round);
      if (taken.ok()) continue;
      if (!last_.ok()) {
        leave_back();
        return Next::round;
      }
      return taken;
    }
  }

  static Status corrupt(const Announcement& it, std::string_view what) {
    return {Code::corrupt, fmt::format("version {} {}", it.version, what)};
  }

  Status check(const Announcement& it, std::size_t bytes) const {
    if (bytes != sizeof it || it.magic != Announcement::kMagic)
      return {Code::corrupt, "a message that announces no weights came"};
    if (it.format != Announcement::kFormat)
      return corrupt(it, fmt::format("has format {}, and this build reads {}", it.format,
                                     Announcement::kFormat));
    if (it.has(Announcement::kGoodbye) || it.has(Announcement::kNewRound)) return {};
    if (it.version <= received_) return corrupt(it, fmt::format("comes after {}", received_));
    if (it.layout_bytes > kLongestLayout || it.bucket_bytes == 0 || it.buckets > kMostBuckets)
      return corrupt(it, "is announced with sizes that cannot be");
    return {};
  }

  // The back is this thread's from here on. False: there is nobody any more to receive for.
  bool make_room(const Announcement& next) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLookWithin, [&] { return !is_whole_ || stopping_; });
    is_whole_ = false;
    announcement_ = next;
    return !stopping_;
  }

  // What is still under way into it may come later.
  void leave_back() {
    if (back_.gpu()) back_ = FlatCopy(freed_);
  }

  Status take_version(Group& round) {
    if (Status status = take_layout(round); !status.ok()) return status;
    Status status = take_buckets(round);
    if (!status.ok()) return status;
    const Announcement& it = announcement_;
    if (it.has(Announcement::kChecked) && !back_.gpu() &&
        checksum(back_.data(), back_.bytes()) != it.checksum)
      return corrupt(it, "has not the checksum that was announced");
    received_ = it.version;
    last_ = round.send(ConstBuffer::of(&received_, 1), kTrainer, kWhole);
    {
      std::scoped_lock lock(mutex_);
      is_whole_ = true;
    }
    changed_.notify_all();
    freed_->sweep();
    return last_;
  }

  Status take_layout(Group& round) {
    const Announcement& it = announcement_;
    if (it.layout_bytes > 0) {
      std::string text(it.layout_bytes, '\0');
      last_ = round.recv(Buffer::of(text.data(), text.size()), kTrainer, kLayout).status();
      if (!last_.ok()) return last_;
      auto layout = parse_layout(text);
      if (!layout.ok()) return layout.status();
      layout_ = *std::move(layout);
      has_layout_ = true;
    }
    if (!has_layout_ || layout_.hash != it.layout_hash || layout_.bytes != it.bytes ||
        count_pieces(layout_, it.bucket_bytes, it.has(Announcement::kByTensor)) != it.buckets)
      return corrupt(it, "is not of the layout that was announced");
    return {};
  }

  Status take_buckets(Group& round) {
    const Announcement& it = announcement_;
    const Gpu gpu = gpu_for(it.has(Announcement::kOnDevice));
    CallOptions options;
    cuda::DeviceTraffic::Duty duty;
    if (gpu) {
      duty = cuda::DeviceTraffic::Duty(gpu->traffic());
      if (Status status = open_streams(gpu); !status.ok()) return status;
      options.stream = behind_readers_.get();
    }
    if (Status status = back_.prepare(layout_, gpu, options.stream); !status.ok()) return status;
    const bool together = it.has(Announcement::kTogether);
    if (together && gpu) return corrupt(it, "comes by broadcast, which was not agreed on");
    const auto pieces = pieces_of(layout_, it.bucket_bytes, it.has(Announcement::kByTensor));
    std::vector<Work> works;
    for (const WeightPiece& piece : pieces)
      works.push_back(together ? round.broadcast_async(back_.at(piece), kTrainer)
                               : round.irecv(back_.at(piece), kTrainer, kBucket, options));
    std::uint64_t end = 0;
    works.push_back(round.irecv(Buffer::of(&end, 1), kTrainer, kEnd));
    Status failed;
    for (Work& work : works)
      if (Status status = work.wait(); !status.ok() && failed.ok()) failed = status;
    if (!failed.ok()) return last_ = failed;
    for (std::size_t i = 0; i < pieces.size() && !together; ++i)
      if (works[i].received().bytes != pieces[i].bytes)
        return corrupt(it, fmt::format("has too short a bucket {}", i));
    return end == it.version ? Status() : corrupt(it, "has the end of another one");
  }

  bool on_host() const { return !gpu_ && options_.device != Device::cuda; }

  // Where the next version goes; null: to CPU memory. One that was asked for is there.
  Gpu gpu_for(bool trainer_has_one) {
    if (options_.device || !trainer_has_one || gpu_) return gpu_;
    auto opened = cuda::Device::open(options_.gpu);
    if (opened.ok())
      gpu_ = *std::move(opened);
    else
      options_.device = Device::cpu;  // and so it stays
    return gpu_;
  }

  Status open_streams(const Gpu& gpu) {
    std::scoped_lock lock(mutex_);
    if (behind_readers_.get() != nullptr) return {};
    auto stream = gpu->make_stream();
    if (!stream.ok()) return stream.status();
    auto event = gpu->make_event();
    if (!event.ok()) return event.status();
    behind_readers_ = *std::move(stream);
    readers_ = *std::move(event);
    return {};
  }

  // ---- both

  // What was the front was lent to the caller's stream until now.
  Status wait_for_readers(void* stream) {
    if (!back_.gpu() || back_.data() == nullptr || readers_.get() == nullptr) return {};
    const Status status = back_.gpu()->record(readers_.get(), stream);
    return status.ok() ? back_.gpu()->wait(behind_readers_.get(), readers_.get()) : status;
  }

  const std::unique_ptr<Visitor> visitor_;
  const std::string trainer_, name_;
  const Config config_;

  // Of the caller.
  std::uint64_t version_ = 0;
  std::shared_ptr<FreedLater> freed_ = std::make_shared<FreedLater>();
  FlatCopy front_{freed_};

  // Of the thread.
  ReceiverOptions options_;
  Gpu gpu_;
  Status last_;                 // what ended the round
  std::uint64_t received_ = 0;  // the newest version that was whole
  WeightLayout layout_;
  bool has_layout_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  FlatCopy back_{freed_};      // the caller's while it is whole, else the thread's;
  Announcement announcement_;  //   and what is said of it
  bool is_whole_ = false;
  cuda::Stream behind_readers_;  // into which the back is received
  cuda::Event readers_;          // the caller's stream, when it was last shown another front
  Status failure_;
  bool stopping_ = false;
  std::shared_ptr<Group> round_;
  std::thread thread_;
};

Result<std::unique_ptr<WeightReceiver>> make_receiver(const Invitation& invitation,
                                                      std::string trainer, std::string name,
                                                      std::optional<int> number,
                                                      const ReceiverOptions& options) {
  auto config = config_for_rounds(options.config);
  if (!config.ok()) return config.status();
  Gpu gpu;
  if (options.device == Device::cuda) {
    auto opened = cuda::Device::open(options.gpu < 0 ? cuda::current_device() : options.gpu);
    if (!opened.ok()) return opened.status().annotate("receiving weights on a GPU");
    gpu = *std::move(opened);
  }
  const auto patience = options.patience.count() > 0 ? options.patience : config->join_timeout;
  auto visitor =
      Visitor::come(invitation.addresses, invitation.secret,
                    std::chrono::duration_cast<std::chrono::milliseconds>(patience), number);
  if (!visitor.ok()) return visitor.status();
  return std::unique_ptr<WeightReceiver>(
      std::make_unique<Receiver>(*std::move(visitor), std::move(trainer), std::move(name),
                                 *std::move(config), options, std::move(gpu)));
}

Status refuse_receiving(std::string what) {
  return {Code::invalid_argument, "receiving weights: " + std::move(what)};
}

}  // namespace
}  // namespace tutti::hand_over

namespace tutti::train {

Result<std::unique_ptr<WeightReceiver>> WeightReceiver::create(Group& group, int trainer,
                                                               std::span<const int> receivers,
                                                               const ReceiverOptions& options) {
  using hand_over::refuse_receiving;
  if (std::find(receivers.begin(), receivers.end(), group.rank()) == receivers.end())
    return refuse_receiving(fmt::format("rank {} is not among the receivers", group.rank()));
  if (trainer < 0 || trainer >= group.size() || trainer == group.rank())
    return refuse_receiving(fmt::format("rank {} cannot be the trainer", trainer));
  const auto invitation = hand_over::be_invited(group, trainer);
  if (!invitation.ok())
    return invitation.status().annotate(fmt::format("receiving weights from rank {}", trainer));
  return hand_over::make_receiver(*invitation, fmt::format("the trainer, rank {}", trainer),
                                  group.name() + "/weights", group.rank(), options);
}

Result<std::unique_ptr<WeightReceiver>> WeightReceiver::attach(const std::string& address,
                                                               const std::string& secret_file,
                                                               const ReceiverOptions& options) {
  if (address.empty()) return hand_over::refuse_receiving("no address of a trainer");
  const auto secret = read_secret_file(secret_file);
  if (!secret.ok()) return secret.status();
  return hand_over::make_receiver({address, secret->text()}, "the trainer at " + address, "weights",
                                  {}, options);
}

}  // namespace tutti::train
