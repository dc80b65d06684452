// tutti/train/weight_folder.hpp - weights in a folder of safetensors files whose tensors have names and cuts of another
// tool's, such as Hugging Face's.
//
//   model.safetensors                                    or, where they are too large for one file,
//   model-00001-of-00003.safetensors …                   several of them, with
//   model.safetensors.index.json                         which tensor is in which
//
// A tensor of the folder is a box of one of the model's: of a fused qkv weight there may be three in it. Ranks may have the
// model cut in any way, and keep it in shards: each reads the elements that it answers for, and what is written is put
// together one tensor at a time. Float types are converted; what a folder holds beside weights is the caller's.
//
// Ordering       both are collective among everyone of the model (DataParallel::everyone).
// Failure        the same Status on every rank. invalid_argument and mismatch name the tensor that is missing, surplus or of
//                another shape, corrupt and io the file. A folder is written whole or not at all.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tutti/train/data_parallel.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

// A tensor of the folder, and which elements of the model's it holds, in row-major order.
struct FolderTensor {
  std::string name;                 // there
  std::vector<std::int64_t> shape;  // there
  std::string parameter;            // Parameter::name
  TensorBox box{};                  // of the whole parameter, in any shape of it; empty: all
};

// All elements of the model must be there once, and no tensor but those of `tensors` and `ignored`. Training begins anew from
// there: to be called before the first step. Main weights behind bf16 ones have the folder's digits.
Status load_weights(DataParallel& model, const std::string& folder,
                    std::span<const FolderTensor> tensors,
                    std::span<const std::string> ignored = {});
// What of that can be told from the files alone. Not collective.
Status may_load_weights(const std::string& folder, std::span<const FolderTensor> tensors,
                        std::span<const std::string> ignored = {});

struct SaveWeightsOptions {
  // Of a file at most, unless one tensor alone is larger; those of one parameter stay together.
  std::uint64_t shard_bytes = 5'000'000'000;
  std::map<std::string, std::string> texts{};  // further files, by name
  std::vector<std::string> copied{};           // further files to be copied, by path
};
// In the type that the model has them in, in the order of `tensors`: the bytes do not depend on who has which part. The folder
// is made under another name beside its place. One that is there is replaced, if it holds such files alone.
Status save_weights(DataParallel& model, const std::string& folder,
                    std::span<const FolderTensor> tensors, const SaveWeightsOptions& options = {});
// io, unless save_weights may write there as far as can be told. Not collective.
Status may_save_weights(const std::string& folder);

}  // namespace v1
}  // namespace tutti::train
