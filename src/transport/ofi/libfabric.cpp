#include "transport/ofi/libfabric.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tutti::transport::ofi {
namespace {

constexpr const char* kLibrary = "libfabric.so.1";
constexpr std::uint32_t kLeastVersion = FI_VERSION(1, 14);

struct Loaded {
  Libfabric functions;
  Status status;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// It stays loaded for good: threads of its own may run in it until the end.
Loaded load() {
  Loaded loaded;
  void* const library = ::dlopen(kLibrary, RTLD_NOW);
  if (library == nullptr) {
    const char* why = ::dlerror();
    loaded.status =
        Status(Code::unsupported, fmt::format("there is no libfabric: {}", why ? why : kLibrary));
    return loaded;
  }
  Libfabric& all = loaded.functions;
  const bool whole =
      find(library, "fi_getinfo", all.getinfo) && find(library, "fi_freeinfo", all.freeinfo) &&
      find(library, "fi_dupinfo", all.dupinfo) && find(library, "fi_fabric", all.fabric) &&
      find(library, "fi_strerror", all.strerror) && find(library, "fi_version", all.version);
  if (!whole || all.version() < kLeastVersion)
    loaded.status = Status(Code::unsupported, "this machine's libfabric is older than 1.14");
  return loaded;
}

const Loaded& loaded() {
  static const Loaded kLoaded = load();
  return kLoaded;
}

}  // namespace

Result<const Libfabric*> libfabric() {
  if (!loaded().status.ok()) return loaded().status;
  return &loaded().functions;
}

Status failure(const char* what, long result) {
  return {Code::io,
          fmt::format("{}: {}", what, loaded().functions.strerror(static_cast<int>(-result)))};
}

}  // namespace tutti::transport::ofi
