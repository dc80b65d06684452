#include "plain.hpp"

#include <pybind11/numpy.h>

#include <array>

#include "tutti/types.hpp"

namespace py = pybind11;
using tutti::Dtype;

namespace tutti_python {
namespace {

// By numpy's type number: bool, then signed and unsigned char … long long, float, double; half
// is 23.
constexpr int kHalf = 23;
constexpr std::array<Dtype, 13> kByNumber = {
    Dtype::boolean, Dtype::i8,  Dtype::u8,  Dtype::i16, Dtype::u16, Dtype::i32, Dtype::u32,
    Dtype::i64,     Dtype::u64, Dtype::i64, Dtype::u64, Dtype::f32, Dtype::f64};
static_assert(sizeof(long) == 8 && sizeof(long long) == 8);

}  // namespace

Plain look_at(py::handle object) {
  static PyTypeObject* const array_type = py::detail::npy_api::get().PyArray_Type_;
  if (Py_TYPE(object.ptr()) != array_type) return {};
  const auto array = py::reinterpret_borrow<py::array>(object);
  if ((array.flags() & py::array::c_style) == 0) return {};
  const py::dtype type = array.dtype();
  if (type.byteorder() == '>') return {};
  const int number = type.num();
  Plain plain;
  if (number >= 0 && number < static_cast<int>(kByNumber.size()))
    plain.dtype = static_cast<int>(kByNumber[static_cast<std::size_t>(number)]);
  else if (number == kHalf)
    plain.dtype = static_cast<int>(Dtype::f16);
  plain.writable = array.writeable();
  plain.bytes = static_cast<std::size_t>(array.nbytes());
  return plain;
}

}  // namespace tutti_python
