// checkpoint/model_tensors.hpp - what model.safetensors holds of a model: its parameters, then its
// module buffers.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors/safetensors.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::checkpoint {

struct ModelTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Buffer value;  // the model's own memory
  bool is_buffer = false;
};

std::vector<ModelTensor> model_tensors(const train::DataParallel& model);

// mismatch names the first tensor in which the file's model is another than ours.
Status compare_models(const SafetensorsFile& file, const std::vector<ModelTensor>& ours);

}  // namespace tutti::checkpoint
