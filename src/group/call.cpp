#include "group/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>

namespace tutti::group {
namespace {

using engine::Launch;
using engine::Piece;

Status invalid(const Call& call, const std::string& what) {
  return {Code::invalid_argument, fmt::format("{}: {}", to_string(call.collective), what)};
}

std::size_t total_of(const std::vector<Piece>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                         [](std::size_t sum, const Piece& piece) { return sum + piece.bytes; });
}

bool is_even(const std::vector<Piece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const Piece& piece) { return piece.bytes == pieces[0].bytes; });
}

// Makes a launch of one call; each step returns what is wrong.
class Resolver {
 public:
  Resolver(const Call& call, const Setting& setting)
      : call_(call), setting_(setting), n_(static_cast<std::size_t>(setting.size)) {}

  Result<Launch> resolve(Chooser& chooser) {
    launch_.collective = call_.collective;
    launch_.root = has_root(call_.collective) ? call_.root : 0;
    launch_.reduction = has_reduction(call_.collective) ? call_.reduction : Reduction();
    launch_.timeout =
        call_.options.timeout.count() > 0 ? call_.options.timeout : setting_.config->timeout;
    launch_.name = call_.options.name ? call_.options.name : "";
    for (auto step : {&Resolver::check_scalars, &Resolver::take_sides, &Resolver::check_sizes,
                      &Resolver::find_in_place})
      if (Status status = (this->*step)(); !status.ok()) return status;
    if (Status status = choose(chooser); !status.ok()) return status;
    fill_fingerprint();
    launch_.print = engine::print_of(launch_.fingerprint);
    return std::move(launch_);
  }

 private:
  bool at_root() const { return setting_.rank == call_.root; }
  bool needs_input() const {
    switch (call_.collective) {
      case Collective::broadcast:
      case Collective::barrier: return false;
      case Collective::scatter: return at_root();
      default: return true;
    }
  }
  bool needs_output() const {
    switch (call_.collective) {
      case Collective::barrier: return false;
      case Collective::reduce:
      case Collective::gather: return at_root();
      default: return true;
    }
  }
  bool input_in_blocks() const {
    return call_.collective == Collective::scatter ||
           call_.collective == Collective::reduce_scatter ||
           call_.collective == Collective::all_to_all;
  }
  bool output_in_blocks() const {
    return call_.collective == Collective::gather || call_.collective == Collective::all_gather ||
           call_.collective == Collective::all_to_all;
  }

  Status check_scalars() {
    if (has_root(call_.collective) && (call_.root < 0 || call_.root >= setting_.size))
      return invalid(
          call_, fmt::format("root {} is not a rank of a group of {}", call_.root, setting_.size));
    if (call_.collective == Collective::barrier) return {};
    const auto adopt = [&](Dtype dtype, Device device, const void* ready) -> Status {
      // A token that nobody waits for would mean data that is not there yet.
      if (device != Device::cpu || ready != nullptr)
        return {Code::unsupported,
                fmt::format("{}: this build reaches CPU memory only", to_string(call_.collective))};
      if (has_dtype_ && dtype != launch_.dtype)
        return invalid(call_, fmt::format("buffers of different types, {} and {}",
                                          to_string(launch_.dtype), to_string(dtype)));
      launch_.dtype = dtype;
      has_dtype_ = true;
      return {};
    };
    if (needs_input())
      for (const ConstBuffer& buffer : call_.input)
        if (Status status = adopt(buffer.dtype, buffer.device, buffer.ready); !status.ok())
          return status;
    if (needs_output())
      for (const Buffer& buffer : call_.output)
        if (Status status = adopt(buffer.dtype, buffer.device, buffer.ready); !status.ok())
          return status;
    return check_reduction();
  }

  Status check_reduction() {
    if (!has_reduction(call_.collective)) return {};
    const Reduction& reduction = call_.reduction;
    if (!is_sensible(reduction.op, launch_.dtype))
      return invalid(call_, fmt::format("{} has no meaning on {}", to_string(reduction.op),
                                        to_string(launch_.dtype)));
    if (reduction.op == ReduceOp::user &&
        (reduction.user == nullptr || reduction.user->function == nullptr))
      return invalid(call_, "a user reduction without a function");
    return {};
  }

  Status take_sides() {
    if (needs_input()) {
      if (Status status =
              take(call_.input, call_.input_counts, input_in_blocks(), "input", launch_.input);
          !status.ok())
        return status;
    }
    if (!needs_output()) return {};
    return take(call_.output, call_.output_counts, output_in_blocks(), "output", launch_.output);
  }

  template <class B>
  Status take(std::span<const B> buffers, Counts counts, bool blocks, const char* side,
              std::vector<Piece>& pieces) {
    if (buffers.empty()) return invalid(call_, fmt::format("no {} buffer", side));
    for (const B& buffer : buffers)
      if (buffer.data == nullptr && buffer.count != 0)
        return invalid(call_, fmt::format("{} is null but has {} elements", side, buffer.count));
    const auto piece_of = [](const B& buffer) {
      return Piece{
          static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(buffer.data))),
          buffer.bytes()};
    };
    if (!blocks || (buffers.size() == n_ && n_ > 1)) {
      for (const B& buffer : buffers) pieces.push_back(piece_of(buffer));
      return {};
    }
    if (buffers.size() != 1)
      return invalid(call_, fmt::format("{} has {} buffers; pass one, or one per rank ({})", side,
                                        buffers.size(), n_));
    return cut(piece_of(buffers[0]), buffers[0].count, counts, side, pieces);
  }

  // One contiguous buffer into a block per rank.
  Status cut(Piece whole, std::size_t count, Counts counts, const char* side,
             std::vector<Piece>& pieces) {
    const std::size_t element = size_of(launch_.dtype);
    if (counts.empty()) {
      if (count % n_ != 0)
        return invalid(call_, fmt::format("{} of {} elements cannot be cut evenly among {} ranks; "
                                          "use the v-form",
                                          side, count, n_));
      for (std::size_t r = 0; r < n_; ++r)
        pieces.push_back({whole.data + r * (whole.bytes / n_), whole.bytes / n_});
      return {};
    }
    if (counts.size() != n_)
      return invalid(call_, fmt::format("{} counts for {} ranks", counts.size(), n_));
    std::size_t at = 0;
    for (std::size_t each : counts) {
      if (each > count - at)
        return invalid(call_,
                       fmt::format("{} counts add up to more than its {} elements", side, count));
      pieces.push_back({whole.data + at * element, each * element});
      at += each;
    }
    return {};
  }

  Status check_sizes() {
    const std::size_t in = total_of(launch_.input);
    const std::size_t out = total_of(launch_.output);
    const auto self = static_cast<std::size_t>(setting_.rank);
    const auto differ = [&](std::size_t a, std::size_t b) {
      const std::size_t element = size_of(launch_.dtype);
      return invalid(call_,
                     fmt::format("input of {} and output of {} elements do not belong together",
                                 a / element, b / element));
    };
    switch (call_.collective) {
      case Collective::reduce:
        if (at_root() && in != out) return differ(in, out);
        break;
      case Collective::all_reduce:
      case Collective::scan:
      case Collective::exclusive_scan:
        if (in != out) return differ(in, out);
        break;
      case Collective::gather:
      case Collective::all_gather:
        if (needs_output() && launch_.output[self].bytes != in)
          return differ(in, launch_.output[self].bytes);
        break;
      case Collective::scatter:
      case Collective::reduce_scatter:
        if (needs_input() && launch_.input[self].bytes != out)
          return differ(launch_.input[self].bytes, out);
        break;
      case Collective::all_to_all:
        if (launch_.input[self].bytes != launch_.output[self].bytes)
          return differ(launch_.input[self].bytes, launch_.output[self].bytes);
        if (!call_.uneven && in != out) return differ(in, out);
        break;
      case Collective::broadcast:
      case Collective::barrier: break;
    }
    return {};
  }

  // In place when a rank's own part lies where its result goes. Anything else that overlaps would
  // be overwritten before it was read.
  Status find_in_place() {
    const auto self = static_cast<std::size_t>(setting_.rank);
    if (call_.collective == Collective::broadcast || call_.collective == Collective::barrier) {
      launch_.in_place = call_.collective == Collective::broadcast;
      return {};
    }
    if (launch_.input.empty() || launch_.output.empty()) return {};
    const bool in_block = input_in_blocks() && !output_in_blocks();
    const bool out_block = output_in_blocks() && !input_in_blocks();
    if (in_block || out_block) {
      const std::vector<Piece>& whole = in_block ? launch_.input : launch_.output;
      const std::vector<Piece>& part = in_block ? launch_.output : launch_.input;
      launch_.in_place = part.size() == 1 && part[0].data == whole[self].data && part[0].bytes > 0;
    } else {
      launch_.in_place = launch_.input.size() == launch_.output.size() && same_pieces();
    }
    if (!launch_.in_place && overlap())
      return invalid(call_, "input and output overlap without being in place");
    return {};
  }

  bool same_pieces() const {
    if (total_of(launch_.input) == 0) return false;
    for (std::size_t i = 0; i < launch_.input.size(); ++i)
      if (launch_.input[i].data != launch_.output[i].data ||
          launch_.input[i].bytes != launch_.output[i].bytes)
        return false;
    return true;
  }

  bool overlap() const {
    for (const Piece& in : launch_.input)
      for (const Piece& out : launch_.output)
        if (in.bytes != 0 && out.bytes != 0 && in.data < out.data + out.bytes &&
            out.data < in.data + in.bytes)
          return true;
    return false;
  }

  // Whether blocks differ, as far as all ranks know it alike.
  bool uneven() const {
    switch (call_.collective) {
      case Collective::all_gather: return !is_even(launch_.output);
      case Collective::reduce_scatter: return !is_even(launch_.input);
      case Collective::gather:
      case Collective::scatter:
      case Collective::all_to_all: return call_.uneven;
      default: return false;
    }
  }

  Status choose(Chooser& chooser) {
    tuner::CallFacts situation;
    situation.collective = call_.collective;
    situation.ranks = setting_.size;
    situation.host_of = setting_.host_of;
    situation.machine_of = setting_.machine_of;
    situation.uneven = uneven();
    situation.bytes = agreed_bytes();
    const bool ordered = call_.reduction.op == ReduceOp::user && call_.reduction.user != nullptr &&
                         !call_.reduction.user->commutative;
    situation.order =
        has_reduction(call_.collective) && ordered ? ReductionOrder::rank : setting_.order;
    Algorithm forced = call_.options.algorithm;
    if (forced == Algorithm::automatic)
      forced = setting_.config->algorithm[static_cast<std::size_t>(call_.collective)];
    auto choice = chooser.choose(situation, forced);
    if (!choice.ok()) return choice.status();
    launch_.algorithm = choice->algorithm;
    launch_.shots = choice->shots;
    if (!setting_.config->trace_dir.empty())
      std::tie(launch_.predicted, launch_.predicted_shared) =
          chooser.predict(situation, launch_.algorithm);
    return {};
  }

  // The size of the whole array where every rank knows it; 0 where it does not.
  std::size_t agreed_bytes() const {
    const std::size_t in = total_of(launch_.input);
    const std::size_t out = total_of(launch_.output);
    switch (call_.collective) {
      case Collective::broadcast: return out;
      case Collective::all_gather: return out;
      case Collective::gather: return call_.uneven ? 0 : in * n_;
      case Collective::scatter: return call_.uneven ? 0 : out * n_;
      case Collective::all_to_all: return call_.uneven ? 0 : in;
      default: return in;
    }
  }

  void fill_fingerprint() {
    engine::Fingerprint& print = launch_.fingerprint;
    const std::size_t element = size_of(launch_.dtype);
    print.collective = call_.collective;
    print.dtype = launch_.dtype;
    print.root = launch_.root;
    print.algorithm = launch_.algorithm;
    print.shots = static_cast<std::uint8_t>(launch_.shots);
    print.uneven = uneven();
    print.count = agreed_bytes() / element;
    if (has_reduction(call_.collective)) fill_reduction(print);
    const bool pairwise = call_.uneven && (call_.collective == Collective::gather ||
                                           call_.collective == Collective::scatter ||
                                           call_.collective == Collective::all_to_all);
    if (pairwise) return fill_pairs();
    if (!uneven()) return;
    const std::vector<Piece>& blocks =
        call_.collective == Collective::all_gather ? launch_.output : launch_.input;
    for (const Piece& block : blocks) launch_.block_bytes.push_back(block.bytes);
    print.counts_hash =
        engine::fnv1a(launch_.block_bytes.data(), launch_.block_bytes.size() * sizeof(std::size_t));
  }

  void fill_reduction(engine::Fingerprint& print) const {
    print.op = call_.reduction.op;
    if (print.op == ReduceOp::premul_sum)
      std::memcpy(&print.scalar_bits, &call_.reduction.scalar, sizeof print.scalar_bits);
    if (print.op == ReduceOp::user) {
      const std::string& name = call_.reduction.user->name;
      print.user_hash = static_cast<std::uint32_t>(engine::fnv1a(name.data(), name.size()));
    }
  }

  // What this rank sends to and expects of each other one, which only the two of them can compare.
  void fill_pairs() {
    launch_.to_peer.assign(n_, 0);
    launch_.from_peer.assign(n_, 0);
    const auto root = static_cast<std::size_t>(call_.root);
    for (std::size_t r = 0; r < n_; ++r) {
      if (call_.collective != Collective::gather && !launch_.input.empty())
        launch_.to_peer[r] = launch_.input[r].bytes;
      if (call_.collective != Collective::scatter && !launch_.output.empty())
        launch_.from_peer[r] = launch_.output[r].bytes;
    }
    if (call_.collective == Collective::gather) launch_.to_peer[root] = total_of(launch_.input);
    if (call_.collective == Collective::scatter) launch_.from_peer[root] = total_of(launch_.output);
  }

  const Call& call_;
  const Setting& setting_;
  std::size_t n_;
  bool has_dtype_ = false;
  Launch launch_;
};

}  // namespace

void Chooser::use(std::shared_ptr<const tuner::Machine> machine, Log log) {
  machine_ = std::move(machine);
  log_ = std::move(log);
  chosen_.clear();
  predicted_.clear();
}

Result<tuner::Choice> Chooser::choose(const tuner::CallFacts& situation, Algorithm forced) {
  // One choice per power of two: all ranks round alike.
  tuner::CallFacts rounded = situation;
  rounded.bytes = situation.bytes == 0 ? 0 : std::bit_ceil(situation.bytes);
  const std::uint64_t key = static_cast<std::uint64_t>(situation.collective) |
                            static_cast<std::uint64_t>(situation.order) << 8 |
                            static_cast<std::uint64_t>(situation.uneven) << 16 |
                            static_cast<std::uint64_t>(situation.symmetric) << 17 |
                            static_cast<std::uint64_t>(std::bit_width(rounded.bytes)) << 24 |
                            static_cast<std::uint64_t>(forced) << 40;
  const auto at = chosen_.find(key);
  if (at != chosen_.end()) return at->second;
  auto choice = forced == Algorithm::automatic ? choose_among_all(rounded)
                                               : tuner::choose_forced(rounded, forced, *machine_);
  if (choice.ok()) chosen_.emplace(key, *choice);
  return choice;
}

std::pair<Nanoseconds, Nanoseconds> Chooser::predict(const tuner::CallFacts& situation,
                                                     Algorithm algorithm) {
  const std::uint64_t key = static_cast<std::uint64_t>(situation.collective) |
                            static_cast<std::uint64_t>(algorithm) << 8 |
                            static_cast<std::uint64_t>(situation.bytes) << 16;
  if (const auto at = predicted_.find(key); at != predicted_.end()) return at->second;
  std::pair<Nanoseconds, Nanoseconds> times{0, 0};
  tuner::CallFacts exact = situation;
  if (auto any = tuner::choose_forced(exact, algorithm, *machine_); any.ok())
    times.first = any->predicted;
  exact.symmetric = true;
  times.second = times.first;
  if (auto shared = tuner::choose_forced(exact, algorithm, *machine_); shared.ok())
    times.second = std::min(times.first, shared->predicted);
  predicted_.emplace(key, times);
  return times;
}

Result<tuner::Choice> Chooser::choose_among_all(const tuner::CallFacts& situation) const {
  if (!log_.enabled(Level::info, Subsystem::tune)) return tuner::choose(situation, *machine_);
  const std::vector<tuner::Choice> choices = tuner::candidates(situation, *machine_);
  log_.info(Subsystem::tune, "{}", tuner::describe(situation, choices));
  return choices.front();
}

Result<Launch> make_launch(const Call& call, const Setting& setting, Chooser& chooser) {
  return Resolver(call, setting).resolve(chooser);
}

}  // namespace tutti::group
