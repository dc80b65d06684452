// work.hpp - an operation under way, and what must live as long as it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>

#include "tutti/work.hpp"

namespace tutti_python {

class PendingWork {
 public:
  // `held` are the arrays that the operation reads and writes, `name` what it is called in traces.
  PendingWork(tutti::Work work, pybind11::object held, std::unique_ptr<std::string> name,
              bool on_device);
  PendingWork(PendingWork&&) = default;
  PendingWork& operator=(PendingWork&&) = default;
  // Arrays of an operation that still goes on are kept, and let go once it is over.
  ~PendingWork();

  // False when `timeout_s` passed first; raises what the operation failed with. Waits without the
  // interpreter's lock, and lets Ctrl-C through: the operation then stays under way.
  bool wait(std::optional<double> timeout_s);
  // What is put into `stream` from now on waits for an operation on a GPU; this thread does not. Any
  // other is waited for.
  void wait_on(void* stream);
  bool done() const { return work_.done(); }
  tutti::Work& work() { return work_; }
  // A descriptor that becomes readable when the operation is over. The caller closes it.
  int event_fd();

 private:
  tutti::Work work_;
  pybind11::object held_;
  std::unique_ptr<std::string> name_;
  bool on_device_;
};

void bind_work(pybind11::module_& module);

}  // namespace tutti_python
