// apps/pretrain_gpt/hf_folder.hpp - Hugging Face's folders of a Llama: config.json, safetensors files, and which of their
// tensors is what of our model's. docs/formats/hugging_face.md.
#pragma once

#include <vector>

#include "flags.hpp"
#include "tutti/train/data_parallel.hpp"
#include "tutti/train/weight_folder.hpp"

namespace CLI {
class App;
}

namespace pretrain {

void add_hf(CLI::App& app, Flags& flags);
// The model is what config.json of --load-hf says; throws CLI::ValidationError where that cannot be, or a flag says otherwise.
void take_hf(const CLI::App& app, Flags& flags);
// Of the flags alone. invalid_argument: --save-hf, and no Llama.
tutti::Status check_hf(const Flags& flags);
// Whether the folders are as they must be, asked before ranks meet. Names the tensor or the path.
tutti::Status check_hf_folders(const Flags& flags);

// Every tensor of such a folder, in the order in which it is written.
std::vector<tutti::train::FolderTensor> hf_tensors(const Flags& flags);

// Collective among everyone of the model.
tutti::Status load_hf(tutti::train::DataParallel& model, const Flags& flags);
tutti::Status save_hf(tutti::train::DataParallel& model, const Flags& flags,
                      std::int64_t end_of_document);

}  // namespace pretrain
