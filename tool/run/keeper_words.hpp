// tool/run/keeper_words.hpp - what launcher and keeper say to each other (keeper.hpp).
//
// Every request is a KeeperRequest, `bytes` of its text, and the descriptors with its first byte; every
// answer a KeeperAnswer. Both ends are the same binary.
#pragma once

#include <string>
#include <vector>

#include "core/sockets.hpp"
#include "tool/run/spawn.hpp"

namespace tutti::tool {

enum class KeeperTask : int { spawn, reap, sweep };

struct KeeperRequest {
  KeeperTask task = KeeperTask::spawn;
  pid_t process = 0;  // to reap
  std::size_t bytes = 0;
};

struct KeeperAnswer {
  Started started{};
  int wait_status = 0;
};

// What is to be started, as text: "path\0", the counts, then every word.
std::string to_text(const SpawnOptions& launch, const std::vector<std::string>& environment);
void read_text_of(const std::string& text, SpawnOptions& launch,
                  std::vector<std::string>& environment);

// False: the other end is gone.
bool send_request(int socket, KeeperRequest request, const std::string& text,
                  const std::vector<int>& descriptors);
bool take_request(int socket, KeeperRequest& request, std::string& text,
                  std::vector<Descriptor>& descriptors);
bool send_answer(int socket, const KeeperAnswer& answer);
bool take_answer(int socket, KeeperAnswer& answer);

}  // namespace tutti::tool
