#include "mesh.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "group.hpp"
#include "tutti/mesh.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

using Axes = std::vector<std::pair<std::string, int>>;

// Both ends of a redistribution, in words, and the whole tensor.
struct Journey {
  std::string from, to;
  std::vector<std::int64_t> shape;
  tutti::Dtype dtype = tutti::Dtype::u8;

  auto key() const { return std::tuple(from, to, shape, dtype); }
};

class HeldMesh {
  template <class F>
  auto in_turn(F&& body) {
    const py::gil_scoped_release unlocked;
    const Turn turn(*group_);
    return body();
  }

 public:
  HeldMesh(std::shared_ptr<HeldGroup> group, const Axes& axes) : group_(std::move(group)) {
    tutti::MeshAxes made;
    for (const auto& [name, size] : axes) made.push_back({name, size});
    const std::shared_ptr<tutti::Group> members = group_->for_turn();
    mesh_ = unwrap(in_turn([&] { return tutti::Mesh::create(members, std::move(made)); }));
  }

  std::vector<int> coordinates(int rank) const { return mesh_->coordinates(rank); }
  int rank_at(const std::vector<int>& coordinates) const { return mesh_->rank_at(coordinates); }
  std::string describe() const { return mesh_->describe(); }

  std::shared_ptr<HeldGroup> along(const std::vector<std::string>& names) {
    const std::vector<std::string_view> words(names.begin(), names.end());
    return std::make_shared<HeldGroup>(unwrap(in_turn([&] { return mesh_->along_axes(words); })));
  }

  const tutti::RedistributionPlan& plan(const Journey& journey) {
    if (const auto known = plans_.find(journey.key()); known != plans_.end()) return known->second;
    const auto layout = [&](const std::string& words) {
      return tutti::TensorLayout{mesh_->axes(), unwrap(tutti::parse_placements(words)),
                                 journey.shape, journey.dtype};
    };
    auto made = unwrap(
        tutti::plan_redistribution(layout(journey.from), layout(journey.to), mesh_->costs()));
    return plans_.emplace(journey.key(), std::move(made)).first->second;
  }

  std::vector<std::int64_t> own_shape(const Journey& journey) {
    return plan(journey).to.box(mesh_->coordinates()).shape;
  }

  // Contiguous arrays of the plan's type.
  void redistribute(const py::array& input, py::array& output, const Journey& journey) {
    const tutti::RedistributionPlan& planned = plan(journey);
    const std::size_t bytes = size_of(journey.dtype);
    const tutti::ConstBuffer from(input.data(), input.nbytes() / bytes, journey.dtype);
    const tutti::Buffer to{output.mutable_data(), output.nbytes() / bytes, journey.dtype};
    check(in_turn([&] { return tutti::redistribute(*mesh_, planned, from, to); }));
  }

 private:
  std::shared_ptr<HeldGroup> group_;
  std::shared_ptr<tutti::Mesh> mesh_;
  std::map<std::tuple<std::string, std::string, std::vector<std::int64_t>, tutti::Dtype>,
           tutti::RedistributionPlan>
      plans_;
};

Journey journey_of(std::string from, std::string to, std::vector<std::int64_t> shape, int dtype) {
  return {std::move(from), std::move(to), std::move(shape), static_cast<tutti::Dtype>(dtype)};
}

}  // namespace

void bind_mesh(py::module_& module) {
  py::class_<HeldMesh, std::shared_ptr<HeldMesh>>(module, "Mesh")
      .def(py::init<std::shared_ptr<HeldGroup>, Axes>())
      .def("coordinates", &HeldMesh::coordinates)
      .def("rank_at", &HeldMesh::rank_at)
      .def("describe", &HeldMesh::describe)
      .def("along", &HeldMesh::along)
      .def("explain",
           [](HeldMesh& mesh, std::string from, std::string to, std::vector<std::int64_t> shape,
              int dtype) {
             return tutti::describe(
                 mesh.plan(journey_of(std::move(from), std::move(to), std::move(shape), dtype)));
           })
      .def("own_shape",
           [](HeldMesh& mesh, std::string from, std::string to, std::vector<std::int64_t> shape,
              int dtype) {
             return mesh.own_shape(
                 journey_of(std::move(from), std::move(to), std::move(shape), dtype));
           })
      .def("redistribute",
           [](HeldMesh& mesh, const py::array& input, py::array output, std::string from,
              std::string to, std::vector<std::int64_t> shape, int dtype) {
             mesh.redistribute(input, output,
                               journey_of(std::move(from), std::move(to), std::move(shape), dtype));
           });
}

}  // namespace tutti_python
