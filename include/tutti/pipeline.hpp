// tutti/pipeline.hpp - pipeline parallelism: schedules as data, proved (pipeline/schedule.hpp), played in
// virtual time (pipeline/simulate.hpp) and run on a group (pipeline/run.hpp).
// `tutti show pipeline` draws them.
#pragma once

#include "tutti/pipeline/run.hpp"
#include "tutti/pipeline/schedule.hpp"
#include "tutti/pipeline/simulate.hpp"
