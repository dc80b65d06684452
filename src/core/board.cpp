#include "core/board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace tutti {
namespace {

constexpr std::uint64_t kBoardMagic = 0x4452414f42495454;  // "TTIBOARD" in memory
constexpr std::uint64_t kVersion = 6;
constexpr int kWords = sizeof(BoardNote) / sizeof(std::uint64_t);
constexpr int kLabelWords = 11;
constexpr int kMaxRanks = 1 << 20;
// Set beside a wait status, which may be zero.
constexpr std::uint64_t kEnded = std::uint64_t{1} << 32;
// A reader gives up on a line that stays torn: its writer died in the middle.
constexpr int kReadTries = 1000;

void copy_text(char* to, std::size_t room, std::string_view text) {
  std::memcpy(to, text.data(), std::min(text.size(), room - 1));
}

}  // namespace

// A seqlock: odd while somebody writes. The words are atomics, because readers look at any time;
// release and acquire on each of them (free on x86) stand for the fences that thread sanitizer does
// not know.
struct Board::Line {
  std::atomic<std::uint64_t> version{0};
  std::array<std::atomic<std::uint64_t>, kWords> words{};
  std::atomic<std::uint64_t> ending{0};    // the launcher's alone
  std::atomic<std::uint64_t> survives{0};  // the rank's alone
  std::atomic<std::uint64_t> takes_back{0};
  std::array<std::atomic<std::uint64_t>, kLabelWords> label{};  // likewise
};

std::string_view to_string(BoardState state) noexcept {
  switch (state) {
    case BoardState::nothing: return "nothing";
    case BoardState::running: return "running";
    case BoardState::done: return "done";
    case BoardState::failed: return "failed";
    case BoardState::waiting: return "waiting";
  }
  return "?";
}

BoardNote BoardNote::of(std::string_view operation, std::string_view group, std::uint64_t sequence,
                        BoardState state) noexcept {
  BoardNote note;
  note.sequence = sequence;
  note.time_ns = steady_clock().now().count();
  note.state = state;
  copy_text(note.operation, sizeof note.operation, operation);
  copy_text(note.group, sizeof note.group, group);
  return note;
}

Result<Board> Board::create(int ranks) {
  if (ranks < 1 || ranks > kMaxRanks)
    return Status(Code::invalid_argument,
                  "a board has 1 to 1048576 ranks, not " + std::to_string(ranks));
  Descriptor memory(::memfd_create("tutti-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return errno_status("cannot make the status board");
  const std::size_t bytes = sizeof(Line) * (static_cast<std::size_t>(ranks) + 1);
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    return errno_status("cannot size the status board");
  // A rank that could shrink it would make the launcher fault.
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno_status("cannot seal the status board");
  auto board = map(std::move(memory), bytes);
  if (!board.ok()) return board;
  Line& head = board->lines_[0];
  head.words[0].store(kBoardMagic);
  head.words[1].store(kVersion);
  head.words[2].store(static_cast<std::uint64_t>(ranks));
  return board;
}

Result<Board> Board::attach(int descriptor) {
  Descriptor memory(descriptor);
  struct stat info {};
  if (::fstat(memory.get(), &info) != 0) return errno_status("cannot look at the status board");
  if (info.st_size < static_cast<off_t>(2 * sizeof(Line)))
    return Status(Code::corrupt,
                  "descriptor " + std::to_string(descriptor) + " is no status board");
  auto board = map(std::move(memory), static_cast<std::size_t>(info.st_size));
  if (!board.ok()) return board;
  const Line& head = board->lines_[0];
  if (head.words[0].load() != kBoardMagic ||
      head.words[2].load() != static_cast<std::uint64_t>(board->ranks_))
    return Status(Code::corrupt,
                  "descriptor " + std::to_string(descriptor) + " is no status board");
  if (head.words[1].load() != kVersion)
    return Status(Code::mismatch, "the launcher's status board is of another version of tutti");
  board->descriptor_.reset();  // the mapping is enough, and a process may have many groups
  return board;
}

Result<Board> Board::map(Descriptor descriptor, std::size_t bytes) {
  static_assert(sizeof(Line) == 256 && std::atomic<std::uint64_t>::is_always_lock_free);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (memory == MAP_FAILED) return errno_status("cannot map the status board");
  // Fresh pages are zero, and an all-zero Line is a valid, empty one.
  return Board(std::move(descriptor), static_cast<Line*>(memory),
               static_cast<int>(bytes / sizeof(Line)) - 1);
}

Board::Board(Descriptor descriptor, Line* lines, int ranks)
    : descriptor_(std::move(descriptor)), lines_(lines), ranks_(ranks), pid_(::getpid()) {}

Board::Board(Board&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      lines_(std::exchange(other.lines_, nullptr)),
      ranks_(std::exchange(other.ranks_, 0)),
      pid_(other.pid_) {}

Board& Board::operator=(Board&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(lines_, other.lines_);
  std::swap(ranks_, other.ranks_);
  std::swap(pid_, other.pid_);
  return *this;
}

Board::~Board() {
  if (lines_) ::munmap(lines_, sizeof(Line) * (static_cast<std::size_t>(ranks_) + 1));
}

void Board::note(int rank, BoardNote note) noexcept {
  if (rank < 0 || rank >= ranks_) return;
  Line& line = lines_[1 + rank];
  std::uint64_t version = line.version.load(std::memory_order_relaxed);
  if (version % 2 != 0 ||
      !line.version.compare_exchange_strong(version, version + 1, std::memory_order_acquire))
    return;
  note.pid = pid_;
  std::array<std::uint64_t, kWords> words;
  std::memcpy(words.data(), &note, sizeof note);
  for (int i = 0; i < kWords; ++i) line.words[i].store(words[i], std::memory_order_release);
  line.version.store(version + 2, std::memory_order_release);
}

void Board::end(int rank, int wait_status) noexcept {
  if (rank < 0 || rank >= ranks_) return;
  lines_[1 + rank].ending.store(kEnded | static_cast<std::uint32_t>(wait_status));
}

std::optional<int> Board::ended(int rank) const noexcept {
  if (rank < 0 || rank >= ranks_) return std::nullopt;
  const std::uint64_t word = lines_[1 + rank].ending.load();
  if ((word & kEnded) == 0) return std::nullopt;
  return static_cast<int>(static_cast<std::uint32_t>(word));
}

void Board::begin_again(int rank) noexcept {
  if (rank < 0 || rank >= ranks_) return;
  Line& line = lines_[1 + rank];
  // Its writer may have died in the middle.
  if (const std::uint64_t version = line.version.load(); version % 2 != 0)
    line.version.store(version + 1);
  note(rank, BoardNote());
  say_label(rank, "");
  line.takes_back.store(0);
  line.ending.store(0);
}

void Board::say_survives_losses(int rank) noexcept {
  if (rank >= 0 && rank < ranks_) lines_[1 + rank].survives.store(1);
}

bool Board::survives_losses(int rank) const noexcept {
  return rank >= 0 && rank < ranks_ && lines_[1 + rank].survives.load() == 1;
}

void Board::say_takes_back(int rank) noexcept {
  if (rank >= 0 && rank < ranks_) lines_[1 + rank].takes_back.store(1);
}

bool Board::takes_back(int rank) const noexcept {
  return rank >= 0 && rank < ranks_ && lines_[1 + rank].takes_back.load() == 1;
}

// Said once or twice in a rank's life: a reader that comes in between sees some of each.
void Board::say_label(int rank, std::string_view label) noexcept {
  if (rank < 0 || rank >= ranks_) return;
  std::array<std::uint64_t, kLabelWords> words{};
  copy_text(reinterpret_cast<char*>(words.data()), sizeof words, label);
  for (std::size_t i = 0; i < words.size(); ++i) lines_[1 + rank].label[i].store(words[i]);
}

std::string Board::label(int rank) const {
  if (rank < 0 || rank >= ranks_) return {};
  std::array<char, kLabelWords * sizeof(std::uint64_t)> text{};
  for (std::size_t i = 0; i < kLabelWords; ++i) {
    const std::uint64_t word = lines_[1 + rank].label[i].load();
    std::memcpy(text.data() + i * sizeof word, &word, sizeof word);
  }
  return {text.data(), ::strnlen(text.data(), text.size())};
}

std::string describe_ending(int wait_status) {
  if (!WIFSIGNALED(wait_status))
    return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  const char* name = ::sigabbrev_np(signal);
  return fmt::format("was killed by signal {}{}", signal,
                     name != nullptr ? fmt::format(" (SIG{})", name) : "");
}

std::optional<BoardNote> Board::read(int rank) const noexcept {
  if (rank < 0 || rank >= ranks_) return std::nullopt;
  const Line& line = lines_[1 + rank];
  for (int attempt = 0; attempt < kReadTries; ++attempt) {
    const std::uint64_t before = line.version.load(std::memory_order_acquire);
    if (before == 0) return std::nullopt;
    if (before % 2 != 0) continue;
    std::array<std::uint64_t, kWords> words;
    for (int i = 0; i < kWords; ++i) words[i] = line.words[i].load(std::memory_order_acquire);
    if (line.version.load(std::memory_order_relaxed) != before) continue;
    BoardNote note;
    std::memcpy(static_cast<void*>(&note), words.data(), sizeof note);
    // Another process wrote this; whatever it put there, the texts end.
    note.operation[sizeof note.operation - 1] = note.group[sizeof note.group - 1] = '\0';
    return note;
  }
  return std::nullopt;
}

}  // namespace tutti
