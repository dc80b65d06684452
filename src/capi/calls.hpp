// capi/calls.hpp - C calls, buffers and options as C++ ones, checked for what only C can get wrong.
//
// What a call means is checked by the library; here only enumerators, sizes and null pointers are.
#pragma once

#include <vector>

#include "capi/handles.hpp"

namespace tutti::capi {

// Options, and where the memory of a named function is.
struct GivenOptions {
  CallOptions call;
  Device device = Device::cpu;
};
Result<GivenOptions> options_of(const tutti_call_options* from);
Result<Device> device_of(int value);
Result<Buffer> buffer_of(const tutti_buffer* from);

// A Call and the arrays that its spans point to.
struct OwnedCall {
  std::vector<ConstBuffer> input;
  std::vector<Buffer> output;
  Call call;
};
Result<OwnedCall> call_of(const tutti_call* from, int ranks);

// Steps through an array whose elements were made by a program that may know a shorter or longer
// struct than we do.
template <class Struct>
const Struct* element(const Struct* array, std::size_t index) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(array);
  return reinterpret_cast<const Struct*>(bytes + index * array->size);
}

}  // namespace tutti::capi
