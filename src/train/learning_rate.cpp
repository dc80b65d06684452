#include "tutti/train/learning_rate.hpp"
