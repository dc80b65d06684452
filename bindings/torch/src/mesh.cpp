#include "mesh.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "errors.hpp"

namespace tutti_torch {
namespace {

constexpr const char* kRedistribute = "redistribute";

std::string shape_words(const std::vector<std::int64_t>& shape) {
  std::string words = "(";
  for (const std::int64_t length : shape)
    words += (words.size() > 1 ? ", " : "") + std::to_string(length);
  return words + ")";
}

tutti::Dtype dtype_of(const at::Tensor& tensor) {
  check_tensor(kRedistribute, tensor);
  const Elements elements = elements_of(tensor);
  if (elements.per_element != 1)
    refuse(kRedistribute, std::string("tensors of type ") + c10::toString(tensor.scalar_type()) +
                              " are not redistributed; view them as numbers");
  return elements.dtype;
}

// Where the other coordinates are 0: the lengths there add up to the whole.
bool stands_first(const tutti::TensorLayout& layout, const tutti::Coordinates& at, int dimension) {
  for (std::size_t axis = 0; axis < at.size(); ++axis)
    if (layout.placements[axis] != tutti::shard(dimension) && at[axis] != 0) return false;
  return true;
}

}  // namespace

TensorMesh::TensorMesh(Backend& group, const std::vector<std::pair<std::string, int>>& axes) {
  tutti::MeshAxes made;
  for (const auto& [name, size] : axes) made.push_back({name, size});
  mesh_ = take(tutti::Mesh::create(group.group(), std::move(made)));
}

tutti::Mesh& TensorMesh::mesh() const {
  if (!mesh_) throw Failure(tutti::Status(tutti::Code::aborted, "this mesh was closed"));
  return *mesh_;
}

std::vector<std::pair<std::string, int>> TensorMesh::axes() const {
  std::vector<std::pair<std::string, int>> axes;
  for (const tutti::MeshAxis& axis : mesh().axes()) axes.emplace_back(axis.name, axis.size);
  return axes;
}

std::vector<std::int64_t> TensorMesh::whole_shape(const at::Tensor& local,
                                                  const std::string& from) {
  tutti::TensorLayout layout{mesh().axes(), take(tutti::parse_placements(from)), {}};
  layout.shape.assign(static_cast<std::size_t>(local.dim()), 1);
  check(layout.check());
  const std::vector<std::int64_t> own = local.sizes().vec();
  std::vector<std::int64_t> all(own.size() * mesh().ranks().size());
  check(mesh().group()->all_gather(tutti::ConstBuffer::of(own), tutti::Buffer::of(all)));
  std::vector<std::int64_t> whole(own.size(), 0);
  for (std::size_t rank = 0; rank < mesh().ranks().size(); ++rank)
    for (std::size_t i = 0; i < own.size(); ++i)
      if (stands_first(layout, mesh().coordinates(static_cast<int>(rank)), static_cast<int>(i)))
        whole[i] += all[rank * own.size() + i];
  return whole;
}

const tutti::RedistributionPlan& TensorMesh::plan(const Move& move, tutti::Dtype dtype) {
  const std::string key = move.from + " to " + move.to + " " + shape_words(move.shape) + " " +
                          std::string(tutti::to_string(dtype));
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  const auto layout = [&](const std::string& words) {
    return tutti::TensorLayout{mesh().axes(), take(tutti::parse_placements(words)), move.shape,
                               dtype};
  };
  auto made = take(tutti::plan_redistribution(layout(move.from), layout(move.to), mesh().costs()));
  return plans_.emplace(key, std::move(made)).first->second;
}

std::vector<std::int64_t> TensorMesh::own_shape(const tutti::TensorLayout& layout) const {
  return layout.box(mesh().coordinates()).shape;
}

// What is on a GPU goes through CPU memory: boxes are packed there.
at::Tensor TensorMesh::redistribute(const at::Tensor& local, const Move& move) {
  const tutti::RedistributionPlan& planned = plan(move, dtype_of(local));
  if (const auto expected = own_shape(planned.from); local.sizes() != expected)
    refuse(kRedistribute, "this rank holds a tensor of " + shape_of(local) + "; as (" + move.from +
                              ") of " + shape_words(move.shape) + " it has " +
                              shape_words(expected));
  const at::Tensor input = local.detach().to(at::kCPU).contiguous();
  at::Tensor output = at::empty(own_shape(planned.to), input.options());
  const auto lent = [&](const at::Tensor& tensor) {
    return tutti::Buffer{tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                         planned.from.dtype};
  };
  check(tutti::redistribute(mesh(), planned, lent(input), lent(output)));
  return output.to(local.device());
}

std::string TensorMesh::explain(const Move& move, at::ScalarType type) {
  return tutti::describe(plan(move, dtype_of(at::empty({0}, at::TensorOptions().dtype(type)))));
}

}  // namespace tutti_torch
