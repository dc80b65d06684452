#include "group/host_store.hpp"

#include <fmt/format.h>

#include "transport/listeners.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;

// Between a leader's name and its first answer lies no more than the start of a thread.
constexpr milliseconds kFindPatience{5000};
// A host that cannot be reached for so long is behind a firewall, or gone: the store is asked.
constexpr milliseconds kReachPatience{2000};
constexpr int kBacklog = kBranches * 4;
constexpr const char* kEntered = "entered";

std::string left_key(std::int64_t number) { return fmt::format("left/{}", number); }

// This rank comes to those who ask there; 0 if it cannot.
std::int64_t enter_at(Store& store) {
  const auto number = store.add(kEntered, 1);
  return number.ok() ? *number : 0;
}

// Until all who came have left again.
void wait_for_all_to_leave(Store& store, Nanoseconds until, const Clock& clock) {
  const auto entered = store.add(kEntered, 0);
  for (std::int64_t number = 1; entered.ok() && number <= *entered; ++number) {
    const auto left = std::chrono::ceil<milliseconds>(until - clock.now());
    if (left.count() <= 0 || !store.wait(left_key(number), left).ok()) return;
  }
}

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
  number_ = enter_at(*store);
  if (number_ == 0) store = nullptr;
}

void HostStore::climb(std::shared_ptr<Store> door_above) {
  number_above_ = enter_at(*door_above);
  if (number_above_ != 0) above = std::move(door_above);
}

void HostStore::hand_on(const std::string& name, const std::string& value) {
  if (!leads) return;
  (void)store->set(name, value);
  if (door.store) (void)door.store->set(name, value);
}

void HostStore::leave(milliseconds patience, const Clock& clock) {
  if (above) (void)above->set(left_key(number_above_), "");
  above.reset();
  if (!store) return;
  if (!leads) {
    (void)store->set(left_key(number_), "");
    return store.reset();
  }
  const Nanoseconds until = deadline_after(clock.now(), patience);
  wait_for_all_to_leave(*store, until, clock);
  if (door.store) wait_for_all_to_leave(*door.store, until, clock);
  store.reset();
  server.reset();
  door = {};
}

HostDoors HostDoors::of_network(const Config& config, const Secret& secret) {
  HostDoors doors;
  doors.reach = [secret](const std::string& address) {
    return connect_store(address, secret.text(), kReachPatience);
  };
  doors.open = [config, secret]() -> Result<HostDoor> {
    auto listeners = transport::TcpListeners::open(config, kBacklog);
    if (!listeners.ok()) return listeners.status();
    if (!listeners->outward) return Status(Code::unsupported, "no network to other hosts");
    auto server = StoreServer::adopt(listeners->outward.release(), secret.text());
    if (!server.ok()) return server.status();
    auto store = connect_store((*server)->address(), secret.text(), kReachPatience);
    if (!store.ok()) return store.status();
    return HostDoor{(*server)->address(), *std::move(store), *std::move(server)};
  };
  return doors;
}

}  // namespace tutti::group
