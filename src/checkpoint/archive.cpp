#include "checkpoint/archive.hpp"

#include <fmt/format.h>

#include "checkpoint/overlap_reader.hpp"
#include "checkpoint/state_ranges.hpp"

namespace tutti::checkpoint {
namespace {

train::TensorBox whole_of(const ModelTensor& tensor) {
  const auto count = static_cast<std::int64_t>(train::count_of(tensor.shape));
  return {{count}, {0}, {count}};
}

}  // namespace

Result<Archive> Archive::open(const std::string& folder, const Manifest& manifest) {
  Archive archive;
  archive.folder_ = folder;
  for (const FileFacts& facts : manifest.files) {
    if (facts.name == kIndex) continue;
    auto file = SafetensorsFile::open(folder + "/" + facts.name);
    if (!file.ok()) return file.status();
    archive.files_.push_back(*std::move(file));
  }
  archive.tensors_ = manifest.version < 3 ? tensors_of(archive.files_.front(), manifest.buffers)
                                          : manifest.tensors;
  for (std::size_t i = 0; i < archive.tensors_.size(); ++i)
    archive.index_[archive.tensors_[i].name] = i;
  const auto model_files = static_cast<std::size_t>(manifest.model_files());
  for (std::size_t file = 0; file < archive.files_.size(); ++file)
    for (std::size_t i = 0; i < archive.files_[file].header().tensors.size(); ++i) {
      Status status =
          file < model_files ? archive.index_tensor(file, i) : archive.index_piece(file, i);
      if (!status.ok()) return status;
    }
  return archive;
}

// Of the model's own files.
Status Archive::index_tensor(std::size_t file, std::size_t entry) {
  const TensorEntry& stored = files_[file].header().tensors[entry];
  const auto found = index_.find(stored.name);
  if (found == index_.end() || tensors_[found->second].shape != stored.shape ||
      tensors_[found->second].dtype != stored.dtype)
    return corrupt(fmt::format("{}: '{}' is not what {} says of it", files_[file].path(),
                               stored.name, kManifest));
  const ModelTensor& tensor = tensors_[found->second];
  const auto state = std::string(tensor.is_buffer ? kBufferState : kWeightState);
  stored_[{tensor.name, state}].add(
      {whole_of(tensor), 0, train::count_of(tensor.shape), file, entry});
  return {};
}

Status Archive::index_piece(std::size_t file, std::size_t entry) {
  const TensorEntry& stored = files_[file].header().tensors[entry];
  auto name = parse_piece_name(stored.name);
  const auto found = name ? index_.find(name->tensor) : index_.end();
  bool fits = found != index_.end() && stored.bytes == name->count * size_of(stored.dtype);
  if (fits) {
    const ModelTensor& tensor = tensors_[found->second];
    if (name->box.whole.empty()) name->box = whole_of(tensor);
    fits = train::count_of(name->box.whole) == train::count_of(tensor.shape) &&
           name->first + name->count <= train::count_of(name->box.extent);
  }
  if (!fits)
    return corrupt(fmt::format("{}: '{}' is no piece of the state of this model",
                               files_[file].path(), stored.name));
  stored_[{name->tensor, name->state}].add({name->box, name->first, name->count, file, entry});
  return {};
}

Status Archive::check(const Wanted& wanted) const {
  const auto found = stored_.find({wanted.tensor, wanted.state});
  std::vector<PieceOverlap> overlaps;
  if (found != stored_.end())
    overlaps = found->second.overlaps(wanted.box, wanted.first, wanted.count);
  for (const PieceOverlap& overlap : overlaps) {
    const StoredPiece& piece = found->second[overlap.piece];
    if (entry_of(piece).dtype != wanted.dtype)
      return {Code::mismatch,
              fmt::format("{}: {} of parameter '{}' is {} there and {} here",
                          files_[piece.file].path(), wanted.state, wanted.tensor,
                          to_string(entry_of(piece).dtype), to_string(wanted.dtype))};
  }
  const Coverage coverage = coverage_of(std::move(overlaps), wanted.count);
  if (coverage == Coverage::complete) return {};
  return corrupt(fmt::format("{}: elements of {} of parameter '{}' are {}", folder_, wanted.state,
                             wanted.tensor,
                             coverage == Coverage::twice ? "stored twice" : "missing"));
}

Status Archive::read(const Wanted& wanted, std::byte* into) const {
  if (wanted.count == 0) return {};
  const StoredPieces& pieces = stored_.at({wanted.tensor, wanted.state});
  const std::vector<PieceOverlap> overlaps =
      pieces.overlaps(wanted.box, wanted.first, wanted.count);
  for (std::size_t begin = 0, end = 0; begin < overlaps.size(); begin = end) {
    while (end < overlaps.size() && overlaps[end].piece == overlaps[begin].piece) ++end;
    const std::span<const PieceOverlap> of_piece(overlaps.data() + begin, end - begin);
    const StoredPiece& piece = pieces[overlaps[begin].piece];
    if (Status status =
            read_overlaps(files_[piece.file], entry_of(piece), of_piece, wanted.dtype, into);
        !status.ok())
      return status;
  }
  return {};
}

}  // namespace tutti::checkpoint
