#include "support/captured_graph.hpp"

#include <dlfcn.h>

namespace tutti::cuda {
namespace {

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* const function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name));
  return function(arguments...);
}

// The device's primary context, current as long as it lives.
class Current {
 public:
  explicit Current(int ordinal) : ordinal_(ordinal) {
    void* context = nullptr;
    call("cuDevicePrimaryCtxRetain", &context, ordinal);
    call("cuCtxPushCurrent_v2", context);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    void* context = nullptr;
    call("cuCtxPopCurrent_v2", &context);
    call("cuDevicePrimaryCtxRelease_v2", ordinal_);
  }

 private:
  int ordinal_;
};

}  // namespace

CapturedGraph::CapturedGraph(Device& device, StreamHandle stream, Mode mode,
                             const std::function<void()>& body)
    : ordinal_(device.facts().ordinal) {
  const Current current(ordinal_);
  result_ = call("cuStreamBeginCapture_v2", stream, static_cast<int>(mode));
  if (result_ != 0) return;
  body();
  result_ = call("cuStreamEndCapture", stream, &graph_);
  if (result_ == 0) result_ = call("cuGraphInstantiateWithFlags", &executable_, graph_, 0ULL);
}

CapturedGraph::~CapturedGraph() {
  const Current current(ordinal_);
  if (executable_ != nullptr) call("cuGraphExecDestroy", executable_);
  if (graph_ != nullptr) call("cuGraphDestroy", graph_);
}

int CapturedGraph::launch(StreamHandle stream) {
  const Current current(ordinal_);
  return call("cuGraphLaunch", executable_, stream);
}

}  // namespace tutti::cuda
