#include "group/host_store.hpp"

#include <fmt/format.h>

namespace tutti::group {
namespace {

using std::chrono::milliseconds;

// Between a leader's name and its first answer lies no more than the start of a thread.
constexpr milliseconds kFindPatience{5000};
constexpr const char* kEntered = "entered";

std::string left_key(std::int64_t number) { return fmt::format("left/{}", number); }

}  // namespace

HostStore HostStore::find(std::string_view epoch, const Secret& secret) {
  std::string name = "@tutti-host-";
  for (const char byte : epoch) name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  HostStore found;
  if (auto server = StoreServer::listen(name, secret.text()); server.ok()) {
    found.server = *std::move(server);
    found.leads = true;
  }
  auto store = connect_store(name, secret.text(), kFindPatience);
  if (!store.ok()) return {};
  found.store = *std::move(store);
  return found;
}

void HostStore::enter() {
  if (!store || leads) return;
  const auto number = store->add(kEntered, 1);
  if (number.ok())
    number_ = *number;
  else
    store = nullptr;
}

void HostStore::leave(milliseconds patience, const Clock& clock) {
  if (!store) return;
  if (!leads) {
    (void)store->set(left_key(number_), "");
    return store.reset();
  }
  const Nanoseconds until = deadline_after(clock.now(), patience);
  const auto entered = store->add(kEntered, 0);
  for (std::int64_t number = 1; entered.ok() && number <= *entered; ++number) {
    const auto left = std::chrono::ceil<milliseconds>(until - clock.now());
    if (left.count() <= 0 || !store->wait(left_key(number), left).ok()) break;
  }
  store.reset();
  server.reset();
}

}  // namespace tutti::group
