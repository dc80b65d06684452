#include "group.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "failure.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

using tutti::Group;
using tutti::GroupOptions;
using Made = tutti::Result<std::shared_ptr<Group>>;
using Seconds = std::chrono::duration<double>;

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      Seconds(std::clamp(seconds, 0.0, 1e9)));
}

tutti::ReductionOrder order_of(const std::string& word) {
  if (const auto order = tutti::parse_reduction_order(word)) return *order;
  raise(tutti::Code::invalid_argument,
        "reduction_order is 'any', 'rank' or 'tree', not '" + word + "'");
}

tutti::GroupSpec spec_of(const std::string& name, const std::optional<std::string>& order,
                         const std::string& urgency) {
  tutti::GroupSpec spec;
  spec.name = name;
  if (order) spec.reduction_order = order_of(*order);
  for (const auto each : {tutti::Urgency::bulk, tutti::Urgency::normal, tutti::Urgency::urgent}) {
    spec.urgency = each;
    if (urgency == to_string(each)) return spec;
  }
  raise(tutti::Code::invalid_argument,
        "urgency is 'bulk', 'normal' or 'urgent', not '" + urgency + "'");
}

GroupOptions options_of(int rank, int size, std::string name, const std::string& order,
                        std::optional<double> timeout, std::optional<double> join_timeout,
                        std::string secret, bool survives_losses) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.name = std::move(name);
  options.reduction_order = order_of(order);
  options.secret = std::move(secret);
  options.survives_losses = survives_losses;
  if (timeout || join_timeout) {
    options.config = unwrap(tutti::Config::from_environment());
    if (timeout) options.config->timeout = nanoseconds(*timeout);
    if (join_timeout) options.config->join_timeout = nanoseconds(*join_timeout);
  }
  return options;
}

// Runs `make` without the interpreter's lock: it meets other ranks.
template <class F>
std::shared_ptr<HeldGroup> made_by(F&& make) {
  Made made = [&] {
    const py::gil_scoped_release unlocked;
    return make();
  }();
  std::shared_ptr<Group> group = unwrap(std::move(made));
  return group ? std::make_shared<HeldGroup>(std::move(group)) : nullptr;
}

// The same for what all ranks of `parent` do together.
template <class F>
std::shared_ptr<HeldGroup> made_from(HeldGroup& parent, F&& make) {
  const std::shared_ptr<Group> group = parent.for_turn();
  return made_by([&] {
    const Turn turn(parent);
    return make(*group);
  });
}

py::tuple predict(HeldGroup& self, int collective, std::size_t bytes) {
  const auto prediction =
      unwrap(self.get()->predict(static_cast<tutti::Collective>(collective), bytes));
  return py::make_tuple(Seconds(prediction.time).count(),
                        Seconds(prediction.symmetric_time).count(),
                        std::string(to_string(prediction.algorithm)));
}

void bind_making(GroupClass& group) {
  group
      .def_static("create",
                  [](std::shared_ptr<tutti::Store> store, int rank, int size, std::string name,
                     const std::string& order, std::optional<double> timeout,
                     std::optional<double> join_timeout, std::string secret, bool survives_losses) {
                    GroupOptions options =
                        options_of(rank, size, std::move(name), order, timeout, join_timeout,
                                   std::move(secret), survives_losses);
                    return made_by([&] { return Group::create(store, options); });
                  })
      .def_static("join",
                  [](std::shared_ptr<tutti::Store> store, std::string name,
                     const std::string& order, std::optional<double> timeout,
                     std::optional<double> join_timeout, std::string secret, bool survives_losses) {
                    GroupOptions options =
                        options_of(-1, -1, std::move(name), order, timeout, join_timeout,
                                   std::move(secret), survives_losses);
                    return made_by([&] { return Group::join(store, options); });
                  })
      .def_static("from_environment",
                  [](std::string name, const std::string& order, std::optional<double> timeout,
                     std::optional<double> join_timeout, bool survives_losses) {
                    GroupOptions options = options_of(-1, -1, std::move(name), order, timeout,
                                                      join_timeout, "", survives_losses);
                    return made_by([&] { return Group::from_environment(options); });
                  })
      .def("split",
           [](HeldGroup& self, int color, int key, const std::string& name,
              const std::optional<std::string>& order, const std::string& urgency) {
             const auto spec = spec_of(name, order, urgency);
             return made_from(self, [&](Group& g) { return g.split(color, key, spec); });
           })
      .def("subgroup",
           [](HeldGroup& self, const std::vector<int>& ranks, std::uint32_t tag,
              const std::string& name, const std::optional<std::string>& order,
              const std::string& urgency) {
             const auto spec = spec_of(name, order, urgency);
             return made_from(self, [&](Group& g) { return g.subgroup(ranks, tag, spec); });
           })
      .def("duplicate",
           [](HeldGroup& self, const std::string& name, const std::optional<std::string>& order,
              const std::string& urgency) {
             const auto spec = spec_of(name, order, urgency);
             return made_from(self, [&](Group& g) { return g.duplicate(spec); });
           })
      .def("shrink",
           [](HeldGroup& self, const std::string& name, std::optional<double> timeout) {
             const auto patience =
                 std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(timeout.value_or(0)));
             return made_from(self, [&](Group& g) { return g.shrink(name, patience); });
           })
      .def("grow", [](HeldGroup& self, std::shared_ptr<tutti::Store> store, int most,
                      std::string name, std::string secret) {
        GroupOptions options;
        options.name = std::move(name);
        options.secret = std::move(secret);
        return made_from(self, [&](Group& g) { return g.grow(store, most, options); });
      });
}

}  // namespace

const std::shared_ptr<Group>& HeldGroup::get() const {
  if (!group_) raise(tutti::Code::invalid_argument, "the group was closed");
  return group_;
}

std::shared_ptr<Group> HeldGroup::for_turn() const {
  if (whose_turn_.load(std::memory_order_relaxed) == std::this_thread::get_id())
    raise(tutti::Code::invalid_argument,
          "this thread is in another call on the group: a signal handler may not start one");
  return get();
}

void HeldGroup::close() {
  std::shared_ptr<Group> group = std::move(group_);
  group_ = nullptr;
  if (!group) return;
  const py::gil_scoped_release unlocked;
  group.reset();
}

void bind_group(GroupClass& group) {
  bind_making(group);
  group.def("rank", [](HeldGroup& self) { return self.get()->rank(); })
      .def("hosts", [](HeldGroup& self) { return self.get()->hosts(); })
      .def("label_ranks",
           [](HeldGroup& self, const std::vector<std::string>& labels) {
             check(self.get()->label_ranks(labels));
           })
      .def("size", [](HeldGroup& self) { return self.get()->size(); })
      .def("name", [](HeldGroup& self) { return self.get()->name(); })
      .def("reduction_order",
           [](HeldGroup& self) { return std::string(to_string(self.get()->reduction_order())); })
      .def("describe", [](HeldGroup& self) { return self.get()->describe(); })
      .def("predict", &predict)
      .def("abort",
           [](HeldGroup& self, const std::string& reason) {
             const std::shared_ptr<Group> held = self.get();
             const py::gil_scoped_release unlocked;
             held->abort(reason);
           })
      .def("check_health", [](HeldGroup& self) { check(self.get()->health()); })
      .def("close", &HeldGroup::close)
      .def("closed", &HeldGroup::closed);
}

}  // namespace tutti_python
