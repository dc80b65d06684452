// reduce/storage.hpp - the C++ type that holds an element of so many bytes.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tutti::reduce {

template <int Bytes>
struct NaturalOfBytes;
template <>
struct NaturalOfBytes<1> : std::type_identity<std::uint8_t> {};
template <>
struct NaturalOfBytes<2> : std::type_identity<std::uint16_t> {};
template <>
struct NaturalOfBytes<4> : std::type_identity<std::uint32_t> {};
template <>
struct NaturalOfBytes<8> : std::type_identity<std::uint64_t> {};

template <int Bytes>
using Natural = typename NaturalOfBytes<Bytes>::type;
template <int Bytes>
using Integer = std::make_signed_t<Natural<Bytes>>;

}  // namespace tutti::reduce
