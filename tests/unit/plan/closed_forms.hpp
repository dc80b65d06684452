// The textbooks' formulas of collective algorithms: what the event loop is held against.
//
// p ranks on one kind of wire, n bytes of the whole array; α, o, β and γ are the seconds of a message,
// of handling one, of a byte on the wire and of a byte folded. docs/algorithms/simulator.md has them
// as a table.
#pragma once

#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "tutti/types.hpp"

namespace tutti::plan {

struct ClosedForm {
  Collective collective;
  Algorithm algorithm;
  bool any_number;  // of ranks; else only powers of two
  std::function<double(double p, double n)> seconds;
};

struct Textbook {
  double alpha, o, beta, gamma;

  std::vector<ClosedForm> forms() const {
    using C = Collective;
    using A = Algorithm;
    const auto [a, o, b, g] = *this;
    const auto lg = [](double p) { return std::ceil(std::log2(p)); };
    // A root begins a message every `gap`; the last one still has to arrive.
    const auto fan = [=](double p, double n) { return (p - 2) * std::max(o, n * b) + a + n * b; };
    const auto round = [=](double p, double n) { return (p - 1) * (a + n / p * b); };
    const auto doubling = [=](double p, double n) { return lg(p) * a + (p - 1) / p * n * b; };
    const auto folded = [=](double p, double n) { return (p - 1) / p * n * g; };
    return {
        {C::all_reduce, A::ring, true,
         [=](double p, double n) { return 2 * round(p, n) + folded(p, n); }},
        {C::all_reduce, A::recursive_doubling, false,
         [=](double p, double n) { return lg(p) * (a + n * b + n * g); }},
        {C::all_reduce, A::halving_doubling, false,
         [=](double p, double n) { return 2 * doubling(p, n) + folded(p, n); }},
        {C::broadcast, A::binomial_tree, false,
         [=](double p, double n) { return lg(p) * (a + n * b); }},
        {C::broadcast, A::linear, true, fan},
        {C::gather, A::binomial_tree, false, doubling},
        {C::scatter, A::binomial_tree, false, doubling},
        {C::scatter, A::linear, true, [=](double p, double n) { return fan(p, n / p); }},
        {C::scatter, A::direct, true, [=](double p, double n) { return fan(p, n / p); }},
        {C::all_gather, A::ring, true, round},
        {C::all_gather, A::recursive_doubling, false, doubling},
        {C::all_gather, A::hypercube, false, doubling},
        {C::reduce_scatter, A::ring, true,
         [=](double p, double n) { return round(p, n) + folded(p, n); }},
        {C::reduce_scatter, A::halving_doubling, false,
         [=](double p, double n) { return doubling(p, n) + folded(p, n); }},
        {C::all_to_all, A::bruck, false,
         [=](double p, double n) { return lg(p) * (a + n / 2 * b); }},
        {C::barrier, A::binomial_tree, false, [=](double p, double) { return 2 * lg(p) * a; }},
        {C::barrier, A::recursive_doubling, true, [=](double p, double) { return lg(p) * a; }},
        {C::scan, A::linear, true,
         [=](double p, double n) { return (p - 1) * (a + n * b + n * g); }},
    };
  }
};

}  // namespace tutti::plan
