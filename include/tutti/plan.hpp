// tutti/plan.hpp - what a training job will cost, as pure functions of numbers: model arithmetic
// (plan/model.hpp), memory (plan/memory.hpp) and what a step's compute hides of its communication (plan/timeline.hpp).
// `tutti plan model` and `tutti plan search` ask the same functions about whole clusters.
#pragma once

#include "tutti/plan/memory.hpp"
#include "tutti/plan/model.hpp"
#include "tutti/plan/timeline.hpp"
