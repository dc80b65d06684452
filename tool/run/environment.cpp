#include "tool/run/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <thread>

namespace tutti::tool {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Variables own_environment() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> entries_of(const Variables& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

// With these, programs written for torchrun run unmodified.
void set_torchrun_variables(const JobWorld& world, int local_rank, Variables& variables) {
  const std::string rank = std::to_string(world.first_rank + local_rank);
  const std::string size = std::to_string(world.size);
  for (const char* name : {"RANK", "ROLE_RANK"}) variables[name] = rank;
  for (const char* name : {"WORLD_SIZE", "ROLE_WORLD_SIZE"}) variables[name] = size;
  for (const char* name : {"GROUP_RANK", "NODE_RANK"})
    variables[name] = std::to_string(world.node_rank);
  variables["GROUP_WORLD_SIZE"] = std::to_string(world.nodes);
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(world.local_size);
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = world.master_address;
  variables["MASTER_PORT"] = std::to_string(world.master_port);
  variables["TORCHELASTIC_RUN_ID"] = world.job;
  variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(world.restart);
  variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(world.max_restarts);
  // Would make torch look for a store of torchrun's own at MASTER_PORT.
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
}

}  // namespace

std::vector<std::string> rank_environment(const JobWorld& world, int local_rank,
                                          int secret_descriptor, int board_descriptor,
                                          int returns) {
  Variables variables = own_environment();
  set_torchrun_variables(world, local_rank, variables);
  variables["TUTTI_RANK"] = std::to_string(world.first_rank + local_rank);
  variables["TUTTI_SIZE"] = std::to_string(world.size);
  variables["TUTTI_LOCAL_RANK"] = std::to_string(local_rank);
  variables["TUTTI_LOCAL_SIZE"] = std::to_string(world.local_size);
  variables["TUTTI_JOB"] = world.job;
  variables["TUTTI_RESTART"] = std::to_string(world.restart);
  variables["TUTTI_STORE"] = world.store_address;
  variables["TUTTI_SECRET_FD"] = std::to_string(secret_descriptor);
  variables["TUTTI_BOARD_FD"] = std::to_string(board_descriptor);
  if (returns > 0)
    variables["TUTTI_RETURNED"] = std::to_string(returns);
  else
    variables.erase("TUTTI_RETURNED");
  // An outer job's; the store above is what counts.
  variables.erase("TUTTI_RENDEZVOUS");
  variables.erase("TUTTI_SECRET_FILE");
  // Under MPS streams of a process share two queues otherwise, and may not wait for other ranks.
  variables.emplace("CUDA_DEVICE_MAX_CONNECTIONS", "8");
  // Ranks that each start a thread per core get in each other's way.
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (world.local_size > 1)
    variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, cores / world.local_size)));

  return entries_of(variables);
}

std::vector<std::string> process_variables() { return entries_of(own_environment()); }

std::vector<std::string> variables_for_nodes() {
  Variables variables = own_environment();
  std::erase_if(variables, [](const auto& variable) {
    const std::string& name = variable.first;
    return (!name.starts_with("TUTTI_") && name != "PATH") || name == "TUTTI_SECRET_FD" ||
           name == "TUTTI_SECRET_FILE" || name == "TUTTI_BOARD_FD" || name == "TUTTI_STORE" ||
           name == "TUTTI_RENDEZVOUS" || name == "TUTTI_RESTART" || name == "TUTTI_RETURNED";
  });
  return entries_of(variables);
}

}  // namespace tutti::tool
