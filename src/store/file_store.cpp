// A store in one append-only file: every change is a record at its end, written under flock(2).
//
// A process keeps its own Table and reads only what was appended since it last looked. A record
// that is cut off was left by a process that died while writing; whoever next holds the lock cuts
// it away.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>

#include "core/files.hpp"
#include "core/process_hooks.hpp"
#include "core/sockets.hpp"
#include "store/protocol.hpp"
#include "store/table.hpp"
#include "store/trust.hpp"
#include "tutti/store.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using store::RequestKind;
using store::StoreRequest;

constexpr std::string_view kMagic = "tutti store 1\n";
// How long calls that have no deadline of their own wait for the lock; it is held for microseconds.
constexpr std::chrono::seconds kLockTimeout{30};
// And how long one waits whose deadline is shorter: of a key that is there nobody says it is not, only
// because others were at it.
constexpr milliseconds kLeastLockWait{200};
constexpr milliseconds kShortestNap{1};
constexpr milliseconds kLongestNap{20};

// Sleeps a little longer each time, never beyond the deadline. False when that has passed.
class Naps {
 public:
  explicit Naps(Nanoseconds deadline) : deadline_(deadline) {}
  bool nap() {
    const Nanoseconds now = steady_clock().now();
    if (now >= deadline_) return false;
    std::this_thread::sleep_for(std::min<Nanoseconds>(nap_, deadline_ - now));
    nap_ = std::min(2 * nap_, kLongestNap);
    return true;
  }

 private:
  Nanoseconds deadline_;
  milliseconds nap_ = kShortestNap;
};

class FileStore final : public store::TrustedStore {
 public:
  FileStore(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  Status set(const std::string& key, const std::string& value) override {
    if (Status status = store::check_value(key, value); !status.ok()) return status;
    return locked([&]() -> Status {
      if (Status status = append(RequestKind::set, key, value); !status.ok()) return status;
      table_.set(key, value);
      return {};
    });
  }

  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    const Nanoseconds deadline = store::wait_deadline(steady_clock().now(), timeout);
    Naps naps(deadline);
    do {
      std::string value;
      bool found = false;
      const Nanoseconds lock_deadline = std::max(deadline, steady_clock().now() + kLeastLockWait);
      Status status = locked(lock_deadline, [&]() -> Status {
        const std::string* held = table_.find(key);
        found = held != nullptr;
        if (held) value = *held;
        return {};
      });
      if (!status.ok()) return status;
      if (found) return value;
    } while (naps.nap());
    return store::missing_key(key, timeout);
  }

  Status wait(const std::string& key, milliseconds timeout) override {
    return get(key, timeout).status();
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    std::int64_t sum = 0;
    Status status = locked([&]() -> Status {
      auto added = table_.add(key, amount);
      if (!added.ok()) return added.status();
      sum = *added;
      return append(RequestKind::set, key, std::to_string(sum));
    });
    if (!status.ok()) return status;
    return sum;
  }

  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    if (Status status = store::check_value(key, desired); !status.ok()) return status;
    std::string held;
    Status status = locked([&]() -> Status {
      bool changed = false;
      held = table_.compare_set(key, expected, desired, changed);
      return changed ? append(RequestKind::set, key, desired) : Status();
    });
    if (!status.ok()) return status;
    return held;
  }

  Result<bool> remove(const std::string& key) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    bool removed = false;
    Status status = locked([&]() -> Status {
      removed = table_.remove(key);
      return removed ? append(RequestKind::remove, key, "") : Status();
    });
    if (!status.ok()) return status;
    return removed;
  }

  // Writes the head of a new file, or checks that of an old one.
  Status open() {
    return locked([] { return Status(); });
  }

 private:
  template <class Body>
  Status locked(const Body& body) {
    return locked(steady_clock().now() + kLockTimeout, body);
  }

  // Runs `body` on an up-to-date table while no other process or thread changes the file.
  template <class Body>
  Status locked(Nanoseconds deadline, const Body& body) {
    // flock(2) belongs to the open file, which a child shares: it would not keep the two apart.
    if (fork_guard_.crossed())
      return Status(Code::unsupported,
                    path_ + " was opened before fork(); open it anew in the child");
    const std::unique_lock threads(mutex_, deadline - steady_clock().now());
    if (!threads) return stays_locked();
    if (!failure_.ok()) return failure_;
    Naps naps(deadline);
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return errno_status("cannot lock " + path_);
      if (!naps.nap()) return stays_locked();
    }
    Status status = catch_up();
    if (status.ok()) status = body();
    ::flock(file_.get(), LOCK_UN);
    // The table may know what the file does not: it must not be used again.
    if (status.code() == Code::io || status.code() == Code::corrupt) failure_ = status;
    return status;
  }

  Status stays_locked() const {
    return {Code::timed_out, path_ + " stays locked by another process; is one stopped?"};
  }

  Status catch_up() {
    struct stat info {};
    if (::fstat(file_.get(), &info) != 0) return errno_status("cannot look at " + path_);
    if (info.st_nlink == 0) return Status(Code::io, path_ + " was deleted under the store");
    if (info.st_size < end_)
      return Status(Code::corrupt, path_ + " became shorter; who changed it?");
    std::string fresh(static_cast<std::size_t>(info.st_size - end_), '\0');
    if (::pread(file_.get(), fresh.data(), fresh.size(), end_) !=
        static_cast<ssize_t>(fresh.size()))
      return errno_status("cannot read " + path_);
    std::string_view rest = fresh;
    if (end_ == 0) {
      if (Status status = check_head(rest); !status.ok()) return status;
    }
    return replay(rest);
  }

  Status check_head(std::string_view& rest) {
    if (rest.size() < kMagic.size() && kMagic.starts_with(rest)) {
      rest = {};
      return write_at_end(kMagic);
    }
    if (!rest.starts_with(kMagic))
      return Status(Code::corrupt, path_ + " is not a store's file; name one that does not exist");
    rest.remove_prefix(kMagic.size());
    end_ = static_cast<off_t>(kMagic.size());
    return {};
  }

  Status replay(std::string_view rest) {
    while (rest.size() >= store::kLengthBytes) {
      auto length = store::frame_length(rest.substr(0, store::kLengthBytes));
      if (!length.ok()) return length.status().annotate(path_);
      if (rest.size() < store::kLengthBytes + *length) break;
      auto record = StoreRequest::decode(rest.substr(store::kLengthBytes, *length));
      if (!record.ok()) return record.status().annotate(path_);
      if (record->kind == RequestKind::remove)
        (void)table_.remove(record->key);
      else
        table_.set(record->key, record->value);
      rest.remove_prefix(store::kLengthBytes + *length);
      end_ += static_cast<off_t>(store::kLengthBytes + *length);
    }
    if (!rest.empty() && ::ftruncate(file_.get(), end_) != 0)
      return errno_status("cannot cut the torn end off " + path_);
    return {};
  }

  Status append(RequestKind kind, const std::string& key, const std::string& value) {
    return write_at_end(StoreRequest{kind, 0, key, value, {}}.encode());
  }

  Status write_at_end(std::string_view bytes) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), end_);
    if (written != static_cast<ssize_t>(bytes.size())) {
      Status status = written < 0 ? errno_status("cannot write " + path_)
                                  : Status(Code::io, path_ + ": the disk is full");
      // What did get there is cut away by the next one to look, should this fail too.
      [[maybe_unused]] const int cut = ::ftruncate(file_.get(), end_);
      return status;
    }
    end_ += written;
    return {};
  }

  const std::string path_;
  const Descriptor file_;
  const ForkGuard fork_guard_;
  std::timed_mutex mutex_;
  store::Table table_;
  off_t end_ = 0;  // the table knows everything before this
  Status failure_;
};

// Whoever can write the folder can put another file in this one's place, unless it is sticky.
Status check_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return errno_status("cannot look at folder " + folder);
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return {
        Code::invalid_argument,
        fmt::format("folder {} of a store's file belongs to user {}, who could put another file "
                    "there; use a folder of your own",
                    folder, info.st_uid)};
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (info.st_mode & S_ISVTX) == 0)
    return {Code::invalid_argument,
            fmt::format("others can write folder {} (mode {:04o}), and so put another file in the "
                        "place of a store's; run: chmod go-w {}",
                        folder, info.st_mode & 07777, folder)};
  return {};
}

}  // namespace

inline namespace [[gnu::visibility("default")]] v1 {

Result<std::shared_ptr<Store>> open_file_store(const std::string& path) {
  if (Status status = check_folder(path); !status.ok()) return status;
  // O_NONBLOCK: a FIFO, which is then refused, must not make us wait.
  Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file && errno == ELOOP)
    return Status(Code::invalid_argument,
                  "store file " + path + " is a symbolic link; name the file itself");
  if (!file) return errno_status("cannot open store file " + path);
  if (Status status = check_private_file(file.get(), "store file", path); !status.ok())
    return status;
  auto opened = std::make_shared<FileStore>(path, std::move(file));
  if (Status status = opened->open(); !status.ok()) return status;
  return std::shared_ptr<Store>(std::move(opened));
}

}  // namespace v1
}  // namespace tutti
