// tutti/cpp20.hpp - says what is wrong when an older C++ is asked for. Every other header reads it first,
// by itself or through another one.
#pragma once

#if __cplusplus <= 201703L
#error "tutti needs C++20: compile with -std=c++20"
#endif
