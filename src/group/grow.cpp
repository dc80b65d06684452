// Ranks that came back are taken in: members and newcomers meet in a store, and make a new group.
//
// A newcomer draws a ticket and waits until it is called. When the group grows its rank 0 calls those who
// wait, gives places to those who answer, and tells the other members; then all of them link up as any
// group does, in a part of the store that nobody has used before. One that died while it waited does
// not answer.
//
//   tutti/NAME/grow/newcomers   tickets drawn so far        tutti/NAME/grow/epoch   how often it grew
//   tutti/NAME/grow/looked_at   tickets dealt with          tutti/NAME/grow/ticket/T
//       "coming" once it is called, "gone" if it waits no longer; the answer is in ticket/T/here, its
//       place, "EPOCH RANK SIZE" or "gone", in ticket/T/place
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "core/clock.hpp"
#include "core/exhausted.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {
namespace {

constexpr const char* kGone = "gone";      // it waits no longer
constexpr const char* kComing = "coming";  // it was called
// Whoever waits answers as soon as its process runs.
constexpr std::chrono::seconds kAnswers{1};

std::string growth_key(const GroupOptions& options, const std::string& what) {
  return fmt::format("tutti/{}/grow/{}", options.name, what);
}

std::string ticket_key(const GroupOptions& options, std::int64_t ticket) {
  return growth_key(options, fmt::format("ticket/{}", ticket));
}

// Where everybody goes; what rank 0 tells the other members.
struct Growth {
  std::int64_t epoch = 0;
  std::int32_t newcomers = 0;
  std::int32_t failed = 0;  // rank 0 could not reach the store
};

Result<std::shared_ptr<Group>> meet_again(const std::shared_ptr<Store>& store, GroupOptions options,
                                          std::int64_t epoch, int rank, int size) {
  options.rank = rank;
  options.size = size;
  const std::string part = growth_key(options, fmt::format("{}/", epoch));
  return or_exhausted([&] {
    return create_group(make_prefix_store(part, store), std::move(options), nullptr, true);
  });
}

// Gives places to those who wait, in the order in which they came.
Result<Growth> take_in(Store& store, const GroupOptions& options, int size, int most) {
  auto epoch = store.add(growth_key(options, "epoch"), 1);
  if (!epoch.ok()) return epoch.status();
  const auto drawn = store.add(growth_key(options, "newcomers"), 0);
  if (!drawn.ok()) return drawn.status();
  const auto looked_at = store.add(growth_key(options, "looked_at"), 0);
  if (!looked_at.ok()) return looked_at.status();
  std::vector<std::int64_t> waiting;
  std::int64_t ticket = *looked_at;
  while (ticket < *drawn && size + static_cast<int>(waiting.size()) < most) {
    // Whoever has given up has said so; whoever gives up from here on finds that it was called.
    const std::string key = ticket_key(options, ++ticket);
    const auto held = store.compare_set(key, "", kComing);
    if (!held.ok()) return held.status();
    if (*held != kComing) continue;
    Status answered = store.wait(key + "/here", kAnswers);
    if (answered.ok()) waiting.push_back(ticket);
    if (answered.code() == Code::timed_out) answered = store.set(key + "/place", kGone);
    if (!answered.ok()) return answered;
  }
  const auto noted = store.add(growth_key(options, "looked_at"), ticket - *looked_at);
  if (!noted.ok()) return noted.status();
  const int all = size + static_cast<int>(waiting.size());
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const std::string place = fmt::format("{} {} {}", *epoch, size + static_cast<int>(i), all);
    Status status = store.set(ticket_key(options, waiting[i]) + "/place", place);
    if (!status.ok()) return status;
  }
  return Growth{*epoch, static_cast<std::int32_t>(waiting.size()), 0};
}

constexpr const char* kJoining = "joining group";
constexpr std::chrono::milliseconds kLookAgain{250};

// By the launcher's word, every other rank has ended or wants to be taken in itself.
bool is_left_alone(const LauncherBoard& own) {
  for (int rank = 0; rank < own.board.ranks(); ++rank) {
    if (rank == own.rank || own.board.ended(rank)) continue;
    const auto note = own.board.read(rank);
    if (!note || note->state != BoardState::running ||
        std::string_view(note->operation) != kJoining)
      return false;
  }
  return true;
}

// ok: the newcomer was called. timed_out: the group did not grow; peer_lost: nor will it.
Status wait_for_call(Store& store, const GroupOptions& options, const std::string& key,
                     std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  auto board = find_launcher_board(process_environment());
  if (board)
    board->board.note(board->rank, BoardNote::of(kJoining, options.name, 0, BoardState::running));
  const Nanoseconds until = deadline_after(steady_clock().now(), timeout);
  for (;;) {
    const auto rest = std::chrono::ceil<milliseconds>(until - steady_clock().now());
    Status called = store.wait(key, std::clamp(rest, milliseconds(1), kLookAgain));
    if (called.ok() || called.code() != Code::timed_out) return called;
    if (board && is_left_alone(*board))
      return Status(
          Code::peer_lost,
          fmt::format("no rank is left that could take this one into group '{}'", options.name));
    if (steady_clock().now() >= until) return called;
  }
}

// Waits to be called, answers, and learns its place.
Result<std::string> find_place(Store& store, const GroupOptions& options, const std::string& key) {
  const auto timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(options.config->join_timeout);
  if (Status status = wait_for_call(store, options, key, timeout); !status.ok()) {
    // Called at the last moment?
    const auto held = store.compare_set(key, "", kGone);
    if (!held.ok() || *held != kComing) return status;
  }
  if (Status status = store.set(key + "/here", kComing); !status.ok()) return status;
  auto place = store.get(key + "/place", timeout);
  if (place.ok() && *place == kGone) return Status(Code::timed_out, "it answered too late");
  return place;
}

}  // namespace

Result<std::shared_ptr<Group>> RankGroup::grow(std::shared_ptr<Store> store, int most,
                                               GroupOptions options) {
  if (Status status = check_process(); !status.ok()) return status;
  if (!store) return Status(Code::invalid_argument, "a group cannot grow without a store");
  if (!options.config) options.config = *setting_.config;
  options.reduction_order = setting_.order;
  Growth growth;
  Status failure;
  if (rank() == 0) {
    auto found = take_in(*store, options, size(), most);
    failure = found.status();
    growth = found.ok() ? *found : Growth{0, 0, 1};
  }
  if (Status status = broadcast(Buffer{&growth, sizeof growth, Dtype::u8}, 0,
                                internal_call({}, set_up_algorithm(Collective::broadcast)));
      !status.ok())
    return status;
  if (!failure.ok()) return failure;
  if (growth.failed != 0)
    return Status(Code::io,
                  fmt::format("rank 0 of group '{}' could not look for newcomers", name()),
                  {rank(), 0, 0});
  if (growth.newcomers == 0) return std::shared_ptr<Group>();
  return meet_again(store, std::move(options), growth.epoch, rank(), size() + growth.newcomers);
}

Result<std::shared_ptr<Group>> join_growing(const std::shared_ptr<Store>& store,
                                            GroupOptions options) {
  const auto ticket = store->add(growth_key(options, "newcomers"), 1);
  if (!ticket.ok()) return ticket.status();
  const auto place = find_place(*store, options, ticket_key(options, *ticket));
  if (!place.ok())
    return place.status().code() != Code::timed_out
               ? place.status()
               : Status(Code::timed_out,
                        fmt::format("group '{}' has not grown within {:g} s; do its "
                                    "members call grow on the same store?",
                                    options.name, in_seconds(options.config->join_timeout)));
  long long epoch = 0;
  int rank = -1;
  int size = -1;
  if (std::sscanf(place->c_str(), "%lld %d %d", &epoch, &rank, &size) != 3)
    return Status(Code::corrupt, "the store holds a place in a group that cannot be read");
  return meet_again(store, std::move(options), epoch, rank, size);
}

}  // namespace tutti::group

namespace tutti {
inline namespace v1 {

Result<std::shared_ptr<Group>> Group::join(std::shared_ptr<Store> store, GroupOptions options) {
  if (!store) return Status(Code::invalid_argument, "a group cannot be joined without a store");
  if (!options.config) {
    auto config = Config::from_environment();
    if (!config.ok()) return config.status();
    options.config = *std::move(config);
  }
  return group::join_growing(store, std::move(options));
}

Result<int> Group::waiting(const std::shared_ptr<Store>& store, const std::string& name) {
  if (!store) return Status(Code::invalid_argument, "nobody can wait without a store");
  GroupOptions options;
  options.name = name;
  const auto drawn = store->add(group::growth_key(options, "newcomers"), 0);
  if (!drawn.ok()) return drawn.status();
  const auto looked_at = store->add(group::growth_key(options, "looked_at"), 0);
  if (!looked_at.ok()) return looked_at.status();
  return static_cast<int>(*drawn - *looked_at);
}

Result<std::shared_ptr<Store>> launcher_store(std::chrono::milliseconds timeout) {
  auto self = group::find_self(group::process_environment());
  if (!self.ok()) return self.status();
  if (self->launcher != "tutti" || self->serves_store || self->store_address.empty())
    return Status(Code::unsupported, "only tutti run keeps a store that outlives ranks");
  auto meeting = group::meet(*self, timeout);
  if (!meeting.ok()) return meeting.status();
  return meeting->store;
}

}  // namespace v1
}  // namespace tutti
