// Stores and their server, for ranks that no launcher brought together.
#include "store.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>

#include "failure.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e9) * 1e3));
}

// Store calls may wait for other processes.
template <class F>
auto unlocked(F&& call) {
  const py::gil_scoped_release released;
  return call();
}

py::bytes get(tutti::Store& self, const std::string& key, double timeout) {
  return py::bytes(unwrap(unlocked([&] { return self.get(key, milliseconds(timeout)); })));
}

std::shared_ptr<tutti::Store> connect(const std::string& address, const std::string& secret,
                                      double timeout) {
  return unwrap(
      unlocked([&] { return tutti::connect_store(address, secret, milliseconds(timeout)); }));
}

// Without a secret none but this user may come in, which only a Unix socket can tell.
std::string default_address(const std::string& secret) {
  if (!secret.empty()) return "127.0.0.1:0";
  std::random_device random;
  return "@tutti-store-" + std::to_string(::getpid()) + "-" + std::to_string(random());
}

}  // namespace

void bind_store(py::module_& module) {
  using tutti::Store;
  py::class_<Store, std::shared_ptr<Store>>(module, "Store")
      .def_static("memory", [] { return tutti::make_memory_store(); })
      .def_static(
          "file", [](const std::string& path) { return unwrap(tutti::open_file_store(path)); },
          py::arg("path"))
      .def_static("connect", &connect, py::arg("address"), py::arg("secret") = "",
                  py::arg("timeout") = 60.0)
      .def(
          "prefix",
          [](std::shared_ptr<Store> self, std::string prefix) {
            return tutti::make_prefix_store(std::move(prefix), std::move(self));
          },
          py::arg("prefix"))
      .def(
          "set",
          [](Store& self, const std::string& key, const std::string& value) {
            check(unlocked([&] { return self.set(key, value); }));
          },
          py::arg("key"), py::arg("value"))
      .def("get", &get, py::arg("key"), py::arg("timeout") = 60.0)
      .def(
          "wait",
          [](Store& self, const std::string& key, double timeout) {
            check(unlocked([&] { return self.wait(key, milliseconds(timeout)); }));
          },
          py::arg("key"), py::arg("timeout") = 60.0)
      .def(
          "add",
          [](Store& self, const std::string& key, std::int64_t amount) {
            return unwrap(unlocked([&] { return self.add(key, amount); }));
          },
          py::arg("key"), py::arg("amount") = 1)
      .def(
          "compare_set",
          [](Store& self, const std::string& key, const std::string& expected,
             const std::string& desired) {
            return py::bytes(
                unwrap(unlocked([&] { return self.compare_set(key, expected, desired); })));
          },
          py::arg("key"), py::arg("expected"), py::arg("desired"))
      .def(
          "remove",
          [](Store& self, const std::string& key) {
            return unwrap(unlocked([&] { return self.remove(key); }));
          },
          py::arg("key"));

  py::class_<ServedStore>(module, "StoreServer")
      .def(py::init([](const std::string& address, const std::string& secret) {
             ServedStore served;
             served.server = unwrap(tutti::StoreServer::listen(
                 address.empty() ? default_address(secret) : address, secret));
             return served;
           }),
           py::arg("address") = "", py::arg("secret") = "")
      .def_property_readonly("address",
                             [](const ServedStore& self) {
                               if (!self.server)
                                 raise(tutti::Code::invalid_argument,
                                       "the store's server was closed");
                               return self.server->address();
                             })
      .def("close",
           [](ServedStore& self) {
             const py::gil_scoped_release released;
             self.server.reset();
           })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](py::object self, const py::args&) { self.attr("close")(); });
}

}  // namespace tutti_python
