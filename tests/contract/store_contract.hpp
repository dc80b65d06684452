// contract/store_contract.hpp - what every Store promises. A new one enrols with a StoreKind in
// store_kinds.cpp; the tests are in store_contract.cpp.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "tutti/store.hpp"

namespace tutti::contract {

// One store that lives as long as this, and the ways into it.
class StoreSite {
 public:
  virtual ~StoreSite() = default;
  // A handle like another process's would be; all of them see the same keys.
  virtual std::shared_ptr<Store> join() = 0;
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StoreSite>()> make;
};

class StoreContract : public testing::TestWithParam<StoreKind> {
 protected:
  std::unique_ptr<StoreSite> site_ = GetParam().make();
  std::shared_ptr<Store> store_ = site_->join();
};

// Against hangs only: nothing that goes well takes this long.
inline constexpr std::chrono::milliseconds kLong{60'000};
// For waits that are meant to end.
inline constexpr std::chrono::milliseconds kShort{50};

}  // namespace tutti::contract
