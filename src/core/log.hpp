// core/log.hpp - lines for people who asked for them (TUTTI_DEBUG, TUTTI_DEBUG_SUBSYS,
// TUTTI_DEBUG_FILE).
//
// A Log is a value-like handle owned by whoever owns the Config; there is no global one, so that
// sixteen ranks can live in one process. Each line is one write(2): lines do not mix. Nobody waits for
// a log: lines that its reader does not take in time are dropped, and the next one says how many.
//
//   log.info(Subsystem::init, "rank {} of {} linked by {}", rank, size, kind);
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "tutti/config.hpp"

namespace tutti {

enum class Level : std::uint8_t { off, warn, info, trace };
enum class Subsystem : std::uint8_t { init, net, shm, coll, p2p, tune, store, watch, run };
std::string_view to_string(Subsystem subsystem) noexcept;  // "INIT", "NET", …
// The words of TUTTI_DEBUG and TUTTI_DEBUG_SUBSYS; case does not matter. An empty list means all.
Result<Level> parse_level(std::string_view word);
Result<std::uint32_t> parse_subsystems(std::string_view list);

class Log {
 public:
  Log() = default;  // logs nothing
  static Result<Log> open(const Config& config);
  // The same log with "rank 3" in each line's head.
  Log for_rank(int rank) const;

  bool enabled(Level level, Subsystem subsystem) const noexcept {
    return level <= level_ && (subsystems_ >> static_cast<int>(subsystem) & 1U);
  }
  template <class... Args>
  void warn(Subsystem subsystem, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(Level::warn, subsystem))
      write(Level::warn, subsystem, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void info(Subsystem subsystem, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(Level::info, subsystem))
      write(Level::info, subsystem, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void trace(Subsystem subsystem, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(Level::trace, subsystem))
      write(Level::trace, subsystem, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void write(Level level, Subsystem subsystem, std::string_view text) const;

  Level level_ = Level::off;
  std::uint32_t subsystems_ = 0;
  int rank_ = -1;
  struct File;
  std::shared_ptr<File> file_;  // of all copies
};

}  // namespace tutti
