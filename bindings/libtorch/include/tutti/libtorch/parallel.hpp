// tutti/libtorch/parallel.hpp - layers of torch modules that are split over ranks: all of them.
#pragma once

#include "tutti/libtorch/context_parallel.hpp"
#include "tutti/libtorch/dropout.hpp"
#include "tutti/libtorch/initial_values.hpp"
#include "tutti/libtorch/placed.hpp"
#include "tutti/libtorch/tensor_parallel.hpp"
#include "tutti/libtorch/weight_queue.hpp"
