#include <condition_variable>
#include <map>
#include <mutex>

#include "store/table.hpp"
#include "store/trust.hpp"
#include "tutti/store.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;

// Whoever waits is woken by its key alone: of a thousand threads that join, each waits for others' words.
class MemoryStore final : public store::TrustedStore {
 public:
  bool is_here() const override { return true; }

  Status set(const std::string& key, const std::string& value) override {
    if (Status status = store::check_value(key, value); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    table_.set(key, value);
    wake(key);
    return {};
  }

  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    std::unique_lock lock(mutex_);
    const auto wait = store::wait_deadline(Nanoseconds(0), timeout);
    const std::string* value = table_.find(key);
    if (!value) value = wait_for(lock, key, wait);
    if (!value) return store::missing_key(key, timeout);
    return *value;
  }

  Status wait(const std::string& key, milliseconds timeout) override {
    return get(key, timeout).status();
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    auto sum = table_.add(key, amount);
    wake(key);
    return sum;
  }

  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    if (Status status = store::check_value(key, desired); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    bool changed = false;
    auto held = table_.compare_set(key, expected, desired, changed);
    if (changed) wake(key);
    return held;
  }

  Result<bool> remove(const std::string& key) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return table_.remove(key);
  }

 private:
  struct Waiters {
    std::condition_variable changed;
    int count = 0;
  };

  const std::string* wait_for(std::unique_lock<std::mutex>& lock, const std::string& key,
                              Nanoseconds wait) {
    Waiters& here = waiters_[key];
    ++here.count;
    const std::string* value = nullptr;
    here.changed.wait_for(lock, wait, [&] { return (value = table_.find(key)) != nullptr; });
    if (--here.count == 0) waiters_.erase(key);
    return value;
  }
  void wake(const std::string& key) {
    if (const auto at = waiters_.find(key); at != waiters_.end()) at->second.changed.notify_all();
  }

  std::mutex mutex_;
  std::map<std::string, Waiters> waiters_;  // by key
  store::Table table_;
};

}  // namespace

inline namespace [[gnu::visibility("default")]] v1 {
std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }
}  // namespace v1

}  // namespace tutti
