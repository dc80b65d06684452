#include <condition_variable>
#include <mutex>

#include "store/table.hpp"
#include "store/trust.hpp"
#include "tutti/store.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;

class MemoryStore final : public store::TrustedStore {
 public:
  Status set(const std::string& key, const std::string& value) override {
    if (Status status = store::check_value(key, value); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    table_.set(key, value);
    changed_.notify_all();
    return {};
  }

  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    std::unique_lock lock(mutex_);
    const auto wait = store::wait_deadline(Nanoseconds(0), timeout);
    const std::string* value = nullptr;
    changed_.wait_for(lock, wait, [&] { return (value = table_.find(key)) != nullptr; });
    if (!value) return store::missing_key(key, timeout);
    return *value;
  }

  Status wait(const std::string& key, milliseconds timeout) override {
    return get(key, timeout).status();
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    return table_.add(key, amount);
  }

  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    if (Status status = store::check_value(key, desired); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    bool changed = false;
    return table_.compare_set(key, expected, desired, changed);
  }

  Result<bool> remove(const std::string& key) override {
    if (Status status = store::check_key(key); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return table_.remove(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  store::Table table_;
};

}  // namespace

inline namespace [[gnu::visibility("default")]] v1 {
std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }
}  // namespace v1

}  // namespace tutti
