#include "store/table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/words.hpp"
#include "tutti/store.hpp"

namespace tutti::store {
namespace {

// Long keys are shown by their beginning.
std::string quoted(const std::string& key) {
  constexpr std::size_t kShown = 80;
  return key.size() <= kShown ? fmt::format("'{}'", key)
                              : fmt::format("'{}…'", key.substr(0, kShown));
}

}  // namespace

Status check_key(const std::string& key) {
  if (key.empty()) return Status(Code::invalid_argument, "a store's key must not be empty");
  if (key.size() <= Store::kMaxKeyBytes) return {};
  return Status(Code::invalid_argument, fmt::format("key {} has {} bytes; a store takes at most {}",
                                                    quoted(key), key.size(), Store::kMaxKeyBytes));
}

Status check_value(const std::string& key, const std::string& value) {
  if (Status status = check_key(key); !status.ok()) return status;
  if (value.size() <= Store::kMaxValueBytes) return {};
  return Status(Code::invalid_argument,
                fmt::format("the value of key {} has {} bytes; a store takes at most {}",
                            quoted(key), value.size(), Store::kMaxValueBytes));
}

Status missing_key(const std::string& key, std::chrono::milliseconds timeout) {
  return Status(Code::timed_out,
                fmt::format("nobody set key {} in the store within {} ms", quoted(key),
                            std::max<std::int64_t>(timeout.count(), 0)));
}

Nanoseconds wait_deadline(Nanoseconds now, std::chrono::milliseconds timeout) {
  // A year: beyond every wait, and far from overflow.
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 365);
  return now + std::clamp(timeout, std::chrono::milliseconds(0), kMost);
}

const std::string* Table::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<std::int64_t> Table::add(const std::string& key, std::int64_t amount) {
  std::int64_t sum = 0;
  if (const std::string* value = find(key)) {
    auto number = parse_integer(*value);
    if (!number.ok()) return number.status().annotate("add to key " + quoted(key));
    sum = *number;
  }
  if (__builtin_add_overflow(sum, amount, &sum))
    return Status(Code::invalid_argument,
                  "add to key " + quoted(key) + ": the sum is out of range");
  values_[key] = std::to_string(sum);
  return sum;
}

std::string Table::compare_set(const std::string& key, const std::string& expected,
                               const std::string& desired, bool& changed) {
  const std::string* found = find(key);
  changed = found ? *found == expected : expected.empty();
  if (!changed) return found ? *found : std::string();
  values_[key] = desired;
  return desired;
}

}  // namespace tutti::store
