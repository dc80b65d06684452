// bench/exchange.cpp - how much of an exchange hides behind compute, and does cutting a collective into
// pieces save what was predicted? bench/exchange runs it on one host and between emulated ones. By hand:
//
//   tutti run -n 4 build/bin/bench_exchange
//
// Compute sleeps. Times are those of the slowest rank, medians over the repeats:
//
//   wire       the same exchange with callbacks that return at once
//   compute    the callbacks alone
//   together   both
//   exposed    together − compute
//   must       of that: the last gradient's hop of a ring's way back, behind which nothing is left to compute
//   hidden     of the rest of the wire: 1 − (exposed − must) / (wire − must)
//   saved      wire + compute − together; of pieces: against one piece, together
//   predicted  by exchange::plan_pieces, from Group::predict
//   measured   what the wire as measured here lets one expect: of a ring all of it but the last gradient's hop, of
//              pieces by exchange::seconds_in_pieces
#include "tutti/exchange.hpp"

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/tutti.hpp"

namespace {

using tutti::Buffer;
using tutti::Collective;
using tutti::ConstBuffer;
using tutti::Group;
using tutti::bench::median_of;
using tutti::bench::now_us;
using tutti::exchange::RingArray;
using tutti::exchange::RingExchange;

[[noreturn]] void give_up(int code, const std::string& what) {
  std::fprintf(stderr, "bench_exchange: %s\n", what.c_str());
  std::_Exit(code);
}
void must(const tutti::Status& status) {
  if (!status.ok()) give_up(1, status.to_string());
}
template <class T>
T must(tutti::Result<T> result) {
  must(result.status());
  return *std::move(result);
}

// By a deadline: a late wake-up is not added to the next sleep.
void sleep_until_us(double moment_us) {
  const auto ns = static_cast<long long>(moment_us * 1e3);
  timespec when{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
}

struct Words {
  std::map<std::string, double> values = {{"--block-bytes", 1 << 20},
                                          {"--whole-bytes", 4 << 20},
                                          {"--ratio", 2},
                                          {"--piece-ratio", 1},
                                          {"--window", 0},
                                          {"--repeats", 9},
                                          {"--pieces", 0}};
  std::string out;

  Words(int count, char** words) {
    for (int i = 1; i < count; i += 2) {
      const std::string name = words[i];
      if (i + 1 == count) give_up(2, name + " needs a value");
      if (name == "--out") {
        out = words[i + 1];
        continue;
      }
      if (!values.contains(name)) give_up(2, "there is no option '" + name + "'");
      char* end = nullptr;
      values[name] = std::strtod(words[i + 1], &end);
      if (*end != 0 || values[name] < 0) give_up(2, name + " needs a number");
    }
  }
  double operator[](const char* name) const { return values.at(name); }
  std::size_t elements(const char* name) const {
    return static_cast<std::size_t>(values.at(name)) / sizeof(float);
  }
};

// An exchange whose callbacks take so long, in all; returns what the meter says.
using Exchange = std::function<tutti::exchange::ExchangeTimes(double compute_s)>;

struct Measured {
  double wire_s = 0, compute_s = 0, together_s = 0, meter_hidden = 1;
  double must_s = 0;  // what nothing can hide
  double exposed_s() const { return together_s - compute_s; }
  double hidden() const { return 1 - (exposed_s() - must_s) / (wire_s - must_s); }
  double saved_s() const { return wire_s + compute_s - together_s; }
};

class Bench {
 public:
  Bench(Group& group, const Words& words) : group_(group), words_(words) {
    if (group.rank() != 0) return;
    file_ = words.out.empty() ? stdout : std::fopen(words.out.c_str(), "a");
    if (file_ == nullptr) give_up(2, "cannot write " + words.out);
    std::fprintf(file_, "# %-14s %8s %8s %8s %8s %8s %7s %7s %8s %9s %9s\n", "times in ms", "wire",
                 "compute", "together", "exposed", "must", "hidden", "meter", "saved", "predicted",
                 "measured");
  }
  ~Bench() {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  }

  void rings() {
    auto ring =
        must(RingExchange::create(share(), {.window = static_cast<int>(words_["--window"])}));
    const std::size_t count = words_.elements("--block-bytes");
    std::vector<float> block(count, 1), gradient(count, 0);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(group_.size()), count);
    const RingArray blocks[] = {{block.data(), 1, tutti::Dtype::f32}};
    const RingArray gradients[] = {{gradient.data(), 1, tutti::Dtype::f32}};
    const auto paced = [&](double compute_s) {
      const double visit_us = compute_s * 1e6 / group_.size();
      return [visit_us](const tutti::exchange::RingVisit&) {
        if (visit_us > 0) sleep_until_us(now_us() + visit_us);
        return tutti::Status();
      };
    };
    const Exchange forward = [&](double s) { return must(ring->pass(counts, blocks, paced(s))); };
    const Exchange back = [&](double s) {
      return must(ring->pass_back(counts, blocks, gradients, paced(s)));
    };
    const double ratio = words_["--ratio"];
    const double wire_s = seconds_of(forward, 0);
    const double hop_s = wire_s / (group_.size() - 1);
    // Compute of a visit: ratio times a hop. Nothing of the wire should be left.
    const Measured ahead = measure(forward, ratio * hop_s * group_.size());
    print("ring", ahead, ahead.saved_s(), 0, wire_s);
    // There a block and a gradient cross the wire beside each visit; the last gradient has nothing to hide behind.
    const double back_s = seconds_of(back, 0);
    Measured returning = measure(back, ratio * back_s);
    returning.must_s = hop_s;
    print("ring back", returning, returning.saved_s(), 0, back_s - hop_s);
  }

  void pieces(Collective collective, const char* name) {
    const auto ranks = static_cast<std::size_t>(group_.size());
    const std::size_t rows = words_.elements("--whole-bytes") / ranks;
    const auto memory = must(group_.allocate((rows + rows * ranks) * sizeof(float)));
    auto* part = static_cast<float*>(memory.data);
    const std::vector<std::size_t> counts(ranks, rows);
    int pieces = 1;
    const Exchange cut = [&](double compute_s) {
      const double piece_us = compute_s * 1e6 / pieces;
      const auto callback = [&](const tutti::exchange::RowPiece&) {
        if (piece_us > 0) sleep_until_us(now_us() + piece_us);
        return tutti::Status();
      };
      const Buffer own = Buffer::of(part, rows), whole = Buffer::of(part + rows, rows * ranks);
      return must(
          collective == Collective::all_gather
              ? tutti::exchange::gather_in_pieces(group_, {counts, 1}, own, whole, pieces, callback)
              : tutti::exchange::scatter_in_pieces(group_, {counts, 1}, whole, own,
                                                   tutti::ReduceOp::sum, pieces, callback));
    };
    const double compute_s = words_["--piece-ratio"] * seconds_of(cut, 0);
    const auto plan = must(
        tutti::exchange::plan_pieces(group_, collective, rows * ranks * sizeof(float), compute_s));
    Measured measured = measure(cut, compute_s);  // in one piece: what it is compared with
    const double whole_s = measured.together_s;
    pieces = words_["--pieces"] > 0 ? static_cast<int>(words_["--pieces"]) : plan.pieces;
    measured.together_s = seconds_of(cut, compute_s, &measured.meter_hidden);
    const double by_wire_s =
        whole_s - tutti::exchange::seconds_in_pieces(pieces, measured.wire_s / pieces, compute_s);
    print(std::string(name) + " /" + std::to_string(pieces), measured,
          whole_s - measured.together_s, plan.saved_s(), by_wire_s);
  }

 private:
  // A handle that does not own: the group outlives the bench.
  std::shared_ptr<Group> share() { return {std::shared_ptr<Group>(), &group_}; }

  double seconds_of(const Exchange& exchange, double compute_s, double* hidden = nullptr) {
    std::vector<double> times, shares;
    const int repeats = static_cast<int>(words_["--repeats"]);
    for (int i = 0; i <= repeats; ++i) {
      must(group_.barrier());
      const double begin = now_us();
      const auto noted = exchange(compute_s);
      double took_s = (now_us() - begin) * 1e-6;
      double share = -noted.hidden();
      must(group_.all_reduce(Buffer::of(&took_s, 1), tutti::ReduceOp::max));
      must(group_.all_reduce(Buffer::of(&share, 1), tutti::ReduceOp::max));
      if (i == 0) continue;  // the first meets cold memory
      times.push_back(took_s);
      shares.push_back(-share);
    }
    if (hidden != nullptr) *hidden = median_of(shares);
    return median_of(times);
  }

  Measured measure(const Exchange& exchange, double compute_s) {
    Measured measured;
    measured.compute_s = compute_s;
    measured.wire_s = seconds_of(exchange, 0);
    measured.together_s = seconds_of(exchange, compute_s, &measured.meter_hidden);
    return measured;
  }

  void print(const std::string& name, const Measured& measured, double saved_s, double predicted_s,
             double by_wire_s) {
    if (file_ == nullptr) return;
    std::fprintf(file_, "  %-14s %8.2f %8.2f %8.2f %8.2f %8.2f %6.1f%% %6.1f%% %8.2f", name.c_str(),
                 1e3 * measured.wire_s, 1e3 * measured.compute_s, 1e3 * measured.together_s,
                 1e3 * measured.exposed_s(), 1e3 * measured.must_s, 1e2 * measured.hidden(),
                 1e2 * measured.meter_hidden, 1e3 * saved_s);
    if (predicted_s > 0)
      std::fprintf(file_, " %9.2f", 1e3 * predicted_s);
    else
      std::fprintf(file_, " %9s", "-");
    std::fprintf(file_, " %9.2f\n", 1e3 * by_wire_s);
    std::fflush(file_);
  }

  Group& group_;
  const Words& words_;
  std::FILE* file_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  const Words words(count, arguments);
  const auto group = must(Group::from_environment());
  if (group->size() < 2)
    give_up(2, "start it with two ranks or more: tutti run -n 4 bench_exchange");
  Bench bench(*group, words);
  bench.rings();
  bench.pieces(Collective::all_gather, "gather");
  bench.pieces(Collective::reduce_scatter, "scatter");
  return 0;
}
