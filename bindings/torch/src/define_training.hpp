// define_training.hpp - what Python sees of the training layer: part of tutti_torch._C.
#pragma once

#include <pybind11/pybind11.h>

#include "backend.hpp"

namespace tutti_torch {

using Handle = c10::intrusive_ptr<BackendBase>;

// The caller's process group; InvalidArgument where it is not of backend "tutti".
Backend& backend_of(const Handle& handle);

void define_replica(pybind11::module_& m);
void define_metrics(pybind11::module_& m);

}  // namespace tutti_torch
