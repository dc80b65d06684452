// tool/run/job_socket.hpp - the launcher's socket for `tutti show job`
// (docs/formats/job_socket.md).
//
// Part of the launcher's poll loop: nothing blocks, a client that does not read keeps one answer
// and its descriptor, and more than a few clients push out the oldest. Only processes of the same
// user, and root's, are heard.
#pragma once

#include <poll.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

class JobSocket {
 public:
  // Listens at the path, mode 0600; the folder is made where it is missing.
  static Result<JobSocket> open(std::string path);
  JobSocket(JobSocket&& other) noexcept = default;
  ~JobSocket();  // removes it

  // What to poll, at the end of the list; then the same entries with their answers.
  void add_to(std::vector<pollfd>& events) const;
  std::size_t descriptors() const { return 1 + clients_.size(); }
  void handle(std::span<const pollfd> events, const std::function<std::string()>& snapshot);

 private:
  struct Client {
    Descriptor socket;
    std::string in;
    std::string out;
    bool closed = false;
  };

  JobSocket(std::string path, Descriptor listener)
      : path_(std::move(path)), listener_(std::move(listener)) {}
  void welcome();
  void hear(Client& client);
  void answer(Client& client, const std::function<std::string()>& snapshot);
  const std::string& fresh(const std::function<std::string()>& snapshot);
  static void flush(Client& client);

  std::string path_;  // empty once moved from
  Descriptor listener_;
  std::vector<Client> clients_;  // oldest first
  std::string last_;             // snapshot, with its newline
  Nanoseconds last_at_{0};
};

}  // namespace tutti::tool
