#include "checkpoint/model_tensors.hpp"

#include <fmt/format.h>

#include <set>

namespace tutti::checkpoint {
namespace {

std::string in_words(Dtype dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", "));
}

// How `tensor` differs from what the file has of it; empty: not at all.
std::string difference(const ModelTensor& tensor, const SafetensorsHeader& header) {
  const TensorEntry* theirs = header.find(tensor.name);
  if (theirs == nullptr) {
    const auto tied = header.metadata.find(tensor.name);
    return tied == header.metadata.end()
               ? "is not in it"
               : fmt::format("is another name of '{}' there", tied->second);
  }
  if (theirs->dtype == tensor.value.dtype && theirs->shape == tensor.shape) return "";
  return fmt::format("is {} there and {} here", in_words(theirs->dtype, theirs->shape),
                     in_words(tensor.value.dtype, tensor.shape));
}

}  // namespace

std::vector<ModelTensor> model_tensors(const train::DataParallel& model) {
  std::vector<ModelTensor> tensors;
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const train::Parameter& parameter = model.parameters()[i];
    tensors.push_back({parameter.name, parameter.shape, model.parameter(i), false});
  }
  for (train::ModuleBuffer& buffer : model.buffers())
    tensors.push_back({std::move(buffer.name), std::move(buffer.shape), buffer.value, true});
  return tensors;
}

Status compare_models(const SafetensorsFile& file, const std::vector<ModelTensor>& ours) {
  const auto differs = [&](std::string_view kind, const std::string& name, std::string_view how) {
    return Status(Code::mismatch,
                  fmt::format("{}: is of another model: {} '{}' {}", file.path(), kind, name, how));
  };
  std::set<std::string_view> names;
  for (const ModelTensor& tensor : ours) {
    names.insert(tensor.name);
    if (const std::string how = difference(tensor, file.header()); !how.empty())
      return differs(tensor.is_buffer ? "buffer" : "parameter", tensor.name, how);
  }
  for (const TensorEntry& theirs : file.header().tensors)
    if (!names.contains(theirs.name))
      return differs("tensor", theirs.name, "is in it and not here");
  return {};
}

}  // namespace tutti::checkpoint
