// The reading half of tutti/train/weight_folder.hpp. Nothing of the model is touched before all headers were compared with it;
// then each rank reads the elements that it answers for, and the layer hands them on to whoever has copies.
#include <fmt/format.h>

#include <map>
#include <set>

#include "checkpoint/overlap_reader.hpp"
#include "checkpoint/state_ranges.hpp"
#include "checkpoint/weight_folder.hpp"
#include "core/exhausted.hpp"
#include "train/agreement.hpp"

namespace tutti::checkpoint {
namespace {

using train::agree;
using train::DataParallel;
using train::FolderTensor;
using train::Parameter;
using train::StatePiece;

template <class... Values>
Status refuse(const std::string& folder, fmt::format_string<Values...> text, Values&&... values) {
  return {Code::invalid_argument,
          folder + ": " + fmt::format(text, std::forward<Values>(values)...)};
}

// Where in a folder the elements of each parameter lie.
class PlacedTensors {
 public:
  static Result<PlacedTensors> open(const std::string& folder,
                                    std::span<const FolderTensor> tensors,
                                    std::span<const std::string> ignored) {
    auto files = WeightFolder::open(folder);
    if (!files.ok()) return files.status();
    PlacedTensors placed(folder, *std::move(files));
    std::set<std::string_view> known(ignored.begin(), ignored.end());
    for (const FolderTensor& tensor : tensors) {
      if (Status status = placed.place(tensor); !status.ok()) return status;
      known.insert(tensor.name);
    }
    for (const auto& [name, place] : placed.files_.tensors())
      if (!known.contains(name)) return refuse(folder, "tensor '{}' is none of the model's", name);
    return placed;
  }

  Status check_whole(const Parameter& parameter, const StatePiece& piece) const {
    const auto stored = stored_.find(parameter.name);
    if (stored != stored_.end() && coverage_of(overlaps(stored->second, parameter, piece),
                                               piece.values.count) == Coverage::complete)
      return {};
    return refuse(folder_, "no tensors make up parameter '{}'", parameter.name);
  }

  // What check_whole has found to be there.
  Status read(const Parameter& parameter, const StatePiece& piece, std::byte* into) const {
    const StoredPieces& stored = stored_.at(parameter.name);
    const std::vector<PieceOverlap> all = overlaps(stored, parameter, piece);
    for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
      while (end < all.size() && all[end].piece == all[begin].piece) ++end;
      const StoredPiece& from = stored[all[begin].piece];
      Status status =
          read_overlaps(files_.file(from.file), files_.entry({from.file, from.tensor}),
                        std::span(all).subspan(begin, end - begin), piece.values.dtype, into);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  PlacedTensors(std::string folder, WeightFolder files)
      : folder_(std::move(folder)), files_(std::move(files)) {}

  Status place(const FolderTensor& tensor) {
    const auto found = files_.tensors().find(tensor.name);
    if (found == files_.tensors().end())
      return refuse(folder_, "tensor '{}' is missing", tensor.name);
    const TensorEntry& entry = files_.entry(found->second);
    if (entry.shape != tensor.shape)
      return refuse(folder_, "tensor '{}' is {}, not {}", tensor.name, train::to_text(entry.shape),
                    train::to_text(tensor.shape));
    if (!is_convertible(entry.dtype, Dtype::f32))
      return refuse(folder_, "tensor '{}' is {}, not f32, bf16 or f16", tensor.name,
                    to_string(entry.dtype));
    auto box = box_in_parameter(tensor);
    if (!box.ok()) return box.status();
    stored_[tensor.parameter].add({*std::move(box), 0, train::count_of(tensor.shape),
                                   found->second.file, found->second.tensor});
    return {};
  }

  static std::vector<PieceOverlap> overlaps(const StoredPieces& stored, const Parameter& parameter,
                                            const StatePiece& piece) {
    return stored.overlaps(train::box_of(parameter), piece.first, piece.values.count);
  }

  std::string folder_;
  WeightFolder files_;
  std::map<std::string, StoredPieces> stored_;  // by parameter
};

Result<PlacedTensors> look(DataParallel& model, const std::string& folder,
                           std::span<const FolderTensor> tensors,
                           std::span<const std::string> ignored) {
  if (Status status = model.parameters_ready(); !status.ok()) return status;
  auto placed = PlacedTensors::open(folder, tensors, ignored);
  if (!placed.ok()) return placed;
  for (const StatePiece& piece : model.weights())
    if (Status status = placed->check_whole(model.parameters()[piece.parameter], piece);
        !status.ok())
      return status;
  return placed;
}

// All pieces of that name.
Status read_state(DataParallel& model, const PlacedTensors& placed,
                  const std::vector<StatePiece>& pieces, std::string_view name) {
  for (const StatePiece& piece : pieces) {
    if (piece.name != name) continue;
    const Parameter& parameter = model.parameters()[piece.parameter];
    const bool is_here = piece.values.device == Device::cpu;
    std::vector<std::byte> copy(is_here ? 0 : piece.values.bytes());
    Status status = placed.read(parameter, piece,
                                is_here ? static_cast<std::byte*>(piece.values.data) : copy.data());
    if (status.ok() && !is_here) status = model.write(piece.values, copy.data());
    if (!status.ok()) return status;
  }
  return {};
}

Status load(DataParallel& model, const std::string& folder, std::span<const FolderTensor> tensors,
            std::span<const std::string> ignored) {
  Group& group = model.everyone();
  const auto placed = or_exhausted([&] { return look(model, folder, tensors, ignored); });
  if (Status status = agree(group, placed.status()); !status.ok()) return status;
  const auto read = [&](const std::vector<StatePiece>& pieces, std::string_view name) {
    return agree(group, or_exhausted([&] { return read_state(model, *placed, pieces, name); }));
  };
  if (Status status = read(model.weights(), kWeightState); !status.ok()) return status;
  if (Status status = model.adopt_parameters(); !status.ok()) return status;
  if (Status status = read(model.state(), kMainState); !status.ok()) return status;
  return model.adopt_state(0);
}

}  // namespace
}  // namespace tutti::checkpoint

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

Status load_weights(DataParallel& model, const std::string& folder,
                    std::span<const FolderTensor> tensors, std::span<const std::string> ignored) {
  return checkpoint::load(model, folder, tensors, ignored);
}

Status may_load_weights(const std::string& folder, std::span<const FolderTensor> tensors,
                        std::span<const std::string> ignored) {
  return checkpoint::PlacedTensors::open(folder, tensors, ignored).status();
}

}  // namespace v1
}  // namespace tutti::train
