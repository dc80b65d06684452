#include "support/fake_cuda/emulated.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "support/children.hpp"

namespace tutti::test {
namespace {

void report(std::vector<Failure> failures) {
  for (const Failure& failure : failures)
    ADD_FAILURE_AT(failure.file.c_str(), failure.line) << failure.text;
}

template <class Function>
Function* emulated_function(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace

// Beside the test program. Once it is loaded, whoever asks for "libcuda.so.1" is given it: that is its name.
void load_emulated_driver() {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string path = folder / "fake_cuda/libcuda.so.1";
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) ADD_FAILURE() << ::dlerror();
}

void on_emulated_gpus(const Environment& environment, int processes,
                      const std::function<void(int)>& body) {
  Children children(std::chrono::seconds(120), {});
  for (int which = 0; which < processes; ++which)
    children.fork({which}, [&] {
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      load_emulated_driver();
      body(which);
    });
  report(children.wait());
}

void on_emulated_gpu(const Environment& environment, const std::function<void()>& body) {
  on_emulated_gpus(environment, 1, [&](int) { body(); });
}

void without_driver(const std::function<void()>& body) {
  Children children(std::chrono::seconds(120), {});
  children.fork({0}, body);
  report(children.wait());
}

std::uint64_t allocate_pool(std::size_t bytes) {
  std::uint64_t address = 0;
  using Push = int(void*);
  using Retain = int(void**, int);
  void* context = nullptr;
  emulated_function<Retain>("cuDevicePrimaryCtxRetain")(&context, 0);
  emulated_function<Push>("cuCtxPushCurrent_v2")(context);
  emulated_function<int(std::uint64_t*, std::size_t)>("fake_cuda_allocate_pool")(&address, bytes);
  emulated_function<int(void**)>("cuCtxPopCurrent_v2")(&context);
  return address;
}

void lose_context() { emulated_function<void()>("fake_cuda_lose_context")(); }

}  // namespace tutti::test
