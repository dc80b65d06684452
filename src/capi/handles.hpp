// capi/handles.hpp - what the C API's opaque handles hold, and how C values become C++ ones.
//
// Failure        every entry point runs its body inside guard() or start_guarded(): no exception
//                gets out, and a body that throws is answered with a status like any other failure.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tutti/tutti.h"
#include "tutti/tutti.hpp"

struct tutti_status {
  tutti::Status status;
};
struct tutti_work {
  tutti::Work work;
};
struct tutti_group {
  std::shared_ptr<tutti::Group> group;
};
struct tutti_memory {
  tutti::SymmetricMemory memory;
};
struct tutti_pool {
  tutti::SymmetricPool pool;
};
struct tutti_store {
  std::shared_ptr<tutti::Store> store;
};
struct tutti_store_server {
  std::unique_ptr<tutti::StoreServer> server;
  std::string address;
};
struct tutti_user_reduction {
  tutti::UserReduction reduction;  // its context is this object, see calls.cpp
  tutti_reduce_function function;
  void* context;
};

namespace tutti::capi {

// What is handed out when there is no memory left to say anything else; tutti_status_free knows it.
tutti_status* no_memory() noexcept;

// A null pointer when ok.
tutti_status* give(Status status) noexcept;

// Puts a handle around `value`.
template <class Handle, class Value>
void give(Handle** out, Value value) {
  *out = new Handle{std::move(value)};
}

// Runs `body`, which returns a Status.
template <class Body>
tutti_status* guard(Body body) noexcept {
  try {
    return give(body());
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::exception& error) {
    return give(Status(Code::internal, error.what()));
  } catch (...) {
    return give(Status(Code::internal, "an unknown exception was thrown"));
  }
}

// Runs `body`, which returns a Work; null only when there is no memory for the handle itself.
template <class Body>
tutti_work* start_guarded(Body body) noexcept {
  auto* handle = new (std::nothrow) tutti_work;
  if (handle == nullptr) return nullptr;
  tutti_status* failure = guard([&] {
    handle->work = body();
    return Status();
  });
  if (failure != nullptr) {
    handle->work = Work::finished(failure->status);
    tutti_status_free(failure);
  }
  return handle;
}

inline Status null_argument(const char* what) {
  return Status(Code::invalid_argument,
                std::string(what) + " is a null pointer; pass one that points somewhere");
}

// Every struct begins with its size; one that was never filled in is the caller's mistake.
template <class Struct>
Status check_size(const Struct* given, const char* name) {
  if (given == nullptr) return null_argument(name);
  if (given->size > sizeof(std::size_t)) return Status();
  return Status(Code::invalid_argument, std::string(name) + ".size is " +
                                            std::to_string(given->size) +
                                            "; start from the matching TUTTI_..._INIT");
}

// Reads such a struct into `to`, which holds the defaults: a newer program's extra members are left
// alone, and members that an older program does not know keep their defaults.
template <class Struct>
Status take(const Struct* from, const char* name, Struct* to) {
  if (Status status = check_size(from, name); !status.ok()) return status;
  std::memcpy(to, from, std::min(from->size, sizeof(Struct)));
  to->size = sizeof(Struct);
  return Status();
}

// The other way: writes no more than the caller's struct has room for.
template <class Struct>
Status fill(Struct from, const char* name, Struct* to) {
  if (Status status = check_size(to, name); !status.ok()) return status;
  from.size = to->size;
  std::memcpy(to, &from, std::min(to->size, sizeof(Struct)));
  return Status();
}

inline tutti_received received_of(const Received& from) {
  return {sizeof(tutti_received), from.source, from.tag, from.bytes};
}

// Whether a C enumerator has a C++ one; `values` is how many there are.
inline Status check_enum(int value, int values, const char* what) {
  if (value >= 0 && value < values) return Status();
  return Status(Code::invalid_argument,
                std::string(what) + " " + std::to_string(value) + " is none of tutti.h's");
}

inline std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

inline std::string bytes_of(const void* data, std::size_t bytes) {
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), bytes);
}

// A secret from the caller, which leaves no copy behind.
class CallersSecret {
 public:
  CallersSecret(const void* data, std::size_t bytes) : bytes_(bytes_of(data, bytes)) {}
  ~CallersSecret() { ::explicit_bzero(bytes_.data(), bytes_.size()); }
  CallersSecret(const CallersSecret&) = delete;
  CallersSecret& operator=(const CallersSecret&) = delete;
  const std::string& text() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace tutti::capi
