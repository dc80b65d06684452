// schedule/build/torus_2d.hpp - the shape of the torus.
#pragma once

namespace tutti::schedule::builders {

// The number of rows: the largest divisor of n that is not above its square root. 1: no torus.
int torus_rows(int n);

}  // namespace tutti::schedule::builders
