#include "tuner/machine.hpp"

#include <fmt/format.h>

#include "tuner/built_in.hpp"

namespace tutti::tuner {
namespace {

template <std::size_t N>
Curve curve_of(const Curve::Knot (&knots)[N]) {
  return *Curve::from_knots({std::begin(knots), std::end(knots)});
}

Machine make_built_in() {
  Machine machine;
  machine.name = kBuiltInName;
  machine.date = kBuiltInDate;
  machine.memory = {kMemoryLatency, kMemoryMessage, 0, curve_of(kMemoryBytes), false};
  machine.tcp = {kTcpLatency, kTcpMessage, kTcpByte, curve_of(kTcpBytes), false};
  machine.copy = curve_of(kCopy);
  machine.fold = curve_of(kFold);
  machine.pull = curve_of(kPull);
  machine.meet = curve_of(kMeet);
  return machine;
}

std::string size_text(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:g}M", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:g}K", bytes / (1 << 10));
  return fmt::format("{:g}", bytes);
}

// "4K 170.2  64K 40.1 …", in GB/s.
std::string rates(const Curve& curve) {
  if (curve.empty()) return "  not known";
  std::string text;
  for (const auto& knot : curve.knots())
    text += fmt::format("  {} {:.3g}", size_text(knot.bytes),
                        knot.seconds > 0 ? knot.bytes / knot.seconds * 1e-9 : 0.0);
  return text;
}

std::string link_line(const char* name, const LinkCost& link) {
  return fmt::format("  {:<7}{:>8.2f} us{:>8.2f} us/message  GB/s{}{}\n", name,
                     link.latency_s * 1e6, link.message_s * 1e6, rates(link.bytes),
                     (link.byte_s > 0 ? fmt::format("  core {:.3g}", 1e-9 / link.byte_s) : "") +
                         (link.measured ? "" : "  (built in)"));
}

}  // namespace

const Machine& built_in_machine() {
  static const Machine machine = make_built_in();
  return machine;
}

std::string describe(const Machine& machine) {
  std::string text =
      fmt::format("{}, {}, {}{}\n", machine.name.empty() ? "a machine" : machine.name,
                  machine.cores > 0 ? fmt::format("{} cores", machine.cores) : "a core per rank",
                  machine.date.empty() ? "no date" : machine.date,
                  machine.fingerprint.empty() ? "" : ", fingerprint " + machine.fingerprint);
  text += link_line("memory", machine.memory) + link_line("tcp", machine.tcp);
  text += fmt::format("  copy   GB/s{}\n  fold   GB/s{}\n  pull   GB/s{}\n  meet   us",
                      rates(machine.copy), rates(machine.fold), rates(machine.pull));
  for (const auto& knot : machine.meet.knots())
    text += fmt::format("  {:g} ranks {:.2f}", knot.bytes, knot.seconds * 1e6);
  return text;
}

}  // namespace tutti::tuner
