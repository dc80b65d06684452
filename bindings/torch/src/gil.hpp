// gil.hpp - waiting without Python's global lock.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

namespace tutti_torch {

// Other threads may need the interpreter to get on with what `function` waits for.
template <class Function>
void without_gil(Function&& function) {
  if (Py_IsInitialized() && PyGILState_Check()) {
    pybind11::gil_scoped_release release;
    std::forward<Function>(function)();
  } else {
    std::forward<Function>(function)();
  }
}

}  // namespace tutti_torch
