#include "hand_over/courier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/threads.hpp"

namespace tutti::hand_over {
namespace {

using namespace std::chrono_literals;

// How often somebody looks whether receivers have come, or are lost, while nothing is to be brought.
constexpr auto kLookEvery = 100ms;
// How long receivers that are not known to be lost may take to come back after a round.
constexpr auto kComeBack = 5s;
constexpr auto kLookForReturn = 2ms;
// The last word is for those who listen.
constexpr auto kGoodbyeWithin = 1s;
// Rounds that fail one after the other although nobody is lost.
constexpr int kMostAttempts = 3;

}  // namespace

// One version on its way; all of it has to stay until its works are done.
struct Courier::Delivery {
  std::uint64_t version = 0;
  std::vector<Announcement> announcements;
  std::vector<std::uint64_t> whole;  // what receivers answer
  std::vector<Work> answers;
  std::vector<Work> works;  // all but the answers

  Status wait() {
    for (Work& work : works)
      if (Status status = work.wait(); !status.ok()) return status;
    return {};
  }
  ~Delivery() {
    for (std::vector<Work>* each : {&works, &answers})
      for (Work& work : *each) (void)work.wait();
  }
};

Result<std::unique_ptr<Courier>> Courier::create(std::unique_ptr<Entrance> door, std::string name,
                                                 Config config, std::set<int> numbers) {
  std::unique_ptr<Courier> courier(
      new Courier(std::move(door), std::move(name), std::move(config)));
  if (Status status = courier->wait_for(numbers); !status.ok()) return status;
  courier->thread_ = start_quiet_thread("tutti-courier", [raw = courier.get()] { raw->run(); });
  return courier;
}

Courier::~Courier() {
  {
    std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();  // bounded: as rest() is
}

Status Courier::wait_for(const std::set<int>& numbers) {
  const Nanoseconds until = deadline_after(steady_clock().now(), config_.join_timeout);
  for (;;) {
    hear();
    std::set<int> missing = numbers;
    for (const Member& member : waiting_) missing.erase(member.word.number);
    if (missing.empty() || !trouble_.ok()) return trouble_;
    if (steady_clock().now() > until)
      return {Code::timed_out,
              fmt::format("the receiver on rank {} did not come for its weights within {:g} s",
                          *missing.begin(), in_seconds(config_.join_timeout))};
    std::this_thread::sleep_for(kLookForReturn);
  }
}

void Courier::post(Parcel parcel) {
  {
    std::scoped_lock lock(mutex_);
    posted_ = std::move(parcel);
    is_new_ = true;
  }
  changed_.notify_all();
}

void Courier::wait() {
  std::unique_lock lock(mutex_);
  rest(lock);
}

void Courier::withdraw() {
  std::unique_lock lock(mutex_);
  rest(lock);
  parcel_.reset();
}

// Until it has nothing to do: all that it does has a deadline.
void Courier::rest(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !busy_ && !is_new_; });  // bounded: see above
}

std::vector<std::pair<int, Status>> Courier::lost() const {
  std::scoped_lock lock(mutex_);
  return lost_;
}

std::vector<train::AttachedReceiver> Courier::receivers() const {
  std::scoped_lock lock(mutex_);
  return receivers_;
}

void Courier::forget(const void* allocation) {
  std::shared_ptr<Group> round;
  {
    std::scoped_lock lock(mutex_);
    round = round_;
  }
  if (round) round->forget(allocation);
}

void Courier::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_ || is_new_) {
    if (!is_new_) changed_.wait_for(lock, kLookEvery, [&] { return stopping_ || is_new_; });
    busy_ = true;
    const bool posted = std::exchange(is_new_, false);
    if (posted) parcel_ = std::exchange(posted_, {});
    lock.unlock();
    // What was posted does not wait for news, unless there is nobody to bring it to.
    if (!posted || members_.empty()) look_at_door();
    deliver();
    lock.lock();
    if (parcel_) parcel_->duty = {};
    busy_ = false;
    changed_.notify_all();
  }
  lock.unlock();
  announce_end(Announcement::kGoodbye);
  lock.lock();
  round_.reset();
}

// Until everybody who is there has what was posted.
void Courier::deliver() {
  int in_vain = 0;
  while (parcel_ && !behind().empty()) {
    const std::size_t lost_before = lost().size();
    const Status status = deliver_to(behind());
    if (status.ok()) return show_members();
    in_vain = lost().size() > lost_before ? 0 : in_vain + 1;
    if (in_vain < kMostAttempts)
      renew_round(status);
    else
      give_up(status);
  }
}

std::vector<int> Courier::behind() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (members_[i].word.version < parcel_->announcement.version)
      ranks.push_back(static_cast<int>(i) + 1);
  return ranks;
}

Status Courier::deliver_to(const std::vector<int>& ranks) {
  const bool on_host = std::all_of(members_.begin(), members_.end(),
                                   [](const Member& member) { return member.word.on_host; });
  const bool together =
      !parcel_->gpu && on_host && ranks.size() == members_.size() && ranks.size() > 1;
  Delivery delivery;
  delivery.version = parcel_->announcement.version;
  Status status = begin(delivery, ranks, together);
  if (status.ok()) status = delivery.wait();
  // The end is said when all is taken: whoever hears it knows that nothing has changed meanwhile.
  for (std::size_t i = 0; i < ranks.size() && status.ok(); ++i)
    delivery.works.push_back(round_->isend(ConstBuffer::of(&delivery.version, 1), ranks[i], kEnd));
  if (status.ok()) status = delivery.wait();
  for (std::size_t i = 0; i < ranks.size() && status.ok(); ++i) {
    status = delivery.answers[i].wait();
    Member& member = members_[static_cast<std::size_t>(ranks[i]) - 1];
    member.word.version = delivery.version;
    member.layout_hash = parcel_->announcement.layout_hash;
  }
  // The rest ends at once, and all receivers hear of it.
  if (!status.ok()) round_->abort(fmt::format("version {} did not get through", delivery.version));
  return status;
}

Status Courier::begin(Delivery& delivery, const std::vector<int>& ranks, bool together) {
  const auto send = [&](int rank, const void* data, std::size_t bytes, Tag tag) {
    delivery.works.push_back(round_->isend({data, bytes, Dtype::u8}, rank, tag));
  };
  delivery.announcements.assign(ranks.size(), parcel_->announcement);
  delivery.whole.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Announcement& it = delivery.announcements[i];
    const Member& member = members_[static_cast<std::size_t>(ranks[i]) - 1];
    it.layout_bytes = member.layout_hash == it.layout_hash ? 0 : parcel_->layout.size();
    it.flags |= together ? Announcement::kTogether : 0;
    send(ranks[i], &it, sizeof it, kAnnouncement);
    if (it.layout_bytes > 0) send(ranks[i], parcel_->layout.data(), it.layout_bytes, kLayout);
    delivery.answers.push_back(round_->irecv(Buffer::of(&delivery.whole[i], 1), ranks[i], kWhole));
  }
  CallOptions options;
  if (parcel_->gpu && stream_.get() == nullptr) {
    auto stream = parcel_->gpu->make_stream();
    if (!stream.ok()) return stream.status();
    stream_ = *std::move(stream);
  }
  options.stream = stream_.get();
  for (std::size_t p = 0; p < parcel_->pieces.size(); ++p) {
    const Buffer& piece = parcel_->pieces[p];
    if (p < parcel_->events.size())
      if (Status status = parcel_->gpu->wait(stream_.get(), parcel_->events[p]); !status.ok())
        return status;
    if (together) {
      delivery.works.push_back(round_->broadcast_async(piece, kTrainer));
      continue;
    }
    for (const int rank : ranks)
      delivery.works.push_back(round_->isend(piece, rank, kBucket, options));
  }
  return {};
}

void Courier::hear() {
  const auto words = door_->hear();
  if (!words.ok()) {
    trouble_ = words.status();
    return;
  }
  for (const Word& word : *words) {
    const auto is_it = [&](const Member& member) { return member.word.number == word.number; };
    std::erase_if(waiting_, is_it);
    std::erase_if(missed_, is_it);
    for (Member& member : members_) member.has_left_round |= is_it(member);
    if (!word.leaves) waiting_.push_back({word, 0});
  }
}

// Lets those in who have come, and ends a round that has lost somebody.
void Courier::look_at_door() {
  hear();
  const bool failed = round_ && !round_->health().ok();
  if (failed || !waiting_.empty()) renew_round(failed ? round_->health() : Status());
}

void Courier::renew_round(Status why) {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    end_round(why);
    why = begin_round();
    if (why.ok()) return;
  }
  give_up(why);
}

// Whoever is there cannot be reached, though nobody is known to be lost.
void Courier::give_up(const Status& why) {
  end_round(why);
  for (const Member& member : std::exchange(waiting_, {})) lose(member, why);
}

// Its members are to come to the door again; ok: nothing is wrong with them.
void Courier::end_round(const Status& why) {
  if (why.ok()) announce_end(Announcement::kNewRound);
  if (round_ && !why.ok()) round_->abort(why.message());
  std::optional<Member> dead;
  if (why.code() == Code::peer_lost && why.peer() > kTrainer &&
      why.peer() <= static_cast<int>(members_.size()))
    dead = members_[static_cast<std::size_t>(why.peer()) - 1];
  for (Member& member : std::exchange(members_, {}))
    if (!member.has_left_round) missed_.push_back(std::move(member));
  hear();
  // Unless it has come back, or said goodbye.
  if (dead && std::erase_if(missed_, [&](const Member& member) {
                return member.word.number == dead->word.number;
              }) > 0)
    lose(*dead, why);
  std::shared_ptr<Group> over;
  {
    std::scoped_lock lock(mutex_);
    over.swap(round_);
  }
  over.reset();
  await_return(why);
  show_members();
}

void Courier::await_return(const Status& why) {
  const auto until = std::chrono::steady_clock::now() + kComeBack;
  while (!missed_.empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookForReturn);
    hear();
  }
  for (const Member& member : std::exchange(missed_, {}))
    lose(member, why.ok() ? Status(Code::timed_out, "it did not come to the next round") : why);
}

// Of all who wait at the door; nobody: none.
Status Courier::begin_round() {
  if (waiting_.empty()) return {};
  for (Member& member : std::exchange(waiting_, {})) {
    const auto comes = door_->is_coming(member.word.ticket);
    if (!comes.ok()) return comes.status();
    (*comes ? members_ : missed_).push_back(std::move(member));
  }
  await_return({});
  if (members_.empty()) return {};
  Place place{++rounds_, 0, static_cast<int>(members_.size()) + 1};
  for (const Member& member : members_) {
    ++place.rank;
    if (Status status = door_->give_place(member.word.ticket, place); !status.ok()) return status;
  }
  place.rank = kTrainer;
  auto round = join_round(door_->store(), place, name_, config_);
  if (!round.ok()) return round.status();
  std::vector<std::string> labels = {"trainer"};
  for (const Member& member : members_)
    labels.push_back(member.word.number >= 0
                         ? fmt::format("receiver on rank {}", member.word.number)
                         : fmt::format("receiver {}", member.word.number));
  (void)(*round)->label_ranks(labels);
  {
    std::scoped_lock lock(mutex_);
    round_ = *std::move(round);
  }
  show_members();
  return {};
}

void Courier::announce_end(std::uint64_t flag) {
  if (!round_ || !round_->health().ok()) return;
  Announcement last;
  last.flags = flag;
  std::vector<Work> works;
  for (int rank = 1; rank < round_->size(); ++rank)
    works.push_back(round_->isend({&last, sizeof last, Dtype::u8}, rank, kAnnouncement));
  for (Work& work : works)
    if (const Status status = work.wait(kGoodbyeWithin); !status.ok())
      round_->abort("the round of receivers is over");
  for (Work& work : works) (void)work.wait();
}

void Courier::lose(const Member& member, const Status& why) {
  const Word& word = member.word;
  const std::string who = word.number >= 0
                              ? fmt::format("the receiver on rank {} ({})", word.number, word.where)
                              : fmt::format("receiver {} ({})", word.number, word.where);
  const std::string what =
      parcel_ ? fmt::format("did not get version {}", parcel_->announcement.version) : "is lost";
  std::scoped_lock lock(mutex_);
  lost_.emplace_back(word.number, why.annotate(fmt::format("{} {} and is left out", who, what)));
}

void Courier::show_members() {
  std::scoped_lock lock(mutex_);
  receivers_.clear();
  for (const Member& member : members_)
    receivers_.push_back({member.word.number, member.word.where, member.word.version});
}

}  // namespace tutti::hand_over
