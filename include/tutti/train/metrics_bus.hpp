// tutti/train/metrics_bus.hpp - what a step wants to log, summed over the ranks without holding it up.
//
// All scalars of a step go into one f64 vector, all_reduced on a group of their own, whose messages
// never queue behind a bucket. Asynchronous: read when it is printed, by the end of the next step.
// Synchronous: the same vector, waited for at once; the values have the same bits.
//
// Ordering       publish is collective, and all ranks add the same names in the same order; a
//                difference is Code::mismatch naming the step.
// Thread-safety  one thread at a time.
//
//   bus->add("loss_sum", loss_sum);
//   bus->add("tokens", tokens);
//   bus->publish(step);
//   while (auto line = bus->take(false); line.ok() && *line) print(**line);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/group.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

struct Metrics {
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> sums;  // in the order they were added
  // Absent when there is no such name.
  std::optional<double> find(std::string_view name) const;
};

class MetricsBus {
 public:
  // Collective: makes a copy of `group` that folds in rank order.
  static Result<std::unique_ptr<MetricsBus>> create(Group& group, bool asynchronous);
  virtual ~MetricsBus() = default;

  // Twice the same name in a step: the values are added.
  virtual void add(std::string_view name, double value) = 0;
  // Collective. Waits for the result if the bus is synchronous, and for the step before the last if
  // that is still under way: two steps at most are.
  virtual Status publish(std::int64_t step) = 0;
  // The oldest step that was published and not taken, when it has come. `wait`: blocks for it.
  virtual Result<std::optional<Metrics>> take(bool wait) = 0;
};

}  // namespace v1
}  // namespace tutti::train
