// store/table.hpp - what every store is behind its locks and sockets: a map and its rules.
//
// Thread-safety  none; the owner brings the lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "core/clock.hpp"
#include "tutti/status.hpp"

namespace tutti::store {

// Code::invalid_argument for what is over the bounds of tutti/store.hpp, or an empty key.
Status check_key(const std::string& key);
Status check_value(const std::string& key, const std::string& value);

// Code::timed_out naming the key.
Status missing_key(const std::string& key, std::chrono::milliseconds timeout);
// The moment at which a wait that starts `now` ends; negative times count as 0.
Nanoseconds wait_deadline(Nanoseconds now, std::chrono::milliseconds timeout);

class Table {
 public:
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  // Null when absent; valid until the next change.
  const std::string* find(const std::string& key) const;
  // Code::invalid_argument when the value is no decimal number or the sum does not fit.
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  // What the key holds afterwards; `changed` says whether it was set.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, bool& changed);
  bool remove(const std::string& key) { return values_.erase(key) > 0; }

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace tutti::store
