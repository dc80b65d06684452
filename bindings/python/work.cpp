#include "work.hpp"

#include <pybind11/stl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <list>
#include <utility>

#include "failure.hpp"

namespace py = pybind11;
using namespace std::chrono_literals;

namespace tutti_python {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr std::chrono::nanoseconds kSlice = 100ms;  // between two looks for Ctrl-C

// Works whose Python objects are gone while their operations go on: these still use the arrays.
// Guarded by the interpreter's lock. Never destroyed: at exit a background thread may be writing.
std::list<PendingWork>& orphans() {
  static auto& list = *new std::list<PendingWork>;
  return list;
}

// Looks at the oldest ones only: a GPU may have a thousand before it, and every call comes here.
void let_go_of_finished() {
  constexpr int kLooks = 32;
  auto& list = orphans();
  std::list<PendingWork>
      finished;  // their arrays may run Python code when they go: after the sweep
  auto work = list.begin();
  for (int looks = 0; work != list.end() && looks < kLooks; ++looks) {
    const auto next = std::next(work);
    if (work->done()) finished.splice(finished.end(), list, work);
    work = next;
  }
}

}  // namespace

PendingWork::PendingWork(tutti::Work work, py::object held, std::unique_ptr<std::string> name,
                         bool on_device)
    : work_(std::move(work)),
      held_(std::move(held)),
      name_(std::move(name)),
      on_device_(on_device) {
  if (!orphans().empty()) let_go_of_finished();
}

PendingWork::~PendingWork() {
  if (held_ && !work_.done()) orphans().push_back(std::move(*this));
}

bool PendingWork::wait(std::optional<double> timeout_s) {
  const auto start = std::chrono::steady_clock::now();
  const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
      Seconds(std::clamp(timeout_s.value_or(1e9), 0.0, 1e9)));
  while (!work_.done()) {
    const auto left = limit - (std::chrono::steady_clock::now() - start);
    {
      const py::gil_scoped_release unlocked;
      (void)work_.wait(std::clamp<std::chrono::nanoseconds>(left, 0ns, kSlice));
    }
    if (work_.done()) break;
    check_interrupted();
    if (left <= 0ns) return false;
  }
  held_ = py::object();
  check(work_.status());
  return true;
}

void PendingWork::wait_on(void* stream) {
  if (!on_device_) {
    wait(std::nullopt);
    return;
  }
  const tutti::Status status = [&] {
    const py::gil_scoped_release unlocked;
    return work_.wait_on(stream);
  }();
  check(status);
}

int PendingWork::event_fd() {
  const int mine = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int theirs = mine < 0 ? -1 : dup(mine);
  if (theirs < 0) {
    if (mine >= 0) close(mine);
    raise(tutti::Code::io, "no descriptor could be had to wait for an operation");
  }
  // Called by whichever thread completes the operation: no Python here.
  work_.on_complete([theirs](const tutti::Status&) {
    (void)eventfd_write(theirs, 1);
    close(theirs);
  });
  return mine;
}

void bind_work(py::module_& module) {
  py::class_<PendingWork>(module, "Work")
      .def("wait", &PendingWork::wait)
      .def("wait_on", [](PendingWork& self,
                         std::uintptr_t stream) { self.wait_on(reinterpret_cast<void*>(stream)); })
      .def("done", &PendingWork::done)
      .def("event_fd", &PendingWork::event_fd)
      .def("received", [](PendingWork& self) {
        const tutti::Received received = self.work().received();
        return py::make_tuple(received.source, received.tag, received.bytes);
      });
}

}  // namespace tutti_python
