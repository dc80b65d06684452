// The writing half of tutti/train/weight_folder.hpp: file by file, tensor by tensor. A tensor is put together on the rank that
// writes its file; all ranks go through all tensors, whatever goes wrong on one of them, and agree at the end.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "checkpoint/folder.hpp"
#include "checkpoint/weight_folder.hpp"
#include "core/exhausted.hpp"
#include "core/json.hpp"
#include "train/agreement.hpp"
#include "train/holdings.hpp"

namespace tutti::checkpoint {
namespace {

namespace fs = std::filesystem;
using train::agree;
using train::DataParallel;
using train::FolderTensor;
using train::HeldTensor;

// The tensors of one parameter, which stay together.
struct Part {
  const HeldTensor* parameter = nullptr;
  std::vector<const FolderTensor*> tensors;
  std::uint64_t bytes = 0;
};
using Shard = std::vector<Part>;

Status invalid(std::string text) { return {Code::invalid_argument, std::move(text)}; }

// Whether the tensors have every element of the parameter once.
Status check_whole(const Part& part) {
  std::vector<train::TensorBox> boxes;
  std::size_t count = 0;
  for (const FolderTensor* tensor : part.tensors) {
    auto box = box_in_parameter(*tensor);
    if (!box.ok()) return box.status();
    count += train::count_of(box->extent);
    for (const train::TensorBox& other : boxes)
      if (train::have_common_elements(other, *box))
        return invalid(fmt::format("tensor '{}' has elements of '{}' that another has, too",
                                   tensor->name, tensor->parameter));
    boxes.push_back(*std::move(box));
  }
  if (count == part.parameter->count()) return {};
  return invalid(fmt::format("tensors hold {} of the {} elements of parameter '{}'", count,
                             part.parameter->count(), part.parameter->name));
}

Result<std::vector<Part>> parts_of(std::span<const FolderTensor> tensors,
                                   std::span<const HeldTensor> held) {
  std::map<std::string_view, const HeldTensor*> parameters;
  for (const HeldTensor& parameter : held) parameters[parameter.name] = &parameter;
  std::vector<Part> parts;
  std::map<std::string_view, std::size_t> index;
  for (const FolderTensor& tensor : tensors) {
    const auto parameter = parameters.find(tensor.parameter);
    if (parameter == parameters.end())
      return invalid(fmt::format("tensor '{}': the model has no parameter '{}'", tensor.name,
                                 tensor.parameter));
    const auto [at, is_new] = index.try_emplace(tensor.parameter, parts.size());
    if (is_new) parts.push_back({parameter->second, {}, 0});
    Part& part = parts[at->second];
    part.tensors.push_back(&tensor);
    part.bytes += train::count_of(tensor.shape) * size_of(parameter->second->dtype);
  }
  for (const HeldTensor& parameter : held)
    if (!index.contains(parameter.name))
      return invalid(fmt::format("parameter '{}' has no tensor there", parameter.name));
  for (const Part& part : parts)
    if (Status status = check_whole(part); !status.ok()) return status;
  return parts;
}

std::vector<Shard> shards_of(std::vector<Part> parts, std::uint64_t most) {
  std::vector<Shard> shards;
  std::uint64_t bytes = 0;
  for (Part& part : parts) {
    if (shards.empty() || bytes + part.bytes > most) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += part.bytes;
    shards.back().push_back(std::move(part));
  }
  return shards;
}

std::string file_name(std::size_t shard, std::size_t shards) {
  return shards == 1 ? std::string(kOneFile)
                     : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

Status begin_file(const std::string& path, const Shard& shard, std::optional<SafeFile>& file) {
  auto made = SafeFile::create(path);
  if (!made.ok()) return made.status();
  std::vector<TensorToWrite> tensors;
  for (const Part& part : shard)
    for (const FolderTensor* tensor : part.tensors)
      tensors.push_back(
          {tensor->name, tensor->shape,
           ConstBuffer(nullptr, train::count_of(tensor->shape), part.parameter->dtype)});
  const auto header = safetensors_header(tensors, {{"format", "pt"}});
  if (!header.ok()) return header.status();
  if (Status status = made->write(header->data(), header->size()); !status.ok()) return status;
  file.emplace(*std::move(made));
  return {};
}

Status write_tensor(SafeFile& file, const FolderTensor& tensor, const std::byte* whole,
                    std::size_t size) {
  const auto box = box_in_parameter(tensor);
  if (!box.ok()) return box.status();
  std::vector<std::byte> rows;  // short runs together
  constexpr std::size_t kEnough = 1 << 20;
  const auto flush = [&] {
    Status status = file.write(rows.data(), rows.size());
    rows.clear();
    return status;
  };
  for (const train::ElementRun& run : train::runs_of(*box, 0, train::count_of(tensor.shape))) {
    const std::byte* from = whole + run.tensor * size;
    rows.insert(rows.end(), from, from + run.count * size);
    if (rows.size() < kEnough) continue;
    if (Status status = flush(); !status.ok()) return status;
  }
  return flush();
}

// `mine`: what went wrong on this rank. The status that is returned is every rank's.
Status write_shard(DataParallel& model, const std::string& path, const Shard& shard, int writer,
                   Status& mine) {
  const bool is_mine = model.everyone().rank() == writer;
  std::optional<SafeFile> file;
  if (is_mine && mine.ok()) mine = or_exhausted([&] { return begin_file(path, shard, file); });
  std::vector<std::byte> memory;
  for (const Part& part : shard) {
    const HeldTensor& parameter = *part.parameter;
    const std::size_t size = size_of(parameter.dtype);
    memory.resize(is_mine ? parameter.count() * size : 0);
    Status unread;
    Status status =
        train::collect(model, parameter, writer,
                       {memory.data(), is_mine ? parameter.count() : 0, parameter.dtype}, unread);
    if (!status.ok()) return status;
    if (mine.ok()) mine = unread;
    for (const FolderTensor* tensor : part.tensors)
      if (is_mine && mine.ok()) mine = write_tensor(*file, *tensor, memory.data(), size);
  }
  if (is_mine && mine.ok()) mine = file->commit();
  return {};
}

Status write_index(const std::string& folder, const std::vector<Shard>& shards) {
  std::uint64_t bytes = 0;
  std::map<std::string, std::string> files;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const Part& part : shards[i]) {
      bytes += part.bytes;
      for (const FolderTensor* tensor : part.tensors)
        files[tensor->name] = file_name(i, shards.size());
    }
  const Json index{{"metadata", Json{{"total_size", bytes}}}, {"weight_map", files}};
  return write_text(fmt::format("{}/{}", folder, kFileIndex), index.dump(2) + "\n");
}

// ---- the folder

// What such folders consist of: one with anything else in it is not ours to replace.
bool belongs(const fs::path& path) {
  const std::string name = path.filename().string();
  return path.extension() == ".safetensors" || name == kFileIndex || name == "config.json" ||
         name == "generation_config.json" || name == "special_tokens_map.json" ||
         name.starts_with("tokenizer");
}

// Its own name, without a slash at the end.
fs::path place_of(const std::string& folder) {
  std::error_code error;
  fs::path path = fs::absolute(folder, error).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

fs::path beside(const fs::path& folder, std::string_view prefix) {
  return folder.parent_path() /
         fmt::format("{}{}{}", kTemporaryPrefix, prefix, folder.filename().string());
}

Result<std::string> begin_folder(const std::string& folder) {
  if (Status status = train::may_save_weights(folder); !status.ok()) return status;
  const fs::path path = place_of(folder), temporary = beside(path, "");
  std::error_code error;
  fs::remove_all(temporary, error);  // of a killed run
  fs::create_directories(temporary, error);
  if (error) return file_trouble(temporary, "cannot be made", error);
  return temporary.string();
}

Status publish(const std::string& temporary, const std::string& folder) {
  const fs::path path = place_of(folder), aside = beside(path, "old_");
  std::error_code error;
  fs::remove_all(aside, error);
  if (Status status = sync_folder(temporary); !status.ok()) return status;
  if (Status status = take_name(temporary, path.string(), aside.string()); !status.ok())
    return status;
  for (const fs::path& old : {fs::path(temporary), aside}) fs::remove_all(old, error);
  return sync_folder(path.parent_path().string());
}

Status write_rest(const std::string& temporary, const std::vector<Shard>& shards,
                  const train::SaveWeightsOptions& options) {
  if (shards.size() > 1)
    if (Status status = write_index(temporary, shards); !status.ok()) return status;
  for (const auto& [name, text] : options.texts)
    if (Status status = write_text(temporary + "/" + name, text); !status.ok()) return status;
  for (const fs::path from : options.copied) {
    std::error_code error;
    fs::copy_file(from, temporary / from.filename(), error);
    if (error) return file_trouble(from, "cannot be copied", error);
  }
  return {};
}

// ---- all of it

Status write_all(DataParallel& model, const std::string& folder, const std::string& temporary,
                 std::span<const FolderTensor> tensors, const train::SaveWeightsOptions& options) {
  Group& group = model.everyone();
  const auto held = train::exchange_holdings(model);
  if (!held.ok()) return held.status();
  auto parts = parts_of(tensors, *held);
  if (!parts.ok()) return parts.status();
  const std::vector<Shard> shards = shards_of(*std::move(parts), options.shard_bytes);
  Status mine;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string path = temporary + "/" + file_name(i, shards.size());
    const int writer = static_cast<int>(i % static_cast<std::size_t>(group.size()));
    if (Status status = write_shard(model, path, shards[i], writer, mine); !status.ok())
      return status;
  }
  if (group.rank() == 0 && mine.ok()) mine = write_rest(temporary, shards, options);
  if (Status status = agree(group, mine); !status.ok()) return status;
  return agree(group, group.rank() == 0 ? publish(temporary, folder) : Status());
}

Status save(DataParallel& model, const std::string& folder, std::span<const FolderTensor> tensors,
            const train::SaveWeightsOptions& options) {
  Group& group = model.everyone();
  Status mine = model.parameters_ready();
  std::string temporary;
  if (mine.ok() && group.rank() == 0) {
    auto begun = begin_folder(folder);
    mine = begun.status();
    if (begun.ok()) temporary = *std::move(begun);
  }
  if (Status status = agree(group, mine); !status.ok()) return status;
  // Rank 0's folder is everybody's, wherever the others were started.
  const auto shared = train::share_text(group, temporary, 0);
  if (!shared.ok()) return shared.status();
  Status status = write_all(model, folder, *shared, tensors, options);
  std::error_code ignored;
  if (!status.ok() && group.rank() == 0) fs::remove_all(temporary, ignored);
  return status;
}

}  // namespace
}  // namespace tutti::checkpoint

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

namespace fs = std::filesystem;

Status may_save_weights(const std::string& folder) {
  const fs::path path = checkpoint::place_of(folder);
  std::error_code error;
  if (!fs::exists(path, error)) {
    fs::create_directories(path.parent_path(), error);
    return error ? checkpoint::file_trouble(path.parent_path(), "cannot be made", error) : Status();
  }
  if (!fs::is_directory(path, error)) return {Code::io, folder + ": is no folder"};
  fs::directory_iterator at(path, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error))
    if (!checkpoint::belongs(at->path()))
      return {Code::io, fmt::format("{}: would be replaced, and '{}' is in it", folder,
                                    at->path().filename().string())};
  return error ? checkpoint::file_trouble(path, "cannot be listed", error) : Status();
}

Status save_weights(DataParallel& model, const std::string& folder,
                    std::span<const FolderTensor> tensors, const SaveWeightsOptions& options) {
  return checkpoint::save(model, folder, tensors, options);
}

}  // namespace v1
}  // namespace tutti::train
