// tool/show/job_view.hpp - `tutti show job`: what the ranks of a running job are doing right now.
#pragma once

#include <string>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

struct JobViewOptions {
  std::string job;  // its name, the beginning of it, or its launcher's pid; empty: the only one
  std::string interval = "1";
  bool json = false;
  bool once = false;
  bool wide = false;  // all columns, however narrow the window
};
int show_job(const JobViewOptions& options);

// A connection to a launcher (docs/formats/job_socket.md).
class JobLine {
 public:
  // Code::io for a launcher that is gone or is not this user's.
  static Result<JobLine> connect(const std::string& path);
  // The launcher's next snapshot; Code::io when the job has ended meanwhile.
  Result<Json> ask();

 private:
  explicit JobLine(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
  std::string in_;
};

// Adds calls_per_s and bytes_per_s to each rank, from two snapshots of one job.
void add_rates(const Json& before, Json& now);
// The table, at most `rows` ranks and `width` letters of it.
std::string job_table(const Json& job, std::size_t rows, std::size_t width);

}  // namespace tutti::tool
