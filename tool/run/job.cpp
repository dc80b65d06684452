#include "tool/run/job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "core/secret.hpp"
#include "tool/command.hpp"
#include "tool/run/snapshot.hpp"

namespace tutti::tool {
namespace {

// How long a stream may stay open after its rank has ended, held by a process that left the group.
constexpr std::chrono::seconds kDrain{1};
// When a user who interrupted is told that ranks go on.
constexpr std::chrono::seconds kReminder{2};
// How long ranks that only followed another one are not blamed: until that one's end must be known.
constexpr std::chrono::seconds kJudgement{1};

Rendezvous::Failure failure_of(const Rendezvous::EndedRank& lost) {
  return {exit_code_of(lost.wait_status), lost.sentence};
}

int milliseconds_until(std::optional<Nanoseconds> moment) {
  if (!moment) return -1;
  const Nanoseconds left = *moment - steady_clock().now();
  if (left <= Nanoseconds(0)) return 0;
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::int64_t>(count, 60000));
}

}  // namespace

void Job::start(SpawnOptions launch, const std::string& secret) {
  began_ = steady_clock().now();
  launch_ = std::move(launch);
  const Status status = start_ranks(secret);
  if (status.ok()) return;
  own_report_ =
      Rendezvous::Failure{status.code() == Code::invalid_argument ? 127 : 1,
                          fmt::format("rank {} (host {}) did not start: {}",
                                      rendezvous_.world().first_rank + static_cast<int>(alive_),
                                      host_name(), status.message()),
                          true};
  rendezvous_.report(*own_report_);
  send(SIGKILL);
}

Status Job::start_ranks(const std::string& secret) {
  const JobWorld& world = rendezvous_.world();
  auto input = Input::open(world.first_rank != 0 ? Input::Source::none
                           : leash_ != nullptr   ? Input::Source::leash
                                                 : Input::Source::own);
  if (!input.ok()) return input.status();
  input_.emplace(*std::move(input));
  auto board = Board::create(world.size);
  if (!board.ok()) return board.status();
  board_.emplace(*std::move(board));
  auto descriptor = make_secret_descriptor(secret);
  if (!descriptor.ok()) return descriptor.status();
  secret_.reset(*descriptor);
  deaths_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!deaths_) return errno_status("cannot make an epoll");

  launch_.inherited = {secret_.get(), board_->descriptor()};
  ranks_.reserve(static_cast<std::size_t>(world.local_size));
  for (int local_rank = 0; local_rank < world.local_size; ++local_rank) {
    ranks_.emplace_back().rank = world.first_rank + local_rank;
    Status status = start_rank(ranks_.back());
    if (!status.ok() && !ranks_.back().alive) ranks_.pop_back();
    if (!status.ok()) return status;
  }
  if (options_.with_switch && world.first_rank == 0)
    if (Status status = start_switch(); !status.ok()) return status;
  input_->release_children_ends();
  return {};
}

// This program by another name, in the environment of a rank.
Status Job::start_switch() {
  SpawnOptions launch = launch_;
  launch.path = "/proc/self/exe";
  launch.arguments = {"tutti", "switch"};
  const auto environment =
      rank_environment(rendezvous_.world(), 0, secret_.get(), board_->descriptor(), 0);
  auto child = keeper_.spawn(launch, environment, input_->for_others());
  if (!child.ok()) return child.status().annotate("the switch");
  switch_.emplace();
  switch_->pid = child->pid;
  const std::string prefix = options_.tee || options_.prefixes ? "[switch] " : "";
  switch_->out =
      std::make_unique<LineStream>(std::move(child->out), sinks_.out.get(), prefix, Descriptor());
  switch_->err =
      std::make_unique<LineStream>(std::move(child->err), sinks_.err.get(), prefix, Descriptor());
  return {};
}

// Of all processes that were started here, in an order that stays.
std::vector<LineStream*> Job::streams() const {
  std::vector<LineStream*> all;
  for (const Rank& rank : ranks_) all.insert(all.end(), {rank.out.get(), rank.err.get()});
  if (switch_) all.insert(all.end(), {switch_->out.get(), switch_->err.get()});
  return all;
}

// The first time, or again: then it reads no input.
Status Job::start_rank(Rank& rank) {
  const JobWorld& world = rendezvous_.world();
  const int local_rank = rank.rank - world.first_rank;
  auto out_log = open_log(rank, "out");
  if (!out_log.ok()) return out_log.status();
  auto err_log = open_log(rank, "err");
  if (!err_log.ok()) return err_log.status();
  const auto environment =
      rank_environment(world, local_rank, secret_.get(), board_->descriptor(), rank.returns);
  const bool reads = rank.rank == 0 && rank.returns == 0;
  auto child =
      keeper_.spawn(launch_, environment, reads ? input_->for_first() : input_->for_others());
  if (!child.ok()) return child.status();

  rank.pid = child->pid;
  rank.death = std::move(child->death);
  rank.out = std::make_unique<LineStream>(std::move(child->out), sinks_.out.get(),
                                          prefix_of(rank.rank), *std::move(out_log));
  rank.err = std::make_unique<LineStream>(std::move(child->err), sinks_.err.get(),
                                          prefix_of(rank.rank), *std::move(err_log));
  rank.alive = true;
  ++alive_;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<std::uint64_t>(local_rank);
  if (::epoll_ctl(deaths_.get(), EPOLL_CTL_ADD, rank.death.get(), &event) != 0)
    return errno_status("cannot watch a rank");
  return {};
}

std::string Job::log_path(int rank, const char* ending) const {
  return fmt::format("{}/rank{}.{}", options_.log_dir, rank, ending);
}

Result<Descriptor> Job::open_log(const Rank& rank, const char* ending) const {
  if (options_.log_dir.empty()) return Descriptor();
  const std::string path = log_path(rank.rank, ending);
  // A restart goes on where the last attempt's log ends.
  const bool goes_on = rendezvous_.world().restart > 0 || rank.returns > 0;
  const int beginning = goes_on ? O_APPEND : O_TRUNC;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  // bounded: kFlags has O_NONBLOCK.
  Descriptor log(::open(path.c_str(), kFlags | beginning, 0600));
  if (!log) return errno_status(fmt::format("cannot write {}", path));
  return log;
}

std::string Job::prefix_of(int rank) const {
  const bool wanted = options_.tee || (options_.prefixes && ::isatty(STDOUT_FILENO) != 0);
  return wanted ? fmt::format("[rank{}] ", rank) : std::string();
}

int Job::run() {
  while (!finished()) {
    wait_for_events();
    handle_signals();
    handle_deaths();
    handle_news();
    judge();
    escalate();
    pump_output();
  }
  took_ = steady_clock().now() - began_;
  return exit_code_ = conclude();
}

void Job::wait_for_events() {
  std::vector<pollfd> events = {{signals_.descriptor(), POLLIN, 0},
                                {deaths_.get(), POLLIN, 0},
                                {rendezvous_.descriptor(), POLLIN, 0},
                                {input_ ? input_->wants_read() : -1, POLLIN, 0},
                                {input_ ? input_->wants_write() : -1, POLLOUT, 0},
                                {leash_ != nullptr ? leash_->descriptor() : -1, POLLIN, 0}};
  for (const OutputSink* sink : {sinks_.out.get(), sinks_.err.get()})
    events.push_back({sink->pending() ? sink->descriptor() : -1, POLLOUT, 0});
  const std::vector<LineStream*> open = streams();
  for (const LineStream* stream : open)
    events.push_back({stream->wants_input() ? stream->descriptor() : -1, POLLIN, 0});

  const std::size_t lookers = events.size();
  if (socket_) socket_->add_to(events);

  std::optional<Nanoseconds> wake = escalation_.next();
  for (const auto& moment : {give_up_at_, remind_at_, judge_at_})
    if (moment) wake = wake ? std::min(*wake, *moment) : moment;
  // bounded: a minute at most; then it looks around.
  if (::poll(events.data(), events.size(), milliseconds_until(wake)) <= 0) return;
  if ((events[3].revents | events[4].revents) != 0) input_->pump();
  if (events[5].revents != 0) leash_->pump();
  std::size_t next = 8;
  for (LineStream* stream : open)
    if (events[next++].revents != 0) stream->pump();
  if (socket_) socket_->handle(std::span(events).subspan(lookers), [this] { return snapshot(); });
}

void Job::handle_signals() {
  while (const int signal = signals_.take()) handle_signal(signal);
  if (leash_ != nullptr) handle_leash();
}

void Job::handle_signal(int signal) {
  last_signal_ = signal;
  const int passed_on = escalation_.signal_arrived(signal, steady_clock().now());
  if (escalation_.signals() == 1 && leash_ == nullptr)
    remind_at_ = deadline_after(steady_clock().now(), kReminder);
  // With no rank left there is only output or another node to wait for.
  if (alive_ == 0)
    quit_ = true;
  else
    send(passed_on);
}

void Job::handle_leash() {
  while (const int signal = leash_->take_signal()) handle_signal(signal);
  pass_input_on();
  if (!leash_->gone()) return;
  const Nanoseconds now = steady_clock().now();
  if (!cut_at_) {
    cut_at_ = now;
    last_signal_ = escalation_.leash_cut(now);
    send(last_signal_);
  }
  // Whoever cut it may still read; a connection that hangs is not waited for.
  if (alive_ == 0 && now >= deadline_after(*cut_at_, options_.grace + kDrain)) quit_ = true;
}

void Job::pass_input_on() {
  if (!input_ || !input_->idle()) return;
  if (std::exchange(feeding_, false)) sinks_.out->put(taken_line(leash_->mark()));
  if (auto piece = leash_->take_input()) {
    feeding_ = !piece->empty();
    input_->feed(*std::move(piece));
  }
}

void Job::handle_deaths() {
  if (!deaths_) return;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(deaths_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i)
    handle_death(ranks_[events[static_cast<std::size_t>(i)].data.u64]);
}

void Job::handle_death(Rank& rank) {
  Ending& ending = rank.ending;
  const Cgroup memory = Cgroup::of(CgroupKind::memory, rank.pid);  // while it is a zombie
  // What the rank left running goes with it.
  ending.wait_status = keeper_.reap(rank.pid);
  if (exit_code_of(ending.wait_status) == 128 + SIGKILL && !killed_)
    ending.why = memory_kills_.explain(memory);
  rank.death.reset();
  rank.alive = false;
  board_->end(rank.rank, ending.wait_status);
  --alive_;
  const Nanoseconds now = steady_clock().now();
  if (alive_ == 0) {
    keeper_.sweep();
    give_up_at_ = deadline_after(now, kDrain);
  }
  ending.rank = rank.rank;
  ending.host = host_name();
  ending.pid = rank.pid;
  ending.label = printable(board_->label(rank.rank));
  ending.at = now;
  ending.after = now - began_;
  const bool goes_on = ending.failed() && board_->survives_losses(rank.rank) && survivors_go_on();
  const Rendezvous::EndedRank ended{rank.rank, ending.wait_status, goes_on, describe(ending)};
  rendezvous_.tell_of(ended);
  if (!ending.failed()) return;
  // It came back when the others had ended: theirs is the job's end.
  if (is_waiting(rank.rank) && left_in_job() == 0 && !nobody_ended_well()) {
    losses_.push_back(ended);
    return;
  }
  if (goes_on) {
    go_on_without(ended);
    if (may_return(rank)) start_again(rank);
    return;
  }
  escalation_.rank_failed(now);
  if (hurried_ && !failures_.empty()) return;
  failures_.push_back(ending);
  if (judge_at_) return;
  // A host that is cut off is known to be only after a while.
  const bool alone = rendezvous_.world().nodes == 1;
  judge_at_ = deadline_after(now, kJudgement + (alone ? Nanoseconds(0) : rendezvous_.dead_after()));
}

// One that waits to be taken in again has no part in the job yet: it cannot go on without the others.
int Job::left_in_job() const {
  int left = 0;
  for (int rank = 0; rank < board_->ranks(); ++rank)
    left += !board_->ended(rank) && !is_waiting(rank);
  return left;
}

// It was started again, and the others have not taken it in.
bool Job::is_waiting(int rank) const {
  return is_here(rank) && !board_->takes_back(rank) &&
         ranks_[static_cast<std::size_t>(rank - rendezvous_.world().first_rank)].returns > 0;
}

int Job::not_lost() const { return board_->ranks() - static_cast<int>(losses_.size()); }

// Some rank is left, and all those that are left here can do without the others. Where none is left
// here, the lost one must have said so too: it speaks for its like.
bool Job::survivors_go_on() const {
  return failures_.empty() && !job_failure_ && left_in_job() > 0 &&
         std::all_of(ranks_.begin(), ranks_.end(), [this](const Rank& rank) {
           return !rank.alive || board_->survives_losses(rank.rank);
         });
}

bool Job::is_here(int rank) const {
  const int first = rendezvous_.world().first_rank;
  return rank >= first && rank < first + static_cast<int>(ranks_.size());
}

void Job::go_on_without(Rendezvous::EndedRank lost) {
  losses_.push_back(std::move(lost));
  if (is_here(losses_.back().rank) || leash_ == nullptr)
    fmt::print(stderr, "tutti run: {}; the job goes on with {} of {} ranks\n",
               losses_.back().sentence, not_lost(), board_->ranks());
}

// While the others go on. Launchers of several hosts would have to agree on it first: there lost ranks come
// back when the whole job is started again.
bool Job::may_return(const Rank& rank) const {
  return rendezvous_.world().nodes == 1 && rendezvous_.may_start_again() && last_signal_ == 0 &&
         board_->takes_back(rank.rank) && !is_hopeless(rank.ending.exit_code());
}

void Job::start_again(Rank& rank) {
  fmt::print(stderr, "tutti run: rank {} is started again, to join the others: restart {} of {}\n",
             rank.rank, rendezvous_.next_restart(), rendezvous_.world().max_restarts);
  for (LineStream* stream : {rank.out.get(), rank.err.get()}) stream->drain();
  rendezvous_.count_return();
  board_->begin_again(rank.rank);
  returned_.push_back(rank.rank);
  std::erase_if(losses_, [&](const auto& loss) { return loss.rank == rank.rank; });
  ++rank.returns;
  give_up_at_.reset();
  const Status status = start_rank(rank);
  if (status.ok()) return;
  complain("run", status.annotate(fmt::format("rank {} cannot be started again", rank.rank)));
  board_->end(rank.rank, rank.ending.wait_status);
  losses_.push_back({rank.rank, rank.ending.wait_status, true, describe(rank.ending)});
  if (!std::exchange(rank.alive, false)) return;
  ::kill(-rank.pid, SIGKILL);  // nobody would hear of its end
  keeper_.reap(rank.pid);
  rank.death.reset();
  --alive_;
}

// A rank that only followed another one is not at fault, if the other's end comes to be known.
void Job::judge() {
  if (failures_.empty() || own_report_ || job_failure_) return;
  const Suspect suspect = find_culprit(failures_, *board_);
  const bool all_known = alive_ == 0 && rendezvous_.world().nodes == 1;
  if (!suspect.sure && !all_known && steady_clock().now() < *judge_at_) return;
  judge_at_.reset();
  // Ranks that could do without another one, and yet ended because of it.
  if (!suspect.sure && !losses_.empty()) {
    own_report_ = failure_of(losses_.front());
  } else {
    first_failure_ = failures_[suspect.index];
    own_report_ = Rendezvous::Failure{first_failure_->exit_code(), describe(*first_failure_)};
  }
  own_report_->final = last_signal_ != 0 || is_hopeless(own_report_->exit_code);
  rendezvous_.report(*own_report_);
}

void Job::handle_news() {
  if (rendezvous_.descriptor() < 0) return;
  rendezvous_.acknowledge();
  for (auto& ended : rendezvous_.take_ended()) {
    if (!board_ || board_->ended(ended.rank)) continue;
    board_->end(ended.rank, ended.wait_status);
    if (!ended.goes_on) continue;
    if (survivors_go_on() || left_in_job() == 0)
      go_on_without(ended);
    else
      rendezvous_.report(failure_of(ended));
  }
  if (auto failure = rendezvous_.take_failure()) {
    job_failure_ = std::move(failure);
    escalation_.rank_failed(steady_clock().now());
    // Of a rank here, that only those of another node cannot do without.
    for (const Rank& rank : ranks_)
      if (!first_failure_ && !rank.alive && describe(rank.ending) == job_failure_->sentence) {
        first_failure_ = rank.ending;
        own_report_ = job_failure_;
      }
  }
}

void Job::escalate() {
  const Nanoseconds now = steady_clock().now();
  if (const int signal = escalation_.due(now)) {
    hurried_ = true;
    send(signal);
  }
  if (!remind_at_ || now < *remind_at_) return;
  remind_at_.reset();
  if (alive_ == 0 || escalation_.signals() > 1) return;
  fmt::print(stderr,
             "tutti run: {} of {} ranks go on after {}; send it again to kill them after {:g} s, "
             "a third time to kill them at once\n",
             alive_, ranks_.size(), signal_name(last_signal_), in_seconds(options_.grace));
}

void Job::send(int signal) {
  killed_ |= signal == SIGKILL;
  for (const Rank& rank : ranks_) {
    if (!rank.alive) continue;
    ::kill(-rank.pid, signal);
    if (signal != SIGKILL) ::kill(-rank.pid, SIGCONT);  // a stopped process hears nothing else
  }
}

void Job::pump_output() {
  sinks_.flush();
  look_for_lost_output();
}

// Said at once, and once: a job of days goes on, and its user can make room.
void Job::look_for_lost_output() {
  if (!lost_output_.ok()) return;
  lost_output_ = sinks_.failure();
  for (const Rank& rank : ranks_) {
    if (!lost_output_.ok()) break;
    for (const auto& [stream, ending] : {std::pair(rank.out.get(), "out"), {rank.err.get(), "err"}})
      if (!stream->log_failure().ok())
        lost_output_ = {Code::io, fmt::format("{}: {}; the log is cut", log_path(rank.rank, ending),
                                              stream->log_failure().message())};
  }
  if (!lost_output_.ok()) complain("run", lost_output_);
}

bool Job::streams_open() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.out->open() || rank.err->open(); });
}

// Ranks ended → their output is complete → it is written → the other nodes are done too.
bool Job::finished() {
  if (quit_) return true;
  if (alive_ > 0) return false;
  if (!failures_.empty() && !own_report_ && !job_failure_) return false;  // until it is judged
  const Nanoseconds now = steady_clock().now();
  if (streams_open() && !left_) {
    // Full sinks mean a slow reader, not a stream that somebody holds open.
    const bool slow = sinks_.pending();
    if (slow) give_up_at_ = deadline_after(now, kDrain);
    if (give_up_at_ && now < *give_up_at_) return false;
    for (Rank& rank : ranks_)
      for (LineStream* stream : {rank.out.get(), rank.err.get()})
        if (stream->open()) stream->finish();
    pump_output();
  }
  if (sinks_.pending()) {
    give_up_at_.reset();
    return false;
  }
  if (!left_) {
    left_ = true;
    give_up_at_.reset();
    rendezvous_.leave();
  }
  if (rendezvous_.over()) return true;
  // After a failure the other launchers need two graces at most; one that was killed never leaves.
  if (!give_up_at_ && (own_report_ || job_failure_))
    give_up_at_ = deadline_after(now, 2 * options_.grace + std::chrono::seconds(5));
  return give_up_at_ && now >= *give_up_at_;
}

// The first failure of the whole job was one of a rank here.
bool Job::failed_here() const {
  if (job_failure_ && (!own_report_ || own_report_->sentence != job_failure_->sentence))
    return false;
  return first_failure_ && own_report_->sentence == describe(*first_failure_);
}

int Job::conclude() {
  handle_news();
  // On another host only the failing rank's launcher speaks: the one at home says the rest.
  const bool speaks = leash_ == nullptr;
  if (last_signal_ != 0 && speaks)
    fmt::print(stderr, "tutti run: stopped by {}\n", signal_name(last_signal_));
  if (last_signal_ != 0) rendezvous_.refuse_restart();
  if (can_restart()) return announce_restart(job_failure_ ? *job_failure_ : *own_report_);
  if (failed_here()) return say_verdict();
  if (!losses_.empty() && !job_failure_ && !own_report_) {
    if (nobody_ended_well())
      job_failure_ = failure_of(losses_.front());
    else if (speaks || rendezvous_.world().node_rank == 0)
      fmt::print(stderr, "tutti run: the job ended with {} of {} ranks\n", not_lost(),
                 board_->ranks());
  }
  const auto& failure = job_failure_ ? job_failure_ : own_report_;
  if (!failure) return quit_ ? 128 + last_signal_ : lost_output_.ok() ? 0 : kFailed;
  if (speaks || !job_failure_) fmt::print(stderr, "tutti run: {}\n", failure->sentence);
  return failure->exit_code;
}

bool Job::can_restart() const {
  const auto& failure = job_failure_ ? job_failure_ : own_report_;
  return rendezvous_.may_start_again() && last_signal_ == 0 && failure && !failure->final;
}

// One line in place of the verdict: the ranks' own words are there already.
int Job::announce_restart(const Rendezvous::Failure& failure) {
  to_restart_ = true;
  if (leash_ == nullptr)
    fmt::print(stderr, "tutti run: {}\n",
               restart_words(failure.sentence, rendezvous_.next_restart(),
                             rendezvous_.world().max_restarts));
  return failure.exit_code;
}

bool Job::nobody_ended_well() const {
  for (int rank = 0; rank < board_->ranks(); ++rank)
    if (board_->ended(rank) == 0) return false;
  return true;
}

int Job::say_verdict() const {
  const auto index =
      static_cast<std::size_t>(first_failure_->rank - rendezvous_.world().first_rank);
  // `tutti run … | head` is no failure to speak of.
  const bool cut_off = sinks_.out->closed() && WIFSIGNALED(first_failure_->wait_status) &&
                       WTERMSIG(first_failure_->wait_status) == SIGPIPE;
  if (last_signal_ == 0 && !cut_off)
    fmt::print(stderr, "{}",
               verdict(*first_failure_, board_->read(first_failure_->rank),
                       ranks_[index].err->last_lines()));
  // Ranks that would not end when the user wanted them to.
  const bool stubborn =
      last_signal_ != 0 && killed_ && first_failure_->exit_code() == 128 + SIGKILL;
  return stubborn ? 128 + last_signal_ : first_failure_->exit_code();
}

Job::~Job() {
  for (Rank& rank : ranks_) {
    if (!rank.alive) continue;
    ::kill(-rank.pid, SIGKILL);
    keeper_.reap(rank.pid);
  }
  if (switch_) {
    ::kill(-switch_->pid,
           SIGKILL);  // it ends by itself when its ranks have gone, or has nobody to serve
    keeper_.reap(switch_->pid);
  }
  keeper_.sweep();
}

}  // namespace tutti::tool
