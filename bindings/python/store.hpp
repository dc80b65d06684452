// store.hpp - where ranks meet, as Python classes Store and StoreServer.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "tutti/store.hpp"

namespace tutti_python {

// A server that lives as long as its Python object, or until it is closed.
struct ServedStore {
  std::unique_ptr<tutti::StoreServer> server;
};

void bind_store(pybind11::module_& module);

}  // namespace tutti_python
