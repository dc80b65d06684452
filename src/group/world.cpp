#include "group/world.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "core/private_file.hpp"
#include "group/bootstrap.hpp"
#include "group/extensions.hpp"

namespace tutti::group {

namespace {

// The first rank to come names the run; nobody waits for anybody.
Result<std::unique_ptr<trace::Tracer>> open_tracer(Store& store, const GroupOptions& options,
                                                   const Config& config) {
  std::random_device random;
  const std::string mine = fmt::format("{:08x}", random());
  auto job = store.compare_set(fmt::format("tutti/trace/{}", options.name), "", mine);
  if (!job.ok()) return job.status().annotate("naming the trace");
  return trace::Tracer::open({config.trace_dir, options.rank, options.size, *job});
}

}  // namespace

Result<std::shared_ptr<World>> World::create(std::shared_ptr<Store> store,
                                             const GroupOptions& options, Config config,
                                             std::unique_ptr<StoreServer> server, bool has_grown) {
  auto log = Log::open(config);
  if (!log.ok()) return log.status();
  auto world = std::shared_ptr<World>(new World());
  world->rank_ = options.rank;
  world->size_ = options.size;
  world->server_ = std::move(server);
  world->board_ = find_launcher_board(process_environment());
  if (world->board_) {
    LauncherBoard& own = *world->board_;
    own.is_of_grown = has_grown;
    if (options.survives_losses) own.board.say_survives_losses(own.rank);
  }
  world->note(BoardNote::of("creating group", options.name, 0, BoardState::running));
  const Log rank_log = log->for_rank(options.rank);
  if (has_grown) config.use_switch = false;  // the job's has left with the group before
  engine::EngineOptions engine_options;
  if (!config.trace_dir.empty()) {
    auto tracer = open_tracer(*store, options, config);
    if (!tracer.ok()) return tracer.status();
    engine_options.tracer = *std::move(tracer);
  }
  auto linked =
      link_up(*store, options, config, rank_log, world->board_ ? &*world->board_ : nullptr);
  if (!linked.ok()) {
    world->note_failure(options.name, linked.status(), linked.status().peer());
    return linked.status();
  }
  world->host_of_ = std::move(linked->host_of);
  world->has_switch_ = linked->has_switch;
  world->tunes_ = linked->tunes && options.size > 1;
  world->machine_ = std::make_shared<const tuner::Machine>(tuner::built_in_machine());
  engine_options.endpoint = std::move(linked->endpoint);
  if (options.extensions)
    engine_options.catalog = std::make_shared<const schedule::Catalog>(
        schedule::Catalog::built_in().with(options.extensions->algorithms));
  const std::string& dumps = config.dump_dir.empty() ? config.trace_dir : config.dump_dir;
  if (!dumps.empty())
    world->dump_path_ = fmt::format("{}/tutti.rank{}.pid{}.json", dumps, options.rank, ::getpid());
  engine_options.config = std::move(config);
  engine_options.log = rank_log;
  engine_options.failures = world;
  world->engine_ = engine::Engine::create(std::move(engine_options));
  world->engine_->recorder().set_ranks(options.size);
  world->dump_hook_ = Hook::on_dump(&World::dump_on_signal, world.get());
  if (options.rank == 0) rank_log.info(Subsystem::init, "{}", world->describe());
  return world;
}

World::~World() {
  dump_hook_.reset();
  if (!engine_) return;
  // In a child of fork() the progress thread does not exist, and the links belong to the parent.
  if (is_foreign()) return;
  if (trace::Tracer* tracer = engine_->tracer(); tracer != nullptr && !tracer->failure().ok())
    engine_->log().warn(Subsystem::watch, "the trace is not complete: {}",
                        tracer->failure().message());
  engine_->shutdown();
}

std::string World::describe() const {
  transport::Endpoint& endpoint = engine_->endpoint();
  std::map<std::string, int> kinds;
  for (int peer = 0; peer < endpoint.size(); ++peer)
    if (const transport::Link* link = endpoint.link(peer)) ++kinds[std::string(link->name())];
  const int hosts = host_of_.empty() ? 1 : 1 + *std::max_element(host_of_.begin(), host_of_.end());
  std::string text = fmt::format("{} rank{} on {} host{}; this is rank {} ({})\n", size_,
                                 size_ == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
                                 endpoint.rank(), endpoint.whereabouts(endpoint.rank()));
  for (int rank = 0; rank < size_; ++rank) {
    const transport::Link* link = endpoint.link(rank);
    text += fmt::format(
        "  rank {:>3}  host {:>2}  {:<7} {}\n", rank, host_of_[static_cast<std::size_t>(rank)],
        link == nullptr ? "self" : std::string(link->name()), endpoint.whereabouts(rank));
  }
  if (has_switch_)
    text += fmt::format("  switch             {:<7} {}\n", endpoint.link(size_)->name(),
                        endpoint.whereabouts(size_));
  text += "  links of this rank:";
  for (const auto& [kind, count] : kinds) text += fmt::format(" {} {}", count, kind);
  if (kinds.empty()) text += " none";
  return text;
}

void World::label(const std::map<int, std::string>& labels) {
  std::scoped_lock lock(labels_mutex_);
  labels_.resize(static_cast<std::size_t>(size_));
  for (const auto& [rank, label] : labels) {
    labels_[static_cast<std::size_t>(rank)] = label;
    engine_->endpoint().label(rank, label);
  }
  engine_->recorder().set_labels(labels_);
  if (board_) board_->board.say_label(board_->rank, labels_[static_cast<std::size_t>(rank_)]);
}

void World::on_failure(const engine::Channel& channel, const Status& status) {
  const auto& members = channel.options().members;
  const bool known = status.peer() >= 0 && status.peer() < channel.size();
  note_failure(channel.options().name, status,
               known ? members[static_cast<std::size_t>(status.peer())] : -1);
}

void World::report_failure(const engine::Channel& channel, const Status& status) {
  // No warning: the same sentence is the Status of every operation of this group, if there are any.
  engine_->log().info(Subsystem::watch, "group '{}' failed: {}", channel.options().name,
                      status.to_string());
  if (dump_path_.empty()) {
    engine_->log().info(Subsystem::watch, "last operations:\n{}",
                        engine_->recorder().dump_text(10));
    return;
  }
  if (const int error = write_dump(status.to_string()); error == 0)
    engine_->log().warn(Subsystem::watch, "flight recorder written to {}", dump_path_);
  else
    engine_->log().warn(Subsystem::watch, "the flight recorder cannot be written to {}: {}",
                        dump_path_, std::strerror(error));
}

// 0, or errno. Async-signal-safe.
int World::write_dump(std::string_view reason) const noexcept {
  PrivateFile file(dump_path_.c_str());
  if (file.descriptor() < 0) return file.error();
  const int error = engine_->recorder().dump_to(file.descriptor(), rank_, reason);
  return file.finish(error) ? 0 : file.error();
}

void World::on_activity(const engine::Activity& activity) {
  if (!board_) return;
  BoardNote note =
      BoardNote::of(activity.collective, activity.group, activity.sequence, activity.state);
  note.dtype = activity.dtype;
  note.size = activity.bytes;
  note.calls = engine_->calls();
  note.bytes = engine_->called_bytes();
  World::note(note);
}

void World::say_takes_back() {
  if (board_) board_->board.say_takes_back(board_->rank);
}

void World::note(const BoardNote& note) {
  if (board_) board_->board.note(board_->rank, note);
}

// What the rank was doing then stays readable; a group that failed before it did anything, or while
// another one was at work, is named alone.
// `culprit` is a rank of this world; the board counts those of the job.
void World::note_failure(const std::string& group, const Status& status, int culprit) {
  if (!board_) return;
  const auto last = board_->board.read(board_->rank);
  BoardNote failed = BoardNote::of("", group, status.sequence(), BoardState::failed);
  if (last && group == last->group) {
    const std::int64_t now = failed.time_ns;
    failed = *last;
    failed.time_ns = now;
    failed.state = BoardState::failed;
  }
  failed.code = status.code();
  failed.culprit = board_->is_of(rank_, size_) ? culprit : -1;
  note(failed);
}

// In a signal handler: only what is async-signal-safe.
void World::dump_on_signal(void* self) noexcept {
  const auto* world = static_cast<const World*>(self);
  if (!world->dump_path_.empty() && world->write_dump("signal") == 0) return;
  (void)world->engine_->recorder().dump_to(STDERR_FILENO, world->rank_, "signal");
}

}  // namespace tutti::group
