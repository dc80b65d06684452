#include "cuda/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <atomic>

#include "cuda/failure.hpp"

namespace tutti::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

enum class Need { needed, optional };

// The name of the first function that is needed and missing; null: none.
const char* find_functions(void* library, CudaDriver& driver) {
  const char* missing = nullptr;
#define TUTTI_DRIVER_CALL(symbol, need)                                             \
  driver.symbol = reinterpret_cast<decltype(&::symbol)>(::dlsym(library, #symbol)); \
  if (driver.symbol == nullptr && Need::need == Need::needed && missing == nullptr) \
    missing = #symbol;
#include "cuda/driver.def"
#undef TUTTI_DRIVER_CALL
  return missing;
}

struct Loaded {
  CudaDriver driver;
  Status status;
};

// The library stays loaded for good: threads of its own may run in it until the end.
Loaded load(int flags) {
  Loaded loaded;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | flags);
  if (library == nullptr) {
    const char* why = ::dlerror();
    loaded.status =
        Status(Code::unsupported, fmt::format("there is no CUDA driver: {}", why ? why : kLibrary));
  } else if (const char* missing = find_functions(library, loaded.driver)) {
    loaded.status =
        Status(Code::unsupported,
               fmt::format("the CUDA driver is too old: {} has no {}", kLibrary, missing));
  }
  return loaded;
}

Loaded load_and_initialise() {
  Loaded loaded = load(0);
  if (!loaded.status.ok()) return loaded;
  const CUresult result = loaded.driver.cuInit(0);
  if (result != CUDA_SUCCESS)
    loaded.status = Status(Code::unsupported, describe(loaded.driver, result, "cuInit"));
  return loaded;
}

// How many libraries this process has ever loaded. Asking takes 14 ns; looking for one that is not there
// takes 14 µs, because it is looked for on disk (2 vCPU Xeon, 2026-11-17).
unsigned long long loads_so_far() {
  unsigned long long loads = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* answer) {
        *static_cast<unsigned long long*>(answer) = info->dlpi_adds;
        return 1;  // all of them say the same
      },
      &loads);
  return loads;
}

}  // namespace

Result<const CudaDriver*> driver() {
  static const Loaded kLoaded = load_and_initialise();
  if (!kLoaded.status.ok()) return kLoaded.status;
  return &kLoaded.driver;
}

const CudaDriver* loaded_driver() {
  static std::atomic<bool> found{false};
  static std::atomic<unsigned long long> looked{0};  // how much was loaded when it was looked for
  if (!found.load(std::memory_order_relaxed)) {
    const unsigned long long loads = loads_so_far();
    if (looked.load(std::memory_order_relaxed) == loads) return nullptr;
    if (::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD) == nullptr) {
      looked.store(loads, std::memory_order_relaxed);
      return nullptr;
    }
    found.store(true, std::memory_order_relaxed);
  }
  static const Loaded kLoaded = load(RTLD_NOLOAD);
  return kLoaded.status.ok() ? &kLoaded.driver : nullptr;
}

}  // namespace tutti::cuda
