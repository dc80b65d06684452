#include "trace/tracer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "core/clock.hpp"

namespace tutti::trace {
namespace {

constexpr std::size_t kPartBytes = std::size_t{1} << 20;
// Programs that make up names without end must not fill the memory.
constexpr std::size_t kMostTexts = 4096;
constexpr int kMostFiles = 1000;  // of one job and rank

std::uint64_t this_thread() noexcept { return static_cast<std::uint64_t>(::pthread_self()); }

Status failed(const std::string& path, const char* what, int error) {
  return {Code::io,
          fmt::format("TUTTI_TRACE_DIR: cannot {} {}: {}", what, path, std::strerror(error))};
}

template <std::size_t Size>
void put(char (&to)[Size], std::string_view text) {
  text.copy(to, Size - 1);
}

FileHead head_of(const TracerOptions& options, std::string_view job) {
  FileHead head;
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.version = kTraceVersion;
  head.head_bytes = sizeof(FileHead);
  head.entry_bytes = sizeof(TraceEntry);
  head.rank = options.rank;
  head.ranks = options.ranks;
  head.pid = ::getpid();
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  head.unix_time_ns = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
  head.time_ns = now_ns();
  put(head.job, job);
  ::gethostname(head.host, sizeof head.host - 1);
  put(head.clock, clock_identity());
  head.check = check_of(head);
  return head;
}

}  // namespace

std::string text_of_ranks(std::span<const int> ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last > i ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]);
    i = last + 1;
  }
  return text;
}

// A program may make several worlds of one job, one after the other: each has a file of its own,
// and all ranks count alike.
Result<std::unique_ptr<Tracer>> Tracer::open(const TracerOptions& options) {
  std::unique_ptr<Tracer> tracer(new Tracer);
  if (::mkdir(options.folder.c_str(), 0777) != 0 && errno != EEXIST)
    return failed(options.folder, "make the folder", errno);
  std::string job;
  for (int number = 1; number <= kMostFiles && tracer->file_ < 0; ++number) {
    job = number == 1 ? options.job : fmt::format("{}-{}", options.job, number);
    tracer->path_ = fmt::format("{}/rank-{}.{}.trace", options.folder, options.rank, job);
    tracer->file_ = ::open(tracer->path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (tracer->file_ < 0 && errno != EEXIST) break;
  }
  if (tracer->file_ < 0) return failed(tracer->path_, "write", errno);
  if (!tracer->map_part()) {
    ::unlink(tracer->path_.c_str());
    return tracer->failure_;
  }
  const FileHead head = head_of(options, job);
  std::memcpy(tracer->part_, &head, sizeof head);
  tracer->used_ = sizeof head;
  return tracer;
}

Tracer::~Tracer() {
  if (part_ != nullptr) ::munmap(part_, kPartBytes);
  if (file_ < 0) return;
  // What was taken and not used goes back; were this to fail, zeros would stay, which readers
  // expect.
  if (!fork_guard_.crossed() && failure_.ok())
    (void)!::ftruncate(file_, static_cast<off_t>(part_at_ + used_));
  ::close(file_);
}

Status Tracer::failure() const {
  std::scoped_lock lock(lock_);
  return failure_;
}

// The next part of the file; the first one if there is none.
bool Tracer::map_part() noexcept {
  const std::size_t at = part_ == nullptr ? 0 : part_at_ + kPartBytes;
  if (part_ != nullptr) ::munmap(part_, kPartBytes);
  part_ = nullptr;
  if (const int error = ::posix_fallocate(file_, static_cast<off_t>(at), kPartBytes); error != 0) {
    failure_ = failed(path_, "write", error);
    return false;
  }
  void* mapped = ::mmap(nullptr, kPartBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_,
                        static_cast<off_t>(at));
  if (mapped == MAP_FAILED) {
    failure_ = failed(path_, "map", errno);
    return false;
  }
  part_ = static_cast<std::byte*>(mapped);
  part_at_ = at;
  used_ = 0;
  return true;
}

void Tracer::append(Kind kind, TraceEntry entry) noexcept {
  std::scoped_lock lock(lock_);
  append_locked(kind, entry);
}

// The kind is written last: an entry that has one is whole.
void Tracer::append_locked(Kind kind, TraceEntry entry) noexcept {
  if (!failure_.ok() || fork_guard_.crossed()) return;
  if (used_ == kPartBytes && !map_part()) return;
  entry.kind = static_cast<std::uint8_t>(kind);
  entry.check = check_of(entry);
  entry.kind = 0;
  std::byte* to = part_ + used_;
  std::memcpy(to, &entry, sizeof entry);
  std::atomic_ref<std::uint8_t>(*reinterpret_cast<std::uint8_t*>(to))
      .store(static_cast<std::uint8_t>(kind), std::memory_order_release);
  used_ += sizeof entry;
}

std::uint32_t Tracer::text(std::string_view text) noexcept {
  if (text.empty()) return 0;
  std::scoped_lock lock(lock_);
  return text_locked(text);
}

std::uint32_t Tracer::text_locked(std::string_view text) {
  std::string key(text);
  if (const auto at = texts_.find(key); at != texts_.end()) return at->second;
  if (texts_.size() >= kMostTexts) return 0;
  const auto number = static_cast<std::uint32_t>(texts_.size() + 1);
  texts_.emplace(std::move(key), number);
  do {
    const std::string_view piece = text.substr(0, kTextBytes);
    text.remove_prefix(piece.size());
    TraceEntry entry;
    entry.name = number;
    entry.channel = static_cast<std::uint32_t>(piece.size());
    entry.flags = text.empty() ? 0 : kMore;
    piece.copy(reinterpret_cast<char*>(&entry) + kTextOffset, kTextBytes);
    append_locked(Kind::text, entry);
  } while (!text.empty());
  return number;
}

void Tracer::append_of_thread(Kind kind, std::string_view name, std::int64_t begin,
                              std::int64_t end) noexcept {
  TraceEntry entry;
  entry.name = text(name);
  entry.begin = begin;
  entry.end = end;
  entry.origin = this_thread();
  append(kind, entry);
}

void Tracer::compute(std::string_view name, std::int64_t begin, std::int64_t end) noexcept {
  append_of_thread(Kind::compute, name, begin, end);
}

void Tracer::bubble(std::string_view missing, std::int64_t begin, std::int64_t end) noexcept {
  append_of_thread(Kind::bubble, missing, begin, end);
}

void Tracer::step(std::int64_t number, std::int64_t begin, std::int64_t end) noexcept {
  TraceEntry entry;
  entry.sequence = static_cast<std::uint64_t>(number);
  entry.begin = begin;
  entry.end = end;
  append(Kind::step, entry);
}

void Tracer::counter(std::string_view name, std::int64_t step, double value) noexcept {
  TraceEntry entry;
  entry.name = text(name);
  entry.sequence = static_cast<std::uint64_t>(step);
  entry.begin = entry.end = now_ns();
  entry.value = value;
  append(Kind::counter, entry);
}

void Tracer::clock_offset(std::int64_t ns) noexcept {
  TraceEntry entry;
  entry.begin = entry.end = ns;
  append(Kind::clock, entry);
}

void Tracer::group(std::uint32_t channel, std::string_view name,
                   std::span<const int> members) noexcept {
  TraceEntry entry;
  entry.channel = channel;
  entry.name = text(name);
  entry.sequence = members.size();
  entry.end = text(text_of_ranks(members));
  append(Kind::group, entry);
}

void Tracer::collective(TraceEntry entry, std::string_view name) noexcept {
  entry.name = text(name);
  append(Kind::collective, entry);
}

void Tracer::device(TraceEntry entry, std::string_view name) noexcept {
  entry.name = text(name);
  append(Kind::device, entry);
}

void Tracer::wait(std::uint32_t channel, std::uint64_t sequence, std::int64_t begin,
                  std::int64_t end) noexcept {
  TraceEntry entry;
  entry.channel = channel;
  entry.sequence = sequence;
  entry.begin = begin;
  entry.end = end;
  entry.origin = this_thread();
  append(Kind::wait, entry);
}

void Tracer::fold(std::uint32_t channel, std::uint64_t sequence, std::size_t bytes,
                  std::int64_t begin, std::int64_t end) noexcept {
  TraceEntry entry;
  entry.channel = channel;
  entry.sequence = sequence;
  entry.bytes = bytes;
  entry.begin = begin;
  entry.end = end;
  append(Kind::fold, entry);
}

}  // namespace tutti::trace
