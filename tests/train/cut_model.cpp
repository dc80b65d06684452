#include "train/cut_model.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "train/kernels.hpp"
#include "train/tensor_box.hpp"

namespace tutti::test {
namespace {

constexpr std::int64_t kHeads = 4, kWidth = 3, kHidden = kHeads * kWidth;

// Something between -1 and 1 with as many bits as f32 has.
float noise(const std::string& name, std::size_t element, int a, int b) {
  std::uint64_t x = std::hash<std::string>()(name) ^ element * 0x9e3779b97f4a7c15ULL;
  x ^= static_cast<std::uint64_t>(a) * 0xd1b54a32d192ed03ULL + static_cast<std::uint64_t>(b) * 7919;
  for (const int shift : {30, 27, 31}) x = (x ^ x >> shift) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<float>(static_cast<double>(x >> 40) / (1 << 23) - 1);
}

// The part of `whole` elements that rank `rank` of `ranks` has; the first ones have one more.
std::pair<std::int64_t, std::int64_t> part_of(std::int64_t whole, int rank, int ranks) {
  const std::int64_t more = whole % ranks;
  return {whole / ranks * rank + std::min<std::int64_t>(rank, more),
          whole / ranks + (rank < more ? 1 : 0)};
}

std::vector<std::int64_t> shape_of(const train::TensorBox& box,
                                   const std::vector<std::int64_t>& whole) {
  if (box.whole.empty()) return whole;
  return {static_cast<std::int64_t>(train::count_of(box.extent))};
}

}  // namespace

std::string to_string(const CutLayout& layout) {
  return "dp " + std::to_string(layout.dp) + ", tp " + std::to_string(layout.tp) + ", pp " +
         std::to_string(layout.pp);
}

CutModel::CutModel(std::shared_ptr<Group> world, const CutOptions& options) : options_(options) {
  const CutLayout& cut = options.layout;
  EXPECT_EQ(world->size(), cut.ranks());
  const int rank = world->rank();
  t_ = rank % cut.tp;
  d_ = rank / cut.tp % cut.dp;
  p_ = rank / cut.tp / cut.dp;
  const auto split = [&](int color, const char* name) {
    auto group = world->split(color, rank, {name});
    EXPECT_TRUE(group.ok()) << group.status().to_string();
    return *group;
  };
  groups_.data = split(p_ * cut.tp + t_, "data");
  groups_.everyone = world;
  groups_.part = "pp " + std::to_string(p_) + ", tp " + std::to_string(t_);
  const bool is_end = cut.pp > 1 && (p_ == 0 || p_ == cut.pp - 1);
  groups_.sums = {split(p_ * cut.dp + d_, "tp"), split(is_end ? d_ * cut.tp + t_ : -1, "ends")};
  define(p_);
  std::vector<train::Parameter> parameters;
  for (Tensor& tensor : tensors_) {
    tensor.parameter.value.data = tensor.values.data();
    if (options_.change) options_.change(tensor.parameter);
    parameters.push_back(tensor.parameter);
  }
  auto layer = train::DataParallel::create(groups_, parameters, options.train);
  status_ = layer.status();
  if (layer.ok()) layer_ = *std::move(layer);
}

void CutModel::define(int stage) {
  const CutLayout& cut = options_.layout;
  const auto [row, rows] = part_of(7, t_, cut.tp);
  const auto [head, heads] = part_of(kHeads, t_, cut.tp);
  const auto [column, columns] = part_of(kHidden, t_, cut.tp);
  const auto add_table = [&, row = row, rows = rows](bool counted) {
    add("table", {7, 3}, {{7, 3}, {row, 0}, {rows, 3}}, options_.dtype);
    tensors_.back().parameter.place.counted = counted;
    if (cut.pp == 1) return;
    tensors_.back().parameter.place.sum = 1;
    tensors_.back().share = 0.5;
  };
  if (stage == 0) add_table(true);
  const auto [first, count] = part_of(options_.layers, stage, cut.pp);
  for (std::int64_t layer = first; layer < first + count; ++layer) {
    const std::string name = std::to_string(layer) + ".";
    add(name + "qkv", {3 * kHidden, kHidden},
        {{3, kHeads, kWidth, kHidden}, {0, head, 0, 0}, {3, heads, kWidth, kHidden}},
        options_.dtype);
    add(name + "proj", {kHidden, kHidden}, {{kHidden, kHidden}, {0, column}, {kHidden, columns}},
        options_.dtype);
    for (const char* kind : {"norm", "bias", "still"}) {
      const bool still = std::string(kind) == "still";
      add(name + kind, {still ? 5 : kHidden}, {}, Dtype::f32);
      tensors_.back().parameter.frozen = still;
      tensors_.back().parameter.place.counted = t_ == 0;
    }
    tensors_[tensors_.size() - 3].parameter.place.sum = 0;
    tensors_[tensors_.size() - 3].share = t_ == 0 ? 1 : 0;
  }
  if (stage == cut.pp - 1 && cut.pp > 1) add_table(false);
}

void CutModel::add(std::string name, std::vector<std::int64_t> shape, train::TensorBox box,
                   Dtype dtype) {
  Tensor tensor;
  tensor.parameter.name = std::move(name);
  tensor.parameter.shape = shape_of(box, shape);
  tensor.parameter.place.whole_shape = std::move(shape);
  tensor.parameter.place.box = std::move(box);
  tensor.parameter.value.dtype = dtype;
  tensor.parameter.value.count = train::count_of(tensor.parameter.shape);
  const train::TensorBox place = train::box_of(tensor.parameter);
  for (const train::ElementRun& run : train::runs_of(place, 0, tensor.parameter.count()))
    for (std::size_t i = 0; i < run.count; ++i) tensor.elements.push_back(run.tensor + i);
  tensor.values.resize(tensor.parameter.value.bytes());
  for (std::size_t i = 0; i < tensor.elements.size() && options_.version >= 0; ++i) {
    const float value = noise(tensor.parameter.name, tensor.elements[i], 0, options_.version);
    if (dtype == Dtype::f32)
      std::memcpy(tensor.values.data() + 4 * i, &value, 4);
    else
      train::narrow(dtype, &value, reinterpret_cast<std::uint16_t*>(tensor.values.data()) + i, 1);
  }
  tensors_.push_back(std::move(tensor));
}

void CutModel::add_gradient(std::size_t index, int number, const Pass& pass) {
  const Tensor& tensor = tensors_[index];
  if (tensor.parameter.frozen || tensor.parameter.name == pass.skipped) return;
  auto* into = static_cast<float*>(layer_->gradient(index).data);
  if (into == nullptr) return;  // the layer has failed, and will say so
  for (std::size_t i = 0; i < tensor.elements.size(); ++i)
    into[i] += static_cast<float>(tensor.share) *
               noise(tensor.parameter.name, tensor.elements[i], number + 1, d_);
  if (tensor.parameter.name == pass.poisoned) into[0] = std::numeric_limits<float>::quiet_NaN();
  layer_->ready(index);
}

std::string CutModel::state() {
  std::string text;
  for (const train::StatePiece& piece : layer_->state()) {
    const Tensor& tensor = tensors_[piece.parameter];
    const auto* bits = static_cast<const std::uint32_t*>(piece.values.data);
    for (std::size_t i = 0; i < piece.values.count; ++i)
      text += fmt::format("{} {} {} {:x}\n", tensor.parameter.name, piece.name,
                          tensor.elements[piece.first + i], bits[i]);
  }
  const auto counts = layer_->step_counts();
  for (std::size_t i = 0; i < counts.size(); ++i)
    text += fmt::format("{} steps 0 {}\n", tensors_[i].parameter.name, counts[i]);
  return text;
}

Result<train::StepReport> CutModel::step(int number, const Pass& pass) {
  for (int micro = 0; micro < pass.micro_batches; ++micro) {
    Status status = layer_->begin_micro_batch(micro + 1 == pass.micro_batches);
    for (std::size_t i = 0; i < tensors_.size() && status.ok(); ++i) status = layer_->need(i);
    if (!status.ok()) return status;
    layer_->begin_backward();
    for (std::size_t i = tensors_.size(); i-- > 0;)
      add_gradient(i, number * pass.micro_batches + micro, pass);
    if (status = layer_->end_backward(); !status.ok()) return status;
  }
  return layer_->step({.lr = 0.05, .tokens = pass.tokens});
}

}  // namespace tutti::test
