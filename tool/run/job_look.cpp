// What others may see of a job while it runs.
#include <unistd.h>

#include <filesystem>

#include "tool/run/job.hpp"
#include "tool/run/snapshot.hpp"

namespace tutti::tool {

void Job::let_look(const std::string& path) {
  if (auto socket = JobSocket::open(path); socket.ok()) socket_.emplace(*std::move(socket));
}

std::string Job::snapshot() const {
  const JobWorld& world = rendezvous_.world();
  JobView view;
  view.job = world.job;
  view.launcher = ::getpid();
  view.host = host_name();
  view.program = std::filesystem::path(options_.program.front()).filename().string();
  view.node = world.node_rank;
  view.nodes = world.nodes;
  view.ranks_in_job = world.size;
  view.now = steady_clock().now();
  view.up = view.now - began_;
  for (const Rank& rank : ranks_)
    view.ranks.push_back({rank.rank, rank.pid, rank.alive, rank.ending.exit_code(),
                          board_->read(rank.rank), board_->label(rank.rank)});
  return to_json(view);
}

}  // namespace tutti::tool
