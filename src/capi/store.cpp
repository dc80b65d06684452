// The rendezvous store and its server.

#include "capi/handles.hpp"

using namespace tutti;
using capi::give;
using capi::guard;
using capi::null_argument;
using std::chrono::milliseconds;

namespace {

// Runs `body` on the store behind the handle.
template <class Body>
tutti_status* with_store(tutti_store* store, const char* key, Body body) noexcept {
  return guard([&]() -> Status {
    if (store == nullptr) return null_argument("store");
    if (key == nullptr) return null_argument("key");
    return body(*store->store);
  });
}

Status hand_out(Result<std::shared_ptr<Store>> made, tutti_store** out) {
  if (!made.ok()) return made.status();
  give(out, *std::move(made));
  return Status();
}

}  // namespace

tutti_status* tutti_store_memory(tutti_store** store) {
  return guard([&]() -> Status {
    if (store == nullptr) return null_argument("store");
    return hand_out(make_memory_store(), store);
  });
}

tutti_status* tutti_store_file(const char* path, tutti_store** store) {
  return guard([&]() -> Status {
    if (path == nullptr || store == nullptr) return null_argument("path or store");
    return hand_out(open_file_store(path), store);
  });
}

tutti_status* tutti_store_connect(const char* address, const void* secret, size_t secret_bytes,
                                  int64_t timeout_ms, tutti_store** store) {
  return guard([&]() -> Status {
    if (address == nullptr || store == nullptr) return null_argument("address or store");
    const capi::CallersSecret proof(secret, secret_bytes);
    return hand_out(connect_store(address, proof.text(), milliseconds(timeout_ms)), store);
  });
}

tutti_status* tutti_store_prefix(const char* prefix, tutti_store* inner, tutti_store** store) {
  return guard([&]() -> Status {
    if (inner == nullptr || store == nullptr) return null_argument("inner or store");
    return hand_out(make_prefix_store(capi::text_or_empty(prefix), inner->store), store);
  });
}

void tutti_store_free(tutti_store* store) { delete store; }

tutti_status* tutti_store_set(tutti_store* store, const char* key, const void* value,
                              size_t bytes) {
  return with_store(store, key,
                    [&](Store& inner) { return inner.set(key, capi::bytes_of(value, bytes)); });
}

tutti_status* tutti_store_get(tutti_store* store, const char* key, int64_t timeout_ms, void* value,
                              size_t capacity, size_t* bytes) {
  return with_store(store, key, [&](Store& inner) -> Status {
    auto found = inner.get(key, milliseconds(timeout_ms));
    if (!found.ok()) return found.status();
    if (bytes != nullptr) *bytes = found->size();
    if (found->size() > capacity) {
      return Status(Code::invalid_argument, "the value of key '" + std::string(key) + "' has " +
                                                std::to_string(found->size()) +
                                                " bytes, the buffer " + std::to_string(capacity) +
                                                "; call again with room for it");
    }
    if (!found->empty()) std::memcpy(value, found->data(), found->size());
    return Status();
  });
}

tutti_status* tutti_store_wait(tutti_store* store, const char* key, int64_t timeout_ms) {
  return with_store(store, key,
                    [&](Store& inner) { return inner.wait(key, milliseconds(timeout_ms)); });
}

tutti_status* tutti_store_add(tutti_store* store, const char* key, int64_t amount, int64_t* sum) {
  return with_store(store, key, [&](Store& inner) {
    auto result = inner.add(key, amount);
    if (result.ok() && sum != nullptr) *sum = *result;
    return result.status();
  });
}

tutti_status* tutti_store_compare_set(tutti_store* store, const char* key, const char* expected,
                                      const char* desired, int* swapped) {
  return with_store(store, key, [&](Store& inner) {
    const std::string wanted = capi::text_or_empty(desired);
    auto held = inner.compare_set(key, capi::text_or_empty(expected), wanted);
    if (held.ok() && swapped != nullptr) *swapped = *held == wanted ? 1 : 0;
    return held.status();
  });
}

tutti_status* tutti_store_remove(tutti_store* store, const char* key, int* was_there) {
  return with_store(store, key, [&](Store& inner) {
    auto removed = inner.remove(key);
    if (removed.ok() && was_there != nullptr) *was_there = *removed ? 1 : 0;
    return removed.status();
  });
}

tutti_status* tutti_store_server_listen(const char* address, const void* secret,
                                        size_t secret_bytes, tutti_store_server** server) {
  return guard([&]() -> Status {
    if (address == nullptr || server == nullptr) return null_argument("address or server");
    const capi::CallersSecret proof(secret, secret_bytes);
    auto made = StoreServer::listen(address, proof.text());
    if (!made.ok()) return made.status();
    std::string bound = (*made)->address();
    *server = new tutti_store_server{*std::move(made), std::move(bound)};
    return Status();
  });
}

const char* tutti_store_server_address(const tutti_store_server* server) {
  return server == nullptr ? "" : server->address.c_str();
}

void tutti_store_server_free(tutti_store_server* server) { delete server; }
