#include "outputs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace pretrain {

namespace fs = std::filesystem;
using tutti::Status;

namespace {

Status refuse(const char* flag, const std::string& path, const std::string& why) {
  return {tutti::Code::io, fmt::format("{} {} cannot be written: {}", flag, path, why)};
}

Status check_folder(const char* flag, const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return refuse(flag, path, error.message());
  if (::access(path.c_str(), W_OK | X_OK) != 0) return refuse(flag, path, std::strerror(errno));
  return {};
}

// A device, a pipe or a link is written through, so what counts is where it leads.
Status check_file(const char* flag, const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (fs::is_directory(there)) return refuse(flag, path, "it is a folder");
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::exists(there) && !fs::is_directory(folder, error))
    return refuse(flag, path, fmt::format("there is no folder {}", folder.string()));
  const std::string asked = fs::exists(there) ? path : folder.string();
  if (::access(asked.c_str(), W_OK) != 0) return refuse(flag, path, std::strerror(errno));
  return {};
}

}  // namespace

Status check_outputs(const Flags& flags) {
  for (const Status& status :
       {check_file("--log-json", flags.log_json), check_folder("--save", flags.save),
        check_folder("--trace", flags.trace),
        check_folder("--tensorboard-dir", flags.tensorboard_dir)})
    if (!status.ok()) return status;
  return {};
}

}  // namespace pretrain
