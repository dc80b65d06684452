#include "tool/run/fleet.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "core/auth.hpp"
#include "core/board.hpp"
#include "core/words.hpp"
#include "tool/command.hpp"
#include "tool/run/environment.hpp"
#include "tool/run/leash.hpp"
#include "tool/run/order.hpp"
#include "tool/run/report.hpp"
#include "tool/run/verdict.hpp"

namespace tutti::tool {
namespace {

constexpr int kNoSuchProgram = 127;  // as shells say it
// A prompt could not be answered; a network that is gone is noticed.
constexpr const char* kRemoteShell =
    "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3";

// As one word of a shell.
std::string shell_quoted(const std::string& word) {
  std::string text = "'";
  for (const char letter : word)
    text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

std::string own_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

}  // namespace

Fleet::Fleet(const RunOptions& options, Secret secret, Keeper& keeper, Signals& signals,
             SpawnOptions launch)
    : options_(options),
      secret_(std::move(secret)),
      keeper_(keeper),
      signals_(signals),
      launch_(std::move(launch)),
      sinks_(Sinks::of_this_process()),
      mark_(to_hex(random_bytes(8))) {
  for (const Host& host : options.hosts) nodes_.emplace_back().host = host;
  const bool all_here = std::all_of(options.hosts.begin(), options.hosts.end(),
                                    [&](const Host& host) { return is_here(host); });
  const Host& first = options.hosts.front();
  // "localhost" is somebody else for the others.
  const std::string name = is_here(first) && !all_here ? host_name() : address_of(first);
  rendezvous_ = options.rendezvous.empty() ? name + ":0" : options.rendezvous;
}

bool Fleet::is_here(const Host& host) const {
  return options_.remote_shell.empty() && (host.name == "localhost" || host.name == host_name());
}

// ---- starting

int Fleet::run() {
  ready_by_ = deadline_after(steady_clock().now(), options_.join_timeout);
  start(0);
  while (running() || sinks_.pending()) {
    wait_for_events();
    handle_signals();
    look_at_clock();
    sinks_.flush();
  }
  return exit_code_ = conclude();
}

void Fleet::start_others(int port) {
  rendezvous_ = fmt::format("{}:{}", rendezvous_.substr(0, rendezvous_.rfind(':')), port);
  for (std::size_t index = 1; index < nodes_.size() && lost_.empty(); ++index) start(index);
}

void Fleet::start(std::size_t index) {
  if (Status status = spawn_node(index); !status.ok())
    fail(fmt::format("host {} cannot be started: {}", nodes_[index].host.name, status.message()),
         status.code() == Code::invalid_argument ? kNoSuchProgram : 1);
}

Status Fleet::spawn_node(std::size_t index) {
  Node& node = nodes_[index];
  SpawnOptions launch = launch_;
  const std::string path = own_path();
  if (is_here(node.host)) {
    launch.path = path;
    launch.arguments = {path, "run", "--leashed"};
  } else {
    const std::string shell = options_.remote_shell.empty() ? kRemoteShell : options_.remote_shell;
    for (const std::string_view word : split_words(shell, ' ')) launch.arguments.emplace_back(word);
    launch.arguments.push_back(shell_name_of(node.host));
    launch.arguments.push_back(fmt::format("exec {} run --leashed", shell_quoted(path)));
    auto program = find_program(launch.arguments.front());
    if (!program.ok()) return program.status();
    launch.path = *std::move(program);
  }
  const auto order = order_for(index);
  if (!order.ok()) return order.status();
  auto leash = make_pipe();
  if (!leash.ok()) return leash.status();
  auto child = keeper_.spawn(launch, process_variables(), leash->read.get());
  if (!child.ok()) return child.status();
  node.pid = child->pid;
  node.death = std::move(child->death);
  node.leash_end = std::move(leash->write);
  node.leash = std::make_unique<OutputSink>(node.leash_end.get());
  node.leash->put(*order + "\n");
  node.out =
      std::make_unique<LineStream>(std::move(child->out), sinks_.out.get(), "", Descriptor());
  node.out->set_filter([this, index](std::string_view line) { return handle_line(index, line); });
  node.err =
      std::make_unique<LineStream>(std::move(child->err), sinks_.err.get(), "", Descriptor());
  return {};
}

Result<std::string> Fleet::order_for(std::size_t index) const {
  NodeOrder order;
  order.options = options_;
  order.options.ranks = nodes_[index].host.ranks;
  order.options.nodes = static_cast<int>(nodes_.size());
  order.options.node_rank = static_cast<int>(index);
  order.options.rendezvous = rendezvous_;
  order.options.tee = options_.tee || (options_.prefixes && ::isatty(STDOUT_FILENO) != 0);
  order.secret = secret_;
  order.mark = mark_;
  order.environment = variables_for_nodes();
  order.environment.insert(order.environment.end(), options_.environment.begin(),
                           options_.environment.end());
  std::error_code error;
  order.folder = std::filesystem::current_path(error).string();
  return to_line(order);
}

// ---- the loop

bool Fleet::running() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.pid > 0; });
}

void Fleet::wait_for_events() {
  std::vector<pollfd> events = {{signals_.descriptor(), POLLIN, 0},
                                {wants_input() ? STDIN_FILENO : -1, POLLIN, 0}};
  for (const OutputSink* sink : {sinks_.out.get(), sinks_.err.get()})
    events.push_back({sink->pending() ? sink->descriptor() : -1, POLLOUT, 0});
  for (const Node& node : nodes_) {
    const bool runs = node.pid > 0;
    events.push_back({node.death.get(), POLLIN, 0});
    events.push_back({runs && node.out->wants_input() ? node.out->descriptor() : -1, POLLIN, 0});
    events.push_back({runs && node.err->wants_input() ? node.err->descriptor() : -1, POLLIN, 0});
    events.push_back({node.leash && node.leash->pending() ? node.leash_end.get() : -1, POLLOUT, 0});
  }
  // The clock is looked at often enough for its deadlines, which are seconds.
  // bounded: 200 ms.
  if (::poll(events.data(), events.size(), 200) <= 0) return;
  if (events[1].revents != 0) pass_input_on();
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    const pollfd* event = &events[4 + 4 * index];
    Node& node = nodes_[index];
    if (event[1].revents != 0) node.out->pump();
    if (event[2].revents != 0) node.err->pump();
    if (event[3].revents != 0 && node.leash) node.leash->flush();
    if (event[0].revents != 0) handle_death(index);
  }
}

bool Fleet::wants_input() const {
  const Node& first = nodes_.front();
  return first.ready && first.leash && !piece_under_way_ && !input_ended_;
}

// Piece by piece: more than rank 0 reads would only wait elsewhere.
void Fleet::pass_input_on() {
  std::array<char, 65536> buffer;
  // bounded: poll said that there is something to read.
  const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  input_ended_ = got <= 0;
  piece_under_way_ = !input_ended_;
  nodes_.front().leash->put(
      input_words({buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))}));
}

void Fleet::handle_signals() {
  while (const int signal = signals_.take()) {
    last_signal_ = signal;
    ++signals_taken_;
    // Each node counts them as if they had come there: the third one kills.
    for (Node& node : nodes_)
      if (node.leash) node.leash->put(signal_words(signal));
    if (!nodes_.front().ready) cut_leashes();
    // Whoever has not answered has no ranks that could save anything; and a leash may be gone.
    for (const Node& node : nodes_)
      if (node.pid > 0 && (signals_taken_ > 2 || (!node.ready && !node.leash)))
        ::kill(-node.pid, SIGKILL);
  }
}

// The nodes' own lines stand between their ranks' and are not shown.
bool Fleet::handle_line(std::size_t index, std::string_view line) {
  const auto said = read_node_line(mark_, line);
  if (!said) return false;
  Node& node = nodes_[index];
  if (said->word == "taken") {
    piece_under_way_ = false;
    return true;
  }
  if (said->word == "ended") {
    auto report = Json::parse(said->rest);
    node.report = report.ok() ? *std::move(report) : Json{{"exit_code", 1}};
    return true;
  }
  node.ready = true;
  if (index == 0) start_others(std::atoi(said->rest.c_str()));
  return true;
}

void Fleet::handle_death(std::size_t index) {
  Node& node = nodes_[index];
  // What it wrote before its end is there; what still holds the pipe open is not its business.
  for (LineStream* stream : {node.out.get(), node.err.get()}) stream->drain();
  const int wait_status = keeper_.reap(node.pid);
  node.pid = -1;
  node.death.reset();
  node.leash.reset();
  node.leash_end.reset();
  order_of_ends_.push_back(index);
  if (!node.report.is_null()) {
    // One that ended before the others could meet it would leave them waiting.
    if (node.report["ranks"].is_null()) cut_leashes();
    return;
  }
  if (kill_at_) return;  // ended by us, because of another one
  const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
  const std::string how = describe_ending(wait_status);
  if (node.ready)
    fail(fmt::format("lost host {}: the connection to it {}", node.host.name, how), 1);
  else if (code == kNoSuchProgram)
    fail(fmt::format("host {} has no {}; tutti must be at the same path on every host",
                     node.host.name, own_path()),
         kNoSuchProgram);
  else
    fail(fmt::format("host {} cannot be used: {} {}", node.host.name,
                     is_here(node.host) ? "its launcher" : "the remote shell", how),
         1);
}

void Fleet::look_at_clock() {
  const Nanoseconds now = steady_clock().now();
  if (kill_at_ && now >= *kill_at_) {
    for (const Node& node : nodes_)
      if (node.pid > 0) ::kill(-node.pid, SIGKILL);
  }
  if (now < ready_by_ || !lost_.empty()) return;
  for (const Node& node : nodes_)
    if (node.pid > 0 && !node.ready)
      return fail(fmt::format("host {} did not answer within {} s", node.host.name,
                              static_cast<double>(options_.join_timeout.count()) / 1000),
                  1);
}

void Fleet::fail(std::string sentence, int exit_code) {
  if (lost_.empty() && last_signal_ == 0) {
    lost_ = std::move(sentence);
    lost_code_ = exit_code;
  }
  cut_leashes();
}

// Ends what runs: each node gives its ranks a grace, and is gone by then.
void Fleet::cut_leashes() {
  for (Node& node : nodes_) {
    if (node.leash) node.leash->flush();
    node.leash_end.reset();
    node.leash.reset();
  }
  if (!kill_at_)
    kill_at_ = deadline_after(steady_clock().now(), 2 * options_.grace + std::chrono::seconds(5));
}

// ---- the end

// The sentence that says why; empty where another attempt is not wanted, or would not help.
std::string Fleet::failure_to_restart_after() const {
  if (options_.restart >= options_.max_restarts || last_signal_ != 0 || sinks_.out->closed())
    return {};
  for (const std::size_t index : order_of_ends_) {
    const Json& report = nodes_[index].report;
    if (!report.is_null() && report["ranks"].is_null()) return {};  // it said why it cannot begin
    if (report["first_failure"].is_null()) continue;
    if (is_hopeless(static_cast<int>(report["exit_code"].integer()))) return {};
    return report["first_failure"]["sentence"].string();
  }
  // A host that never answered is a slip in the list; one that did before may come back.
  const bool known =
      options_.restart > 0 ||
      std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.ready; });
  return known && !is_hopeless(lost_code_) ? lost_ : std::string();
}

int Fleet::conclude() {
  if (const std::string why = failure_to_restart_after(); !why.empty()) {
    to_restart_ = true;
    fmt::print(stderr, "tutti run: {}\n",
               restart_words(why, options_.restart + 1, options_.max_restarts));
    return kFailed;
  }
  if (last_signal_ != 0)
    fmt::print(stderr, "tutti run: stopped by {}\n", signal_name(last_signal_));
  // The rank that failed first decides, also where a host was lost because of it.
  for (const std::size_t index : order_of_ends_)
    if (!nodes_[index].report["first_failure"].is_null())
      return static_cast<int>(nodes_[index].report["exit_code"].integer());
  // Who reads no more has cut the pipe that the nodes' own lines come through too.
  if (sinks_.out->closed()) return 128 + SIGPIPE;
  if (!lost_.empty()) {
    fmt::print(stderr, "tutti run: {}\n", lost_);
    return lost_code_;
  }
  for (const std::size_t index : order_of_ends_)
    if (const auto code = nodes_[index].report["exit_code"].integer(); code != 0)
      return static_cast<int>(code);
  const bool all_told = std::none_of(nodes_.begin(), nodes_.end(),
                                     [](const Node& node) { return node.report.is_null(); });
  if (last_signal_ != 0 && !all_told) return 128 + last_signal_;
  const Status output = sinks_.failure();
  return output.ok() ? kDone : complain("run", output);
}

Json Fleet::report() const {
  std::vector<Json> reports;
  for (const Node& node : nodes_) reports.push_back(node.report);
  return merge_reports(reports, exit_code_);
}

Fleet::~Fleet() {
  for (const Node& node : nodes_) {
    if (node.pid <= 0) continue;
    ::kill(-node.pid, SIGKILL);
    keeper_.reap(node.pid);
  }
}

}  // namespace tutti::tool
