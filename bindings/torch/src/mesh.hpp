// mesh.hpp - tutti::Mesh for tensors: ranks of a backend along named axes, and redistribution of what they
// hold.
//
// Plans          are kept: a tensor of the same shape, type and placements is planned once.
// Thread-safety  one thread at a time for each object.
// Failure        thrown as Failure.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "tensors.hpp"
#include "tutti/mesh.hpp"

namespace tutti_torch {

class TensorMesh {
 public:
  // Collective over the group.
  TensorMesh(Backend& group, const std::vector<std::pair<std::string, int>>& axes);

  std::vector<std::pair<std::string, int>> axes() const;
  std::vector<int> coordinates(int rank) const { return mesh().coordinates(rank); }
  int rank_at(const std::vector<int>& coordinates) const { return mesh().rank_at(coordinates); }
  std::string describe() const { return mesh().describe(); }

  // Placements are words: "shard(0)", "replicate", "partial(sum)". `shape` is the whole tensor's.
  struct Move {
    std::string from, to;
    std::vector<std::int64_t> shape;
  };
  // From what every rank holds. Collective.
  std::vector<std::int64_t> whole_shape(const at::Tensor& local, const std::string& from);
  at::Tensor redistribute(const at::Tensor& local, const Move& move);
  std::string explain(const Move& move, at::ScalarType type);
  // Lets go of the mesh's groups.
  void close() { mesh_.reset(); }

 private:
  tutti::Mesh& mesh() const;
  const tutti::RedistributionPlan& plan(const Move& move, tutti::Dtype dtype);
  std::vector<std::int64_t> own_shape(const tutti::TensorLayout& layout) const;

  std::shared_ptr<tutti::Mesh> mesh_;  // null: closed
  std::map<std::string, tutti::RedistributionPlan> plans_;
};

}  // namespace tutti_torch
