// plain.hpp - a quick look at an object: is it a numpy array that can travel as it is?
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>

namespace tutti_python {

struct Plain {
  int dtype = -1;  // tutti's; -1: no plain array (another class, order or type; complex numbers)
  bool writable = false;
  std::size_t bytes = 0;
};

Plain look_at(pybind11::handle object);

}  // namespace tutti_python
