#include "group/call.hpp"

#include <fmt/format.h>

#include <cstring>
#include <tuple>

#include "engine/dependencies.hpp"
#include "engine/stages.hpp"
#include "group/pieces.hpp"

namespace tutti::group {
namespace {

using engine::Launch;

// Makes a launch of one call; each step returns what is wrong.
class Resolver {
 public:
  Resolver(const Call& call, const Setting& setting)
      : call_(call),
        setting_(setting),
        shape_(shape_of(call.collective)),
        gives_(shape_.input.is_there(setting.rank == call.root)),
        gets_(shape_.output.is_there(setting.rank == call.root)) {}

  Result<Launch> resolve(Chooser& chooser) {
    launch_.collective = call_.collective;
    launch_.root = shape_.rooted ? call_.root : 0;
    launch_.reduction = shape_.folds() ? call_.reduction : Reduction();
    launch_.timeout =
        call_.options.timeout.count() > 0 ? call_.options.timeout : setting_.config->timeout;
    launch_.name = call_.options.name ? call_.options.name : "";
    launch_.after = engine::Dependencies::of(call_.options.dependencies);
    for (auto step : {&Resolver::check_types, &Resolver::check_root, &Resolver::check_reduction,
                      &Resolver::take_sides, &Resolver::check_sizes, &Resolver::find_in_place})
      if (Status status = (this->*step)(); !status.ok())
        return status.annotate(to_string(call_.collective));
    if (Status status = choose(chooser); !status.ok()) return status;
    fill_fingerprint();
    launch_.call_hash = engine::call_hash_of(launch_.fingerprint);
    return std::move(launch_);
  }

 private:
  static Status invalid(std::string what) { return {Code::invalid_argument, std::move(what)}; }

  Status check_root() {
    if (Status status = check_options(call_.options, launch_.on_device); !status.ok())
      return status;
    launch_.stream = call_.options.stream;
    if (!shape_.rooted || (call_.root >= 0 && call_.root < setting_.size)) return {};
    return invalid(
        fmt::format("root {} is not a rank of a group of {}", call_.root, setting_.size));
  }

  Status check_types() {
    bool known = false;
    const auto adopt = [&](Dtype dtype, Device device, void* ready, bool is_result) -> Status {
      const bool on_device = device == Device::cuda;
      // A token that nobody waits for would mean data that is not there yet.
      if (ready != nullptr && !on_device)
        return {Code::unsupported,
                "a buffer in CPU memory has nothing to wait for; leave `ready` null"};
      if (ready != nullptr) launch_.ready.push_back(ready);
      if (known && on_device != launch_.on_device)
        return invalid("buffers in CPU memory and on a device do not go together in one call");
      launch_.on_device = on_device;
      const Dtype expected = is_result ? result_dtype() : launch_.dtype;
      if (known && dtype != expected)
        return invalid(fmt::format("buffers of different types, {} and {}", to_string(expected),
                                   to_string(dtype)));
      if (!is_result || !known) launch_.dtype = dtype;
      known = true;
      return {};
    };
    if (gives_)
      for (const ConstBuffer& buffer : call_.input)
        if (Status status = adopt(buffer.dtype, buffer.device, buffer.ready, false); !status.ok())
          return status;
    if (Status status = find_widening(); !status.ok()) return status;
    if (gets_)
      for (const Buffer& buffer : call_.output)
        if (Status status = adopt(buffer.dtype, buffer.device, buffer.ready, true); !status.ok())
          return status;
    return {};
  }

  Dtype result_dtype() const {
    return launch_.widens ? accumulation_of(launch_.dtype) : launch_.dtype;
  }

  // A fold may leave its result in the type that it is folded in. A rank that gets no result says so by
  // an output of that type and the right length, whose memory nobody looks at.
  Status find_widening() {
    if (!shape_.folds() || call_.output.empty() || call_.input.empty()) return {};
    const Buffer& output = call_.output[0];
    const Dtype wide = accumulation_of(launch_.dtype);
    const bool says_so = gets_ || output.count == call_.input[0].count;
    launch_.widens = says_so && output.dtype == wide && wide != launch_.dtype;
    if (!launch_.widens || call_.reduction.op != ReduceOp::user) return {};
    return invalid(fmt::format("a function of the user's folds {} into {}, not into {}",
                               to_string(launch_.dtype), to_string(launch_.dtype),
                               to_string(wide)));
  }

  Status check_reduction() {
    if (!shape_.folds()) return {};
    const Reduction& reduction = call_.reduction;
    if (!is_sensible(reduction.op, launch_.dtype))
      return invalid(fmt::format("{} has no meaning on {}", to_string(reduction.op),
                                 to_string(launch_.dtype)));
    if (reduction.op == ReduceOp::user &&
        (reduction.user == nullptr || reduction.user->function == nullptr))
      return invalid("a user reduction without a function");
    return {};
  }

  Status take_sides() {
    const GivenSide<ConstBuffer> input{"input", call_.input, call_.input_counts,
                                       shape_.input.blocks};
    const GivenSide<Buffer> output{"output", call_.output, call_.output_counts,
                                   shape_.output.blocks};
    if (gives_)
      if (Status status = take_pieces(input, setting_.size, launch_.input); !status.ok())
        return status;
    return gets_ ? take_pieces(output, setting_.size, launch_.output) : Status();
  }

  // Bytes of the rank's own block: all of a side that has one.
  std::size_t own_bytes(const CollectiveSide& side, const Pieces& pieces) const {
    return side.blocks == Blocks::each ? pieces[static_cast<std::size_t>(setting_.rank)].bytes
                                       : total_bytes(pieces);
  }

  Status check_sizes() {
    if (!gives_ || !gets_) return {};
    const auto differ = [](std::size_t in, std::size_t out) {
      return invalid(
          fmt::format("input of {} and output of {} elements do not belong together", in, out));
    };
    const std::size_t element = size_of(launch_.dtype);
    const std::size_t result = size_of(result_dtype());
    const std::size_t own_in = own_bytes(shape_.input, launch_.input) / element;
    const std::size_t own_out = own_bytes(shape_.output, launch_.output) / result;
    if (own_in != own_out) return differ(own_in, own_out);
    const std::size_t in = total_bytes(launch_.input) / element;
    const std::size_t out = total_bytes(launch_.output) / result;
    if (shape_.has_pairs() && !call_.uneven && in != out) return differ(in, out);
    return {};
  }

  // In place when a rank's own part lies where its result goes. Anything else that overlaps would
  // be overwritten before it was read.
  Status find_in_place() {
    if (shape_.has_one_buffer()) launch_.in_place = true;
    if (!gives_ || !gets_) return {};
    // A result of another size cannot lie in the place of what it is made of.
    launch_.in_place = !launch_.widens && lies_in_place();
    if (launch_.in_place || !overlap(launch_.input, launch_.output)) return {};
    if (!launch_.widens) return invalid("input and output overlap without being in place");
    return invalid(fmt::format("an output of {} cannot overlap the input of {} that it is made of",
                               to_string(result_dtype()), to_string(launch_.dtype)));
  }

  bool lies_in_place() const {
    if (shape_.input.blocks == shape_.output.blocks) return are_same(launch_.input, launch_.output);
    const bool parts_in = shape_.input.blocks == Blocks::each;
    const engine::Piece& place =
        (parts_in ? launch_.input : launch_.output)[static_cast<std::size_t>(setting_.rank)];
    const Pieces& part = parts_in ? launch_.output : launch_.input;
    return part.size() == 1 && part[0].data == place.data && part[0].bytes > 0;
  }

  // The side with a block for each rank.
  const Pieces& parts() const {
    return shape_.input.blocks == Blocks::each ? launch_.input : launch_.output;
  }

  // Whether blocks differ, as far as all ranks know it alike: by seeing them, or by being told.
  bool uneven() const {
    if (shape_.all_see_parts()) return !are_even(parts());
    return shape_.has_parts() && call_.uneven;
  }

  // The size of the whole array where every rank knows it; 0 where it does not.
  std::size_t agreed_bytes() const {
    const Pieces& any = gives_ ? launch_.input : launch_.output;
    if (!shape_.has_parts()) return total_bytes(any);
    if (shape_.all_see_parts()) return total_bytes(parts());
    if (call_.uneven) return 0;
    if (shape_.has_pairs()) return total_bytes(any);
    // Of a rooted one only the root sees the parts, but all have one of them.
    const Pieces& own = shape_.input.blocks == Blocks::one ? launch_.input : launch_.output;
    return total_bytes(own) * static_cast<std::size_t>(setting_.size);
  }

  Status choose(Chooser& chooser) {
    tuner::CallFacts facts;
    facts.collective = call_.collective;
    facts.ranks = setting_.size;
    facts.host_of = setting_.host_of;
    facts.walk = setting_.walk;
    facts.machine_of = setting_.machine_of;
    facts.uneven = uneven();
    facts.bytes = agreed_bytes();
    facts.catalog = setting_.catalog;
    const Reduction& reduction = launch_.reduction;
    const bool is_user = reduction.op == ReduceOp::user;
    facts.order = setting_.order;
    // A tree keeps the ranks' order, too.
    if (is_user && !reduction.user->commutative && facts.order == ReductionOrder::any)
      facts.order = ReductionOrder::rank;
    if (shape_.folds()) launch_.order = facts.order;
    // Functions of the user's round at each application, wherever that is.
    const bool rounds = accumulation_of(launch_.dtype) != launch_.dtype && !is_user;
    facts.whole_folds = launch_.widens || (rounds && facts.order != ReductionOrder::any);
    // A switch knows no functions of the user's, and has no way to memory of a device.
    facts.has_switch = setting_.has_switch && !is_user && !launch_.on_device &&
                       facts.bytes <= engine::kMostSwitchedBytes;
    facts.switch_cost = setting_.switch_cost.get();
    Algorithm forced = call_.options.algorithm;
    // On one GPU, or on several that reach each other, nothing beats working where the data lies.
    const bool direct = launch_.on_device && setting_.device_reaches_all;
    if (direct && forced == Algorithm::automatic) forced = Algorithm::direct;
    if (forced == Algorithm::automatic)
      forced = setting_.config->algorithm[static_cast<std::size_t>(call_.collective)];
    auto choice = chooser.choose(facts, forced);
    if (!choice.ok()) return choice.status();
    launch_.algorithm = choice->algorithm;
    launch_.shots = choice->shots;
    if (choice->predicted != tuner::kUnknownTime) launch_.expected = choice->predicted;
    if (launch_.algorithm == Algorithm::in_network)
      if (Status status = choose_second(facts, chooser); !status.ok()) return status;
    if (!setting_.config->trace_dir.empty())
      std::tie(launch_.predicted, launch_.predicted_shared) =
          chooser.predict(facts, launch_.algorithm);
    return {};
  }

  // Where the switch is lost, all ranks have to go on in the same way.
  Status choose_second(tuner::CallFacts facts, Chooser& chooser) {
    facts.has_switch = false;
    auto second = chooser.choose(facts, Algorithm::automatic);
    if (!second.ok()) return second.status();
    launch_.second_choice = second->algorithm;
    launch_.second_shots = second->shots;
    return {};
  }

  void fill_fingerprint() {
    engine::Fingerprint& fingerprint = launch_.fingerprint;
    fingerprint.collective = call_.collective;
    fingerprint.dtype = launch_.dtype;
    fingerprint.root = launch_.root;
    fingerprint.algorithm = launch_.algorithm;
    fingerprint.shots = static_cast<std::uint8_t>(launch_.shots);
    fingerprint.uneven = uneven();
    fingerprint.on_device = launch_.on_device;
    fingerprint.widens = launch_.widens;
    fingerprint.count = agreed_bytes() / size_of(launch_.dtype);
    if (shape_.folds()) fill_reduction(fingerprint);
    if (!fingerprint.uneven) return;
    if (!shape_.all_see_parts()) return fill_pairs();
    for (const engine::Piece& part : parts()) launch_.block_bytes.push_back(part.bytes);
    fingerprint.counts_hash =
        engine::fnv1a(launch_.block_bytes.data(), launch_.block_bytes.size() * sizeof(std::size_t));
  }

  void fill_reduction(engine::Fingerprint& fingerprint) const {
    fingerprint.op = call_.reduction.op;
    if (fingerprint.op == ReduceOp::premul_sum)
      std::memcpy(&fingerprint.scalar_bits, &call_.reduction.scalar,
                  sizeof fingerprint.scalar_bits);
    if (fingerprint.op == ReduceOp::user) {
      const std::string& name = call_.reduction.user->name;
      fingerprint.user_hash = static_cast<std::uint32_t>(engine::fnv1a(name.data(), name.size()));
    }
  }

  // What this rank sends to and expects of each other one, which only the two of them can compare.
  void fill_pairs() {
    const auto by_peer = [&](const CollectiveSide& side, const Pieces& pieces) {
      std::vector<std::size_t> bytes(static_cast<std::size_t>(setting_.size), 0);
      if (side.blocks == Blocks::one)  // the other end is the root
        bytes[static_cast<std::size_t>(call_.root)] = total_bytes(pieces);
      else
        for (std::size_t r = 0; r < pieces.size(); ++r) bytes[r] = pieces[r].bytes;
      return bytes;
    };
    launch_.to_peer = by_peer(shape_.input, launch_.input);
    launch_.from_peer = by_peer(shape_.output, launch_.output);
  }

  const Call& call_;
  const Setting& setting_;
  const CollectiveShape& shape_;
  const bool gives_;  // whether this rank has an input,
  const bool gets_;   // and an output
  Launch launch_;
};

}  // namespace

Status check_options(const CallOptions& options, bool on_device) {
  if (options.stream == nullptr || on_device) return {};
  return {
      Code::unsupported,
      "options.stream is set, but the buffers are in CPU memory, which has no streams; leave it null"};
}

Result<Launch> make_launch(const Call& call, const Setting& setting, Chooser& chooser) {
  return Resolver(call, setting).resolve(chooser);
}

}  // namespace tutti::group
