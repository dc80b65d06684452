#include "store.hpp"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti_torch {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

class TorchStore : public tutti::Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  tutti::Status set(const std::string& key, const std::string& value) override {
    return guarded("set", key, [&] { store_->set(key, bytes_of(value)); }).status();
  }

  tutti::Result<std::string> get(const std::string& key, milliseconds timeout) override {
    if (tutti::Status status = wait(key, timeout); !status.ok()) return status;
    Bytes value;
    auto got = guarded("get", key, [&] { value = store_->get(key); });
    if (!got.ok()) return got.status();
    return std::string(value.begin(), value.end());
  }

  // In short pieces: another thread of this process may have to set what this one waits for, and
  // stores do not agree on which exception says that time is up.
  tutti::Status wait(const std::string& key, milliseconds timeout) override {
    const auto start = std::chrono::steady_clock::now();
    auto pause = std::chrono::microseconds(50);
    for (;;) {
      bool there = false;
      auto checked = guarded("check", key, [&] { there = store_->check({key}); });
      if (!checked.ok()) return checked.status();
      if (there) return {};
      if (std::chrono::steady_clock::now() - start >= timeout)
        return tutti::Status(tutti::Code::timed_out, "nobody set '" + key +
                                                         "' in torch's store within " +
                                                         std::to_string(timeout.count()) + " ms");
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(5000));
    }
  }

  tutti::Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    std::int64_t sum = 0;
    auto added = guarded("add", key, [&] { sum = store_->add(key, amount); });
    if (!added.ok()) return added.status();
    return sum;
  }

  tutti::Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                         const std::string& desired) override {
    Bytes held;
    auto set = guarded("compare_set", key, [&] {
      held = store_->compareSet(key, bytes_of(expected), bytes_of(desired));
    });
    if (!set.ok()) return set.status();
    return std::string(held.begin(), held.end());
  }

  tutti::Result<bool> remove(const std::string& key) override {
    bool removed = false;
    auto done = guarded("remove", key, [&] { removed = store_->deleteKey(key); });
    if (!done.ok()) return done.status();
    return removed;
  }

 private:
  template <class Function>
  tutti::Result<bool> guarded(const char* what, const std::string& key, Function&& function) {
    try {
      std::scoped_lock lock(mutex_);
      function();
      return true;
    } catch (const std::exception& error) {
      return tutti::Status(tutti::Code::io, std::string("torch's store: ") + what + " of '" + key +
                                                "' failed: " + error.what());
    }
  }

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<tutti::Store> adapt(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<TorchStore>(std::move(store));
}

}  // namespace tutti_torch
