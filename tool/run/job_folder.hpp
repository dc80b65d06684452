// tool/run/job_folder.hpp - where the launchers of this user keep their sockets
// (docs/formats/job_socket.md).
#pragma once

#include <sys/un.h>

#include <string>
#include <vector>

#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

// $XDG_RUNTIME_DIR/tutti, else /tmp/tutti-UID.
std::string job_folder();
// A name in it that nobody has used, for this process. Makes nothing.
std::string new_job_socket_path();

// Makes the folder (0700). Code::io when that cannot be, or when it is not ours alone: a folder of
// somebody else, or one that others may enter, is not used.
Status make_job_folder();
// All sockets in the folder, also those of launchers that are gone. Empty where there is no folder.
Result<std::vector<std::string>> list_job_sockets();

// A fresh socket, and a path as the address to bind or connect it to.
struct JobEnd {
  Descriptor socket;
  sockaddr_un address{};

  const sockaddr* where() const { return reinterpret_cast<const sockaddr*>(&address); }
};
Result<JobEnd> make_job_end(const std::string& path);

// The socket, and the folder if that was the last one. Async-signal-safe but for the path's copy;
// the keeper calls it after the launcher's death.
void remove_job_socket(const std::string& path) noexcept;

}  // namespace tutti::tool
