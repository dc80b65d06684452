// trace/tracer.hpp - writes one rank's trace file, event by event.
//
// Events go into a part of the file that is mapped, a mebibyte at a time: appending one copies 64
// bytes under a spin lock, and what is there survives the process, however it ends. The disk space
// of each part is taken before it is mapped, so a full disk ends the trace and not the job.
//
// Thread-safety  any thread, any method. In a child of fork() nothing is written.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/process_hooks.hpp"
#include "core/spin_lock.hpp"
#include "trace/entry.hpp"
#include "tutti/status.hpp"
#include "tutti/trace.hpp"

namespace tutti::trace {

// Folds of fewer bytes are not worth an entry: it would take a tenth of their time.
inline constexpr std::size_t kLeastFold = 16 * 1024;

struct TracerOptions {
  std::string folder;  // is made if it is not there
  int rank = 0;
  int ranks = 1;
  std::string job;  // the same on all ranks
};

class Tracer final : public Sink {
 public:
  // io names the file that cannot be written.
  static Result<std::unique_ptr<Tracer>> open(const TracerOptions& options);
  ~Tracer() override;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Sink
  void compute(std::string_view name, std::int64_t begin, std::int64_t end) noexcept override;
  void bubble(std::string_view missing, std::int64_t begin, std::int64_t end) noexcept override;
  void step(std::int64_t number, std::int64_t begin, std::int64_t end) noexcept override;
  void counter(std::string_view name, std::int64_t step, double value) noexcept override;
  void clock_offset(std::int64_t ns) noexcept override;

  void group(std::uint32_t channel, std::string_view name, std::span<const int> members) noexcept;
  // `entry` has everything but its kind and its name.
  void collective(TraceEntry entry, std::string_view name) noexcept;
  // The same collective on the device: when its stream came to it, and when it was through.
  void device(TraceEntry entry, std::string_view name) noexcept;
  void wait(std::uint32_t channel, std::uint64_t sequence, std::int64_t begin,
            std::int64_t end) noexcept;
  void fold(std::uint32_t channel, std::uint64_t sequence, std::size_t bytes, std::int64_t begin,
            std::int64_t end) noexcept;

  const std::string& path() const { return path_; }
  // Why nothing is written any more; ok as long as it is.
  Status failure() const;

 private:
  Tracer() = default;
  bool map_part() noexcept;
  void append(Kind kind, TraceEntry entry) noexcept;
  void append_of_thread(Kind kind, std::string_view name, std::int64_t begin,
                        std::int64_t end) noexcept;
  void append_locked(Kind kind, TraceEntry entry) noexcept;
  std::uint32_t text_locked(std::string_view text);
  std::uint32_t text(std::string_view text) noexcept;

  std::string path_;
  int file_ = -1;
  ForkGuard fork_guard_;
  mutable SpinLock lock_;
  std::byte* part_ = nullptr;
  std::size_t part_at_ = 0;  // in the file
  std::size_t used_ = 0;     // of the part
  Status failure_;
  std::unordered_map<std::string, std::uint32_t> texts_;
};

// "0-3,8": runs of ranks in the order of the group.
std::string text_of_ranks(std::span<const int> ranks);

}  // namespace tutti::trace
