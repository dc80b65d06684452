// cost/curve.hpp - what something costs by its size: monotone, piecewise linear.
//
//   seconds          ,·'      Straight lines from the origin through the knots, and on from the last
//      │        _,-·'         one as between the last two, at its mean cost per byte at least: a link
//      │  __,-·'              whose first bytes go at another speed. More never costs less. Knots usually
//      │ ·                    lie at sizes that grow by a constant factor, where costs are measured.
//      └──┴────┴──────▶ bytes
//
//   const Curve copy = Curve::fit(samples);
//   copy.seconds(65536);               a copy of 64 KiB, by itself
//   copy.share(65536, 16 << 20);       64 KiB of a copy of 16 MiB: no longer at cache speed
//
// Thread-safety  a value; const methods may run at once.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::cost {

// One measurement.
struct Sample {
  double bytes = 0;
  double seconds = 0;
};

class Curve {
 public:
  struct Knot {
    double bytes = 0;
    double seconds = 0;
    friend bool operator==(const Knot&, const Knot&) = default;
  };

  // Costs nothing, or: is not known.
  Curve() = default;
  // The monotone curve nearest to the samples: the median of each size, and by isotonic regression
  // one common value where a larger size seemed cheaper. Errors count by their ratio, because
  // disturbances do. Samples without positive size and time are passed over.
  static Curve fit(std::span<const Sample> samples);
  // Code::invalid_argument unless sizes are positive and rise, and seconds are finite, not negative
  // and do not fall.
  static Result<Curve> from_knots(std::vector<Knot> knots);

  bool empty() const { return knots_.empty(); }
  const std::vector<Knot>& knots() const { return knots_; }

  double seconds(double bytes) const;
  // What `bytes` bytes cost at the mean cost of something that handles `whole` bytes.
  double share(double bytes, double whole) const;

  friend bool operator==(const Curve&, const Curve&) = default;

 private:
  std::vector<Knot> knots_;
};

}  // namespace tutti::cost
