// tutti/train.hpp - training that hides its communication, for any framework or none.
#pragma once

#include "tutti/train/checkpoint.hpp"
#include "tutti/train/data_parallel.hpp"
#include "tutti/train/hand_over.hpp"
#include "tutti/train/learning_rate.hpp"
#include "tutti/train/llama_config.hpp"
#include "tutti/train/loss_guard.hpp"
#include "tutti/train/loss_scale.hpp"
#include "tutti/train/metrics_bus.hpp"
#include "tutti/train/overlap.hpp"
#include "tutti/train/weight_folder.hpp"
