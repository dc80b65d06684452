// checkpoint/model_tensors.hpp - what a checkpoint says of the tensors of a model: parameters and module
// buffers, whole, however the model was cut; compared with a model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors/safetensors.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::checkpoint {

struct ModelTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;   // of the whole
  std::vector<std::string> aliases;  // other names of it
  bool is_buffer = false;            // else a parameter
  bool operator==(const ModelTensor&) const = default;
};

// Those that this rank has, or has a box of.
std::vector<ModelTensor> model_tensors(const train::DataParallel& model);

// What versions before 3 say: the model's file has whole tensors, and `buffers` names some of them.
std::vector<ModelTensor> tensors_of(const SafetensorsFile& file,
                                    const std::vector<std::string>& buffers);

// Collective among everyone. mismatch names the first tensor in which the model of the checkpoint at `path` is
// another than ours: on any rank, or on no rank at all.
Status compare_models(const std::string& path, std::span<const ModelTensor> theirs,
                      std::span<const ModelTensor> ours, Group& everyone);

}  // namespace tutti::checkpoint
