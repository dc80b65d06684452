#include "tool/run/nodes.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/auth.hpp"
#include "core/restart.hpp"
#include "core/words.hpp"
#include "store/impatient.hpp"
#include "tool/run/verdict.hpp"
#include "tutti/config.hpp"

namespace tutti::tool {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRound{200};
// A beat is a round old when the next one is due, and is seen a round after it was written.
constexpr milliseconds kUnseen = 2 * kRound;

// Waits for a key in short rounds, so that Ctrl-C ends the wait.
Result<std::string> patient_get(Store& store, const std::string& key, Nanoseconds deadline,
                                const std::function<bool()>& interrupted) {
  for (;;) {
    auto value = store.get(key, kRound);
    if (value.ok() || value.status().code() != Code::timed_out) return value;
    if (interrupted())
      return Status(Code::aborted, "interrupted while waiting for the other nodes");
    if (steady_clock().now() >= deadline) return value;
  }
}

std::string host_part(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> Rendezvous::meet(const RunOptions& options,
                                                     const std::string& secret,
                                                     const std::function<bool()>& interrupted,
                                                     std::unique_ptr<Rendezvous> former) {
  std::unique_ptr<Rendezvous> meeting(new Rendezvous());
  JobWorld& world = meeting->world_;
  world.size = world.local_size = options.ranks;
  world.nodes = options.nodes;
  world.node_rank = options.node_rank;
  const bool alone = options.rendezvous.empty();
  auto config = Config::from_environment();
  if (!config.ok()) return config.status();
  constexpr std::chrono::hours kNever{24 * 365};
  meeting->dead_after_ = config->dead_after > Nanoseconds(0) ? config->dead_after : kNever;
  world.restart = former ? former->next_restart() : options.restart;
  world.max_restarts = options.max_restarts;
  meeting->address_ = alone ? "127.0.0.1:0" : options.rendezvous;
  if (options.node_rank == 0) {
    world.job = former ? former->world_.job : to_hex(random_bytes(8));
    if (former) {
      meeting->address_ = former->address_;
      meeting->server_ = std::move(former->server_);
    } else if (Status status = meeting->serve_here(options, secret); !status.ok()) {
      return status;
    }
    if (Status status = meeting->reserve_master_port(); !status.ok()) return status;
  }
  world.store_address = alone ? meeting->server_->address() : meeting->address_;
  if (!alone) world.master_address = host_part(meeting->address_);
  if (alone || options.nodes == 1) {
    meeting->over_ = true;
    return meeting;
  }
  if (Status status = meeting->join(options, secret, interrupted); !status.ok()) return status;
  meeting->thread_ = std::thread([raw = meeting.get()] { raw->watch(); });
  return meeting;
}

Status Rendezvous::serve_here(const RunOptions& options, const std::string& secret) {
  const std::size_t colon = address_.rfind(':');
  std::string where = address_;
  // A host's name may stand for another address here than elsewhere.
  if (options.on_serving)
    where = (address_.front() == '[' ? "[::]" : "0.0.0.0") + address_.substr(colon);
  auto server = StoreServer::listen(where, secret, epoch_of_job(world_.job));
  if (!server.ok())
    return server.status().annotate(fmt::format("node 0 cannot serve the store at {}", where));
  server_ = *std::move(server);
  if (!options.on_serving) return {};
  const std::string served = server_->address();
  const std::string port = served.substr(served.rfind(':') + 1);
  address_ = address_.substr(0, colon + 1) + port;
  options.on_serving(std::atoi(port.c_str()));
  return {};
}

Status Rendezvous::reserve_master_port() {
  master_socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!master_socket_) return errno_status("cannot make a socket");
  // Both sides use SO_REUSEADDR and this one never listens, so rank 0 can bind the same port, and
  // nobody gets it by chance.
  const int on = 1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  auto* address = reinterpret_cast<sockaddr*>(&any);
  if (::setsockopt(master_socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(master_socket_.get(), address, length) != 0 ||
      ::getsockname(master_socket_.get(), address, &length) != 0)
    return errno_status("cannot reserve MASTER_PORT");
  world_.master_port = ntohs(any.sin_port);
  return {};
}

Status Rendezvous::join(const RunOptions& options, const std::string& secret,
                        const std::function<bool()>& interrupted) {
  const Nanoseconds deadline = deadline_after(steady_clock().now(), options.join_timeout);
  news_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!news_) return errno_status("cannot make an eventfd");
  while (!common_store_) {
    auto store = store::connect_impatiently(address_, secret, kRound * 3, epoch_of_job(world_.job),
                                            dead_after_ + kUnseen);
    if (store.ok())
      common_store_ = *store;
    else if (interrupted())
      return {Code::aborted, "interrupted while looking for node 0"};
    // Whatever else is wrong (the secret, the version, TLS on one side) stays so.
    else if (store.status().code() != Code::timed_out)
      return store.status().annotate(
          fmt::format("node {} cannot reach node 0's launcher at {} (same --secret-file?)",
                      world_.node_rank, address_));
    else if (steady_clock().now() >= deadline)
      return {
          Code::timed_out,
          fmt::format(
              "node {} did not reach node 0's launcher at {} within {} s; look whether it runs, at the "
              "name, and at firewalls on the way; the last try: {}",
              world_.node_rank, address_, options.join_timeout.count() / 1000.0,
              store.status().message())};
  }
  for (bool placed = false; !placed;) {
    if (Status status = find_attempt(world_.restart, deadline, interrupted); !status.ok())
      return status;
    auto claimed = claim_place(options);
    if (!claimed.ok()) return claimed.status();
    placed = *claimed;
    if (!placed) ++world_.restart;  // a launcher that comes in place of one that was killed
  }
  if (Status status = learn_nodes(options, deadline, interrupted); !status.ok()) return status;
  return learn_world(deadline, interrupted);
}

// Node 0 says which attempt begins; the others wait until it is `restart`, or a later one.
Status Rendezvous::find_attempt(int restart, Nanoseconds deadline,
                                const std::function<bool()>& interrupted) {
  if (world_.node_rank == 0) {
    const Status said = common_store_->set(
        "launch/restart", fmt::format("{} {}", world_.restart, world_.max_restarts));
    if (!said.ok()) return said;
  }
  for (;;) {
    auto entry = patient_get(*common_store_, "launch/restart", deadline, interrupted);
    if (!entry.ok()) return entry.status();
    if (!(std::istringstream(*entry) >> world_.restart >> world_.max_restarts))
      return {Code::corrupt, fmt::format("node 0 said '{}'", *entry)};
    if (world_.restart >= restart) break;
    if (interrupted()) return {Code::aborted, "interrupted while waiting for the restart"};
    if (steady_clock().now() >= deadline)
      return {Code::timed_out, fmt::format("node 0 did not begin restart {}", restart)};
    std::this_thread::sleep_for(kRound / 4);
  }
  const int number = world_.restart;
  store_ = number > 0 ? make_prefix_store(restart_prefix(number), common_store_) : common_store_;
  return {};
}

// False where another launcher has it and there may be a next attempt.
Result<bool> Rendezvous::claim_place(const RunOptions& options) {
  const std::string mine = fmt::format("{} {} {} {}", options.nodes, options.ranks, host_name(),
                                       to_hex(random_bytes(8)));
  auto held = store_->compare_set(fmt::format("launch/node/{}", options.node_rank), "", mine);
  if (!held.ok()) return held.status();
  if (*held == mine) return true;
  if (world_.restart < world_.max_restarts) return false;
  return Status(
      Code::invalid_argument,
      fmt::format("--node-rank {} is taken by another launcher ({}); give each host its own",
                  options.node_rank, *held));
}

Status Rendezvous::learn_nodes(const RunOptions& options, Nanoseconds deadline,
                               const std::function<bool()>& interrupted) {
  world_.size = 0;
  for (int node = 0; node < options.nodes; ++node) {
    auto entry = patient_get(*store_, fmt::format("launch/node/{}", node), deadline, interrupted);
    if (!entry.ok() && entry.status().code() == Code::timed_out)
      return {Code::timed_out,
              fmt::format("node {} of {} did not come to {} within {} s", node, options.nodes,
                          address_, options.join_timeout.count() / 1000.0)};
    if (!entry.ok()) return entry.status();
    int nodes = 0;
    int ranks = 0;
    std::string host;
    if (!(std::istringstream(*entry) >> nodes >> ranks >> host))
      return {Code::corrupt, fmt::format("node {} said '{}'", node, *entry)};
    if (nodes == 0)
      return {Code::aborted, fmt::format("node {} (host {}) was stopped", node, host)};
    if (nodes != options.nodes)
      return {
          Code::invalid_argument,
          fmt::format("node {} (host {}) was started with --nnodes {}, node {} with --nnodes {}",
                      node, host, nodes, options.node_rank, options.nodes)};
    if (node == options.node_rank) world_.first_rank = world_.size;
    world_.size += ranks;
    hosts_.push_back(host);
  }
  return {};
}

Status Rendezvous::learn_world(Nanoseconds deadline, const std::function<bool()>& interrupted) {
  if (world_.node_rank == 0)
    return store_->set("launch/world", fmt::format("{} {}", world_.job, world_.master_port));
  auto entry = patient_get(*store_, "launch/world", deadline, interrupted);
  if (!entry.ok()) return entry.status();
  if (!(std::istringstream(*entry) >> world_.job >> world_.master_port))
    return {Code::corrupt, fmt::format("node 0 said '{}'", *entry)};
  return {};
}

void Rendezvous::watch() {
  pulses_.assign(hosts_.size(), {});
  looked_at_ = steady_clock().now();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || over_) return;
    }
    const Status status = round();
    if (status.ok()) continue;
    publish(loss_of_store(status), true);
    return;
  }
}

// Whether its host died or merely its launcher: without it the job cannot be told apart from one that
// hangs. Where it does not answer at all, the one that is cut off from it names itself, as node 0 does.
Rendezvous::Failure Rendezvous::loss_of_store(const Status& status) const {
  const auto here = static_cast<std::size_t>(world_.node_rank);
  if (status.code() == Code::aborted) return {1, silence_of(here)};
  return {1,
          fmt::format("lost node 0's launcher (host {}) at {}: {}", hosts_[0], address_,
                      status.message()),
          true};
}

std::string Rendezvous::silence_of(std::size_t node) const {
  return fmt::format(
      "node {} (host {}) is cut off from node 0 (host {}): nothing was heard for {:g} s", node,
      hosts_[node], hosts_[0], in_seconds(dead_after_));
}

// One exchange with the store; waits kRound for a verdict. Failure means that the store is gone.
Status Rendezvous::round() {
  std::optional<Failure> report;
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    report = std::exchange(to_report_, std::nullopt);
    leaving = leaving_;
  }
  if (report) {
    const auto kept = store_->compare_set(
        "launch/verdict", "",
        fmt::format("{} {:d}\n{}", report->exit_code, report->final, report->sentence));
    if (!kept.ok()) return kept.status();
  }
  if (Status status = exchange_ended(); !status.ok()) return status;
  if (leaving && !std::exchange(left_, true))
    if (const auto count = store_->add("launch/left", 1); !count.ok()) return count.status();
  if (const auto beat = store_->add(fmt::format("launch/beat/{}", world_.node_rank), 1); !beat.ok())
    return beat.status();
  if (world_.node_rank == 0)
    if (Status status = look_for_silence(); !status.ok()) return status;

  const auto left = store_->add("launch/left", 0);
  if (!left.ok()) return left.status();
  const auto word = store_->get("launch/verdict", kRound);
  if (!word.ok() && word.status().code() != Code::timed_out) return word.status();
  if (word.ok()) {
    Failure failure;
    std::istringstream(*word) >> failure.exit_code >> failure.final;
    failure.sentence = word->substr(word->find('\n') + 1);
    publish(std::move(failure), false);
    std::this_thread::sleep_for(kRound);  // the wait above no longer paces the rounds
  }
  if (*left + silent_ >= world_.nodes) say_goodbye();
  return {};
}

Status Rendezvous::exchange_ended() {
  std::vector<EndedRank> here;
  {
    const std::lock_guard lock(mutex_);
    here.swap(ended_here_);
  }
  for (const EndedRank& ended : here) {
    const auto place = store_->add("launch/ended", 1);
    if (!place.ok()) return place.status();
    if (Status status = store_->set(fmt::format("launch/ended/{}", *place),
                                    fmt::format("{} {} {:d}\n{}", ended.rank, ended.wait_status,
                                                ended.goes_on, ended.sentence));
        !status.ok())
      return status;
  }
  const auto count = store_->add("launch/ended", 0);
  if (!count.ok()) return count.status();
  const bool news = ended_seen_ < *count;
  for (; ended_seen_ < *count; ++ended_seen_) {
    const auto entry = store_->get(fmt::format("launch/ended/{}", ended_seen_ + 1), kRound);
    if (!entry.ok() && entry.status().code() == Code::timed_out) return {};  // not written yet
    if (!entry.ok()) return entry.status();
    EndedRank ended;
    if (!(std::istringstream(*entry) >> ended.rank >> ended.wait_status >> ended.goes_on)) continue;
    ended.sentence = entry->substr(std::min(entry->find('\n'), entry->size() - 1) + 1);
    const std::lock_guard lock(mutex_);
    ended_anywhere_.push_back(ended);
  }
  if (news) publish(std::nullopt, false);
  return {};
}

// Only node 0 looks: a launcher that was killed cannot report, but its beats stop. Silence is the time that
// this launcher has lived without a beat: one that was stopped itself blames nobody for it.
Status Rendezvous::look_for_silence() {
  const Nanoseconds now = steady_clock().now();
  const Nanoseconds lived = std::min<Nanoseconds>(now - std::exchange(looked_at_, now), 3 * kRound);
  int silent = 0;
  for (std::size_t node = 1; node < pulses_.size(); ++node) {
    const auto beats = store_->add(fmt::format("launch/beat/{}", node), 0);
    if (!beats.ok()) return beats.status();
    Pulse& pulse = pulses_[node];
    pulse = *beats != pulse.beats ? Pulse{*beats} : Pulse{*beats, pulse.silence + lived};
    if (pulse.silence < dead_after_ + kUnseen) continue;
    ++silent;
    const auto kept =
        store_->compare_set("launch/verdict", "", fmt::format("1 0\n{}", silence_of(node)));
    if (!kept.ok()) return kept.status();
  }
  silent_ = silent;
  return {};
}

// Node 0 takes the store with it, so it goes last; two seconds are for launchers that were killed.
void Rendezvous::say_goodbye() {
  const Nanoseconds deadline = deadline_after(steady_clock().now(), std::chrono::seconds(2));
  if (world_.node_rank != 0) {
    (void)store_->add("launch/gone", 1).ok();
  } else {
    while (steady_clock().now() < deadline) {
      const auto gone = store_->add("launch/gone", 0);
      if (!gone.ok() || *gone >= world_.nodes - 1 - silent_) break;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  publish(std::nullopt, true);
}

void Rendezvous::publish(std::optional<Failure> failure, bool over) {
  {
    const std::lock_guard lock(mutex_);
    if (failure && !std::exchange(told_, true)) failure_ = std::move(failure);
    over_ = over_ || over;
  }
  const std::uint64_t one = 1;
  // bounded: an eventfd that does not block.
  if (::write(news_.get(), &one, sizeof one) < 0) return;  // full means that it is readable already
}

void Rendezvous::acknowledge() {
  std::uint64_t count = 0;
  // bounded: it does not block.
  if (::read(news_.get(), &count, sizeof count) < 0) return;
}

std::optional<Rendezvous::Failure> Rendezvous::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, std::nullopt);
}

void Rendezvous::tell_of(EndedRank ended) {
  const std::lock_guard lock(mutex_);
  ended_here_.push_back(ended);
}

std::vector<Rendezvous::EndedRank> Rendezvous::take_ended() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_anywhere_, {});
}

void Rendezvous::report(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  to_report_ = failure;
}

void Rendezvous::refuse_restart() {
  if (!common_store_) return;
  const std::string key = fmt::format("launch/node/{}", world_.node_rank);
  (void)common_store_->set(restart_prefix(world_.restart + 1) + key, "0 0 " + host_name()).ok();
}

void Rendezvous::leave() {
  const std::lock_guard lock(mutex_);
  leaving_ = true;
}

bool Rendezvous::over() {
  const std::lock_guard lock(mutex_);
  return over_;
}

Rendezvous::~Rendezvous() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  // bounded: a round of the thread ends within dead_after_.
  if (thread_.joinable()) thread_.join();
}

}  // namespace tutti::tool
