#include "core/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/sockets.hpp"
#include "core/words.hpp"
#include "core/write_within.hpp"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 4> kLevelWords = {"off", "WARN", "INFO", "TRACE"};
constexpr std::array<std::string_view, 9> kSubsystemWords = {
    "INIT", "NET", "SHM", "COLL", "P2P", "TUNE", "STORE", "WATCH", "RUN"};
constexpr std::uint32_t kAllSubsystems = (1U << kSubsystemWords.size()) - 1;

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

// "%h.%p" → "node7.4182".
std::string expand(std::string_view pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size())
      path += pattern[i];
    else if (const char what = pattern[++i]; what == 'h')
      path += host_name();
    else if (what == 'p')
      path += std::to_string(::getpid());
    else
      path += what;
  }
  return path;
}

// For a reader that is only slow. One that has stopped costs this much once.
constexpr std::chrono::milliseconds kPatience{20};

}  // namespace

// Where lines go: a file of our own, or standard error.
struct Log::File {
  Descriptor own;
  std::atomic<std::uint32_t> dropped{0};  // lines, since the last that was written

  static Result<std::shared_ptr<File>> open(const std::string& pattern) {
    auto file = std::make_shared<File>();
    if (pattern.empty()) return file;
    const std::string path = expand(pattern);
    // Not to wait for the reader of a pipe, neither now nor later.
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    file->own.reset(::open(path.c_str(), kFlags, 0600));  // bounded: O_NONBLOCK
    if (file->own) return file;
    const char* why = errno == ENXIO ? "nobody reads this pipe" : std::strerror(errno);
    return Status(Code::io,
                  fmt::format("TUTTI_DEBUG_FILE={}: cannot open {}: {}", pattern, path, why));
  }

  void write(std::string_view lines) {
    const int descriptor = own ? own.get() : STDERR_FILENO;
    const std::uint32_t before = dropped.load(std::memory_order_relaxed);
    const auto patience = before == 0 ? kPatience : std::chrono::milliseconds(0);
    std::string gap;
    if (before > 0) gap = fmt::format("tutti: {} lines of the log were dropped here\n", before);
    // A log that cannot be written is no reason to fail.
    if (write_within(descriptor, gap + std::string(lines), patience) != 0)
      dropped.fetch_add(1, std::memory_order_relaxed);
    else if (before > 0)
      dropped.fetch_sub(before, std::memory_order_relaxed);
  }
};

std::string_view to_string(Subsystem subsystem) noexcept {
  return kSubsystemWords[static_cast<std::size_t>(subsystem)];
}

Result<Level> parse_level(std::string_view word) {
  for (std::size_t i = 0; i < kLevelWords.size(); ++i)
    if (same_letters(kLevelWords[i], word)) return static_cast<Level>(i);
  return Status(Code::invalid_argument, unknown_word("log level", word, kLevelWords));
}

Result<std::uint32_t> parse_subsystems(std::string_view list) {
  std::uint32_t mask = 0;
  for (std::string_view word : split_words(list, ',')) {
    std::size_t i = 0;
    while (i < kSubsystemWords.size() && !same_letters(kSubsystemWords[i], word)) ++i;
    if (i == kSubsystemWords.size())
      return Status(Code::invalid_argument, unknown_word("subsystem", word, kSubsystemWords));
    mask |= 1U << i;
  }
  return mask == 0 ? kAllSubsystems : mask;
}

Result<Log> Log::open(const Config& config) {
  auto level = parse_level(config.debug);
  if (!level.ok()) return level.status().annotate("TUTTI_DEBUG");
  auto subsystems = parse_subsystems(config.debug_subsystems);
  if (!subsystems.ok()) return subsystems.status().annotate("TUTTI_DEBUG_SUBSYS");

  Log log;
  log.level_ = *level;
  log.subsystems_ = *subsystems;
  if (*level == Level::off) return log;
  auto file = File::open(config.debug_file);
  if (!file.ok()) return file.status();
  log.file_ = *std::move(file);
  return log;
}

Log Log::for_rank(int rank) const {
  Log log = *this;
  log.rank_ = rank;
  return log;
}

void Log::write(Level level, Subsystem subsystem, std::string_view text) const {
  if (!file_) return;
  std::string head = fmt::format("tutti {}:{} ", host_name(), ::getpid());
  if (rank_ >= 0) head += fmt::format("rank {} ", rank_);
  head +=
      fmt::format("{} {}: ", kLevelWords[static_cast<std::size_t>(level)], to_string(subsystem));

  // A block of several lines gets a head on each, and still goes out in one write.
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines += head;
    lines += text.substr(0, end);
    lines += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  file_->write(lines);
}

}  // namespace tutti
