#include "checkpoint/model_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "train/agreement.hpp"
#include "train/tensor_box.hpp"

namespace tutti::checkpoint {
namespace {

using ByName = std::map<std::string_view, const ModelTensor*>;

std::string in_words(const ModelTensor& tensor) {
  return fmt::format("{} {}", to_string(tensor.dtype), train::to_text(tensor.shape));
}

// How our tensor differs from what they have of it; empty: not at all.
std::string difference(const ModelTensor& ours, const ByName& theirs, const ByName& aliases) {
  const auto found = theirs.find(ours.name);
  if (found == theirs.end()) {
    const auto tied = aliases.find(ours.name);
    return tied == aliases.end() ? "is not in it"
                                 : fmt::format("is another name of '{}' there", tied->second->name);
  }
  if (found->second->dtype == ours.dtype && found->second->shape == ours.shape) return "";
  return fmt::format("is {} there and {} here", in_words(*found->second), in_words(ours));
}

}  // namespace

std::vector<ModelTensor> model_tensors(const train::DataParallel& model) {
  std::vector<ModelTensor> tensors;
  for (const train::Parameter& parameter : model.parameters())
    tensors.push_back({parameter.name, parameter.value.dtype, train::whole_shape_of(parameter),
                       parameter.aliases, false});
  for (const train::ModuleBuffer& buffer : model.buffers())
    tensors.push_back({buffer.name, buffer.value.dtype, buffer.shape, {}, true});
  return tensors;
}

std::vector<ModelTensor> tensors_of(const SafetensorsFile& file,
                                    const std::vector<std::string>& buffers) {
  std::vector<ModelTensor> tensors;
  for (const TensorEntry& entry : file.header().tensors) {
    const bool is_buffer = std::find(buffers.begin(), buffers.end(), entry.name) != buffers.end();
    tensors.push_back({entry.name, entry.dtype, entry.shape, {}, is_buffer});
    for (const auto& [alias, name] : file.header().metadata)
      if (name == entry.name) tensors.back().aliases.push_back(alias);
  }
  return tensors;
}

Status compare_models(const std::string& path, std::span<const ModelTensor> theirs,
                      std::span<const ModelTensor> ours, Group& everyone) {
  const auto differs = [&](std::string_view kind, const std::string& name, std::string_view how) {
    return Status(Code::mismatch,
                  fmt::format("{}: is of another model: {} '{}' {}", path, kind, name, how));
  };
  ByName by_name, aliases;
  for (const ModelTensor& tensor : theirs) {
    by_name[tensor.name] = &tensor;
    for (const std::string& alias : tensor.aliases) aliases[alias] = &tensor;
  }
  Status mine;
  std::vector<std::uint8_t> found(theirs.size(), 0);
  for (const ModelTensor& tensor : ours) {
    const std::string how = difference(tensor, by_name, aliases);
    if (how.empty())
      found[static_cast<std::size_t>(by_name[tensor.name] - theirs.data())] = 1;
    else if (mine.ok())
      mine = differs(tensor.is_buffer ? "buffer" : "parameter", tensor.name, how);
  }
  if (Status status = train::agree(everyone, mine); !status.ok()) return status;
  // A stage has some of them, and another one the others.
  if (Status status = everyone.all_reduce(Buffer::of(found), ReduceOp::max); !status.ok())
    return status;
  for (std::size_t i = 0; i < theirs.size(); ++i)
    if (found[i] == 0) return differs("tensor", theirs[i].name, "is in it and not here");
  return {};
}

}  // namespace tutti::checkpoint
