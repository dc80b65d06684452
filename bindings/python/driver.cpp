#include "driver.hpp"

#include <dlfcn.h>

#include <map>
#include <string>

#include "failure.hpp"

namespace tutti_python {
namespace {

// The driver's binary interface; CUDA's headers need not be there to build this.
using Result = int;  // 0: success
using Address = unsigned long long;
using Stream = void*;
using Event = void*;
using Context = void*;

struct Driver {
  Result (*init)(unsigned) = nullptr;
  Result (*error_name)(Result, const char**) = nullptr;
  Result (*pointer_attributes)(unsigned, int*, void**, Address) = nullptr;
  Result (*address_range)(Address*, std::size_t*, Address) = nullptr;
  Result (*retain_context)(Context*, int) = nullptr;
  Result (*push_context)(Context) = nullptr;
  Result (*pop_context)(Context*) = nullptr;
  Result (*create_event)(Event*, unsigned) = nullptr;
  Result (*destroy_event)(Event) = nullptr;
  Result (*record)(Event, Stream) = nullptr;
  Result (*wait)(Stream, Event, unsigned) = nullptr;
  Result (*copy)(Address, Address, std::size_t, Stream) = nullptr;
};

[[noreturn]] void unsupported(const std::string& why) { raise(tutti::Code::unsupported, why); }

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr)
    unsupported(std::string("the CUDA driver is too old: it has no ") + name);
}

// Never unloaded: threads of its own may run in it until the end.
Driver load() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    const char* why = ::dlerror();
    unsupported(std::string("there is no CUDA driver: ") + (why != nullptr ? why : "libcuda.so.1"));
  }
  Driver driver;
  find(library, "cuInit", driver.init);
  find(library, "cuGetErrorName", driver.error_name);
  find(library, "cuPointerGetAttributes", driver.pointer_attributes);
  find(library, "cuMemGetAddressRange_v2", driver.address_range);
  find(library, "cuDevicePrimaryCtxRetain", driver.retain_context);
  find(library, "cuCtxPushCurrent_v2", driver.push_context);
  find(library, "cuCtxPopCurrent_v2", driver.pop_context);
  find(library, "cuEventCreate", driver.create_event);
  find(library, "cuEventDestroy_v2", driver.destroy_event);
  find(library, "cuEventRecord", driver.record);
  find(library, "cuStreamWaitEvent", driver.wait);
  find(library, "cuMemcpyAsync", driver.copy);
  return driver;
}

const Driver& driver() {
  static const Driver loaded = load();  // one that raises is tried again
  return loaded;
}

void check_call(Result result, const char* call) {
  if (result == 0) return;
  const char* name = nullptr;
  (void)driver().error_name(result, &name);
  raise(tutti::Code::io, std::string(call) + " failed: " +
                             (name != nullptr ? name : "error " + std::to_string(result)));
}

// The GPU's primary context, which tutti and all that sits on CUDA's runtime use; kept for good.
Context context_of(int gpu) {
  static auto& contexts = *new std::map<int, Context>;  // under the interpreter's lock
  const auto [place, is_new] = contexts.try_emplace(gpu, nullptr);
  if (is_new) {
    const Result result = driver().retain_context(&place->second, gpu);
    if (result != 0) contexts.erase(place);
    check_call(result, "cuDevicePrimaryCtxRetain");
  }
  return place->second;
}

// Makes the context of an address current in this thread for a while.
class In {
 public:
  explicit In(std::uintptr_t address) {
    check_call(driver().push_context(context_of(gpu_of(address))), "cuCtxPushCurrent");
  }
  ~In() {
    Context popped = nullptr;
    (void)driver().pop_context(&popped);
  }
  In(const In&) = delete;
};

Stream handle(std::uintptr_t stream) { return reinterpret_cast<Stream>(stream); }

}  // namespace

int gpu_of(std::uintptr_t address) {
  constexpr int kMemoryType = 2, kDeviceOrdinal = 9;  // of CUpointer_attribute
  constexpr unsigned kOnDevice = 2;                   // of CUmemorytype
  unsigned type = 0;
  int ordinal = -1;
  int attributes[] = {kMemoryType, kDeviceOrdinal};
  void* answers[] = {&type, &ordinal};
  check_call(driver().init(0), "cuInit");
  check_call(driver().pointer_attributes(2, attributes, answers, address),
             "cuPointerGetAttributes");
  if (type != kOnDevice || ordinal < 0)
    raise(tutti::Code::invalid_argument, "an array is said to be on a GPU, but is not");
  return ordinal;
}

std::uintptr_t allocation_of(std::uintptr_t address) {
  const In context(address);
  Address base = 0;
  std::size_t bytes = 0;
  check_call(driver().address_range(&base, &bytes, address), "cuMemGetAddressRange");
  return base;
}

void order_streams(std::uintptr_t other, std::uintptr_t stream, std::uintptr_t address) {
  if (other == stream) return;
  const In context(address);
  constexpr unsigned kWithoutTime = 2;
  Event reached = nullptr;
  check_call(driver().create_event(&reached, kWithoutTime), "cuEventCreate");
  Result result = driver().record(reached, handle(other));
  const char* call = "cuEventRecord";
  if (result == 0) {
    result = driver().wait(handle(stream), reached, 0);
    call = "cuStreamWaitEvent";
  }
  (void)driver().destroy_event(reached);  // the driver keeps it until it has happened
  check_call(result, call);
}

void copy_on_gpu(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, std::uintptr_t stream) {
  if (bytes == 0 || to == from) return;
  const In context(to);
  check_call(driver().copy(to, from, bytes, handle(stream)), "cuMemcpyAsync");
}

}  // namespace tutti_python
