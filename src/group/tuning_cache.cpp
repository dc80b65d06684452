#include "group/tuning_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "core/sockets.hpp"

namespace tutti::group {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

Status trouble(const std::string& path, const char* what) {
  return {Code::io, fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

// The folder and those above it, as mkdir -p.
Status make_folders(const std::string& folder) {
  for (std::size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const std::string part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return trouble(part, "cannot be made");
    if (slash == std::string::npos) return {};
  }
}

bool write_all(int file, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    // bounded: a regular file
    const ssize_t written = ::write(file, text.data() + at, text.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace

std::string cache_folder(const Config& config, const Environment& environment) {
  if (!config.cache_dir.empty()) return config.cache_dir;
  // The standard asks to pass over what is not absolute.
  const auto cache = environment("XDG_CACHE_HOME");
  if (cache && !cache->empty() && cache->front() == '/') return *cache + "/tutti";
  const auto home = environment("HOME");
  return home && !home->empty() && home->front() == '/' ? *home + "/.cache/tutti" : "";
}

TuningPaths TuningPaths::in(const std::string& folder, const std::string& fingerprint) {
  if (folder.empty()) return {};
  return {fmt::format("{}/tuning-{}.json", folder, fingerprint),
          fmt::format("{}/tuning-{}-rough.json", folder, fingerprint)};
}

std::string TuningPaths::usable(std::chrono::seconds rough_holds_for) const {
  struct stat facts {};
  if (good.empty()) return {};
  if (::stat(good.c_str(), &facts) == 0) return good;
  if (::stat(rough.c_str(), &facts) != 0) return {};
  const auto age = std::chrono::seconds(std::time(nullptr) - facts.st_mtime);
  return age < rough_holds_for ? rough : std::string();
}

Result<tuner::Machine> load_machine(const std::string& path) {
  // Not to wait for whoever might write into a pipe of that name.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return trouble(path, "cannot be opened");
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return trouble(path, "cannot be read");
  if (!S_ISREG(facts.st_mode)) return Status(Code::io, path + ": it is no regular file");
  std::string text(kMostBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    // bounded: a regular file
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return trouble(path, "cannot be read");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMostBytes) return Status(Code::corrupt, path + ": it is too long for a tuning table");
  text.resize(size);
  auto machine = tuner::parse_machine(text);
  if (!machine.ok()) return machine.status().annotate(path);
  return machine;
}

Status save_machine(const std::string& path, const tuner::Machine& machine) {
  const std::size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0)
    if (Status status = make_folders(path.substr(0, slash)); !status.ok()) return status;
  std::string beside = path + ".XXXXXX";
  Descriptor file(::mkostemp(beside.data(), O_CLOEXEC));  // mode 0600
  if (file.get() < 0) return trouble(beside, "cannot be made");
  const bool written = write_all(file.get(), tuner::to_json(machine));
  if (written && ::rename(beside.c_str(), path.c_str()) == 0) return {};
  const Status status = trouble(path, "cannot be written");
  ::unlink(beside.c_str());
  return status;
}

}  // namespace tutti::group
