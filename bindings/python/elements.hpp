// elements.hpp - element types as numpy and DLPack name them, from tutti's one list.
#pragma once

#include <optional>

#include "tutti/dtypes.hpp"

namespace tutti_python {

// By DLPack's code and width.
constexpr std::optional<tutti::Dtype> dtype_of_dlpack(int code, int bits) {
  return tutti::find_dtype(
      [&](const tutti::DtypeInfo& info) { return info.dlpack == code && 8 * info.bytes == bits; });
}

// DLPack's code of the types that numpy has by itself, by numpy's letter of their kind; -1: none.
constexpr int dlpack_code_of(char letter) {
  switch (letter) {
    case 'i': return 0;
    case 'u': return 1;
    case 'f': return 2;
    case 'b': return 6;
    default: return -1;
  }
}

}  // namespace tutti_python
