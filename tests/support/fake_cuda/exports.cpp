// Every function that tutti asks of the driver: the library does not link where one is missing.
#include "support/fake_cuda/fake.hpp"

extern "C" {
#define TUTTI_DRIVER_CALL(symbol, need) reinterpret_cast<void*>(&::symbol),
[[gnu::visibility("default")]] void* fake_cuda_functions[] = {
#include "cuda/driver.def"
#include "support/fake_cuda/graph.def"
};
#undef TUTTI_DRIVER_CALL

// From here on as after a kernel's illegal access.
[[gnu::visibility("default")]] void fake_cuda_lose_context() { fake_cuda::lose_context(); }
}
