// tutti/store.hpp - the small key-value store in which ranks meet before they have links.
//
// Values are byte strings. Every call that waits has a deadline and ends with Code::timed_out
// naming the key. Keys and values are bounded (kMaxKeyBytes, kMaxValueBytes).
//
// Thread-safety  any thread may call any method, several at once.
// Failure        a store that lost its server answers Code::io to everything from then on.
//
//   auto store = tutti::make_memory_store();
//   store->set("greeting", "hello");
//   auto value = store->get("greeting", std::chrono::seconds(5));   // waits until it is set
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "tutti/status.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

class Store {
 public:
  static constexpr std::size_t kMaxKeyBytes = 4096;
  static constexpr std::size_t kMaxValueBytes = 16 << 20;

  virtual ~Store() = default;

  // Sets or replaces.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  // Waits until `key` is there, then returns its value.
  virtual Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Waits until `key` is there.
  virtual Status wait(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to a decimal counter (absent counts as 0) and returns the sum.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t amount) = 0;
  // Sets `key` to `desired` if it holds `expected` (absent counts as empty); returns what it holds
  // after that.
  virtual Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) = 0;
  // Removes; true if it was there. An absent key is not an error.
  virtual Result<bool> remove(const std::string& key) = 0;
};

// For ranks that are threads of one process.
std::shared_ptr<Store> make_memory_store();

// For processes that see one file system; `path` is created if need be and not deleted.
Result<std::shared_ptr<Store>> open_file_store(const std::string& path);

// A client of the server at `address` ("host:port", "[v6]:port", or "@name" for an abstract Unix
// socket). `secret` is the job's, of at least 16 bytes; the server proves that it knows it too. It may
// be empty at a Unix socket, where the kernel tells both sides that the other is of the same user.
// `epoch`, where it is not 0, must be the server's. Keeps trying to connect until `timeout`.
Result<std::shared_ptr<Store>> connect_store(const std::string& address, const std::string& secret,
                                             std::chrono::milliseconds timeout,
                                             std::uint64_t epoch = 0);

// `inner` with `prefix` put before every key.
std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> inner);

// A server that lives in this process, in a thread of its own, until it is destroyed.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  virtual std::string address() const = 0;  // what connect_store takes

  // Listens at `address` (port 0: any free one). Clients of another job, or of another epoch of this
  // one, are turned away where they and `epoch` say so. `secret` is as for connect_store.
  static Result<std::unique_ptr<StoreServer>> listen(const std::string& address,
                                                     const std::string& secret,
                                                     std::uint64_t epoch = 0);
  // Serves on a socket that listens already; takes it over.
  static Result<std::unique_ptr<StoreServer>> adopt(int listening_socket, const std::string& secret,
                                                    std::uint64_t epoch = 0);
};

}  // namespace v1
}  // namespace tutti
