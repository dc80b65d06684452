#include "engine/stage_program.hpp"

#include <algorithm>

namespace tutti::engine {
namespace {

using schedule::kLocal;
using schedule::Op;
using schedule::OpKind;
using schedule::Place;
using schedule::Program;
using schedule::Region;
using schedule::Space;

// What one rank sends: chunks as they were passed, or results of its fold.
struct Message {
  int peer = 0;
  std::uint32_t step = 0;
  Region src;
  bool is_result = false;
};

// One rank's program, taken apart. `fits` is false when it does more than a stage can.
struct Parts {
  bool fits = true;
  std::vector<Message> messages;
  std::vector<Chunk> shown;
  const Op* fold = nullptr;
  std::vector<Message> operands;  // of the fold, in its order; peer kLocal: `src` is here
  std::vector<const Op*> recvs;   // but those that only feed the fold
  std::vector<const Op*> copies;
};

bool same(const Place& a, const Place& b) { return a == b; }

class Reader {
 public:
  explicit Reader(const Program& program) : program_(program) {}

  Parts read() {
    // A barrier's messages are empty: meeting is all there is to it.
    if (program_.collective == Collective::barrier) return parts_;
    for (const Op& op : program_.ops) {
      switch (op.kind) {
        case OpKind::send: send(op); break;
        case OpKind::recv:
          parts_.recvs.push_back(&op);
          write(op.dst);
          break;
        case OpKind::copy:
          parts_.copies.push_back(&op);
          write(op.dst);
          break;
        case OpKind::reduce: reduce(op); break;
      }
    }
    return std::move(parts_);
  }

 private:
  void send(const Op& op) {
    if (op.src.space == Space::scratch) return refuse();
    const bool is_result = parts_.fold != nullptr && op.src == parts_.fold->dst;
    for (std::uint32_t c = 0; c < op.src.count; ++c) {
      const Chunk chunk{op.src.space, op.src.first + c};
      if (is_result) continue;
      if (written(chunk)) return refuse();
      if (!parts_.shown.empty() && parts_.shown[0].space != chunk.space) return refuse();
      if (std::find(parts_.shown.begin(), parts_.shown.end(), chunk) == parts_.shown.end())
        parts_.shown.push_back(chunk);
    }
    parts_.messages.push_back({op.peer, op.step, op.src, is_result});
  }

  void reduce(const Op& op) {
    if (parts_.fold != nullptr || op.dst.space != Space::output || op.dst.count != 1)
      return refuse();
    for (const schedule::Source& source : op.sources) {
      if (source.peer != kLocal) {
        parts_.operands.push_back({source.peer, source.step, {}, false});
        continue;
      }
      if (source.region.count != 1) return refuse();
      if (source.region.space == Space::scratch) {
        if (!take_feeder(source.region)) return refuse();
        continue;
      }
      if (written({source.region.space, source.region.first})) return refuse();
      parts_.operands.push_back({kLocal, 0, source.region, false});
    }
    parts_.fold = &op;
    write(op.dst);
  }

  // A message that was received into scratch only to be folded is folded where it lies instead.
  bool take_feeder(const Region& region) {
    const auto feeder = std::find_if(parts_.recvs.begin(), parts_.recvs.end(),
                                     [&](const Op* recv) { return recv->dst == region; });
    if (feeder == parts_.recvs.end()) return false;
    parts_.operands.push_back({(*feeder)->peer, (*feeder)->step, {}, false});
    parts_.recvs.erase(feeder);
    return true;
  }

  void write(const Region& region) {
    for (std::uint32_t c = 0; c < region.count; ++c)
      written_.push_back(resolve(program_, region.space, region.first + c));
  }
  bool written(const Chunk& chunk) const {
    const Place place = resolve(program_, chunk.space, chunk.index);
    return std::any_of(written_.begin(), written_.end(),
                       [&](const Place& other) { return same(place, other); });
  }
  void refuse() { parts_.fits = false; }

  const Program& program_;
  Parts parts_;
  std::vector<Place> written_;
};

// The parts of all ranks, and what they make of one another.
class Compiler {
 public:
  explicit Compiler(const std::vector<Program>& programs) : programs_(programs) {
    for (const Program& program : programs) parts_.push_back(Reader(program).read());
  }

  std::optional<StageProgram> compile(int rank) {
    for (std::size_t r = 0; r < parts_.size(); ++r)
      if (!parts_[r].fits || !fits(static_cast<int>(r))) return {};
    StageProgram made;
    made.program = programs_[static_cast<std::size_t>(rank)];
    made.program.scratch.clear();  // nothing lands there
    made.shown = parts_[static_cast<std::size_t>(rank)].shown;
    add_extents(made);
    add_moves(made, rank);
    add_fold(made, rank);
    add_gives(made, rank);
    made.two_phases = std::any_of(parts_.begin(), parts_.end(), [](const Parts& parts) {
      return std::any_of(parts.messages.begin(), parts.messages.end(),
                         [](const Message& message) { return message.is_result; });
    });
    made.lopsided = std::any_of(parts_.begin(), parts_.end(), [&](const Parts& parts) {
      return shown_messages(parts) != taken_messages(parts);
    });
    made.readers = most_readers();
    made.unaliased = is_unaliased(made, rank);
    return made;
  }

 private:
  const Message* find(int from, int to, std::uint32_t step) const {
    for (const Message& message : parts_[static_cast<std::size_t>(from)].messages)
      if (message.peer == to && message.step == step) return &message;
    return nullptr;
  }

  std::uint32_t slot_of(int rank, const Chunk& chunk) const {
    const auto& shown = parts_[static_cast<std::size_t>(rank)].shown;
    return static_cast<std::uint32_t>(std::find(shown.begin(), shown.end(), chunk) - shown.begin());
  }

  // Where the caller finds what a recv brings: in scratch it is only on its way to a copy.
  static const Region* landing(const Parts& parts, const Op& recv) {
    if (recv.dst.space != Space::scratch) return &recv.dst;
    for (const Op* copy : parts.copies)
      if (copy->src == recv.dst) return &copy->dst;
    return nullptr;
  }

  // Every message that is waited for is one of the two kinds, and folds read shown chunks only.
  bool fits(int rank) const {
    const Parts& parts = parts_[static_cast<std::size_t>(rank)];
    for (const Op* recv : parts.recvs) {
      const Message* message = find(recv->peer, rank, recv->step);
      const Region* to = landing(parts, *recv);
      if (message == nullptr || to == nullptr || to->count != message->src.count) return false;
    }
    for (const Op* copy : parts.copies) {
      if (copy->src.space == Space::output || copy->dst.space == Space::scratch) return false;
      if (copy->src.space == Space::input) continue;
      const bool fed = std::any_of(parts.recvs.begin(), parts.recvs.end(),
                                   [&](const Op* recv) { return recv->dst == copy->src; });
      if (!fed) return false;
    }
    return std::all_of(parts.operands.begin(), parts.operands.end(), [&](const Message& operand) {
      if (operand.peer == kLocal) return true;
      const Message* message = find(operand.peer, rank, operand.step);
      return message != nullptr && !message->is_result && message->src.count == 1;
    });
  }

  // Of the first phase: what a rank gives, and what it takes.
  static std::ptrdiff_t shown_messages(const Parts& parts) {
    return std::count_if(parts.messages.begin(), parts.messages.end(),
                         [](const Message& message) { return !message.is_result; });
  }
  std::ptrdiff_t taken_messages(const Parts& parts) const {
    const int rank = static_cast<int>(&parts - parts_.data());
    const auto recvs = std::count_if(parts.recvs.begin(), parts.recvs.end(), [&](const Op* recv) {
      return !find(recv->peer, rank, recv->step)->is_result;
    });
    return recvs + std::count_if(parts.operands.begin(), parts.operands.end(),
                                 [](const Message& operand) { return operand.peer != kLocal; });
  }

  std::uint32_t most_readers() const {
    std::uint32_t most = 0;
    for (const Parts& parts : parts_)
      for (const Chunk& chunk : parts.shown) {
        std::uint32_t readers = 0;
        for (const Message& message : parts.messages)
          if (!message.is_result && message.src.space == chunk.space &&
              message.src.first <= chunk.index &&
              chunk.index < message.src.first + message.src.count)
            ++readers;
        most = std::max(most, readers);
      }
    return most;
  }

  void add_extents(StageProgram& made) const {
    for (std::size_t r = 0; r < parts_.size(); ++r) {
      made.shown_extents.emplace_back();
      for (const Chunk& chunk : parts_[r].shown)
        made.shown_extents.back().push_back(extent_of(programs_[r], chunk.space, chunk.index));
    }
  }

  void add_moves(StageProgram& made, int rank) const {
    const Parts& parts = parts_[static_cast<std::size_t>(rank)];
    for (const Op* recv : parts.recvs) {
      const Message& message = *find(recv->peer, rank, recv->step);
      const Region& to = *landing(parts, *recv);
      for (std::uint32_t c = 0; c < to.count; ++c) {
        const Chunk from{message.src.space, message.src.first + c};
        Take take{recv->peer, 0, from, {to.space, to.first + c}, 0};
        if (message.is_result) {
          made.second.push_back(take);
          continue;
        }
        take.slot = slot_of(recv->peer, from);
        take.givers_share = share_of_work(recv->peer, rank);
        made.takes.push_back(take);
      }
    }
    for (const Op* copy : parts.copies) {
      if (copy->src.space == Space::scratch) continue;
      for (std::uint32_t c = 0; c < copy->dst.count; ++c)
        made.copies.push_back(
            {{copy->src.space, copy->src.first + c}, {copy->dst.space, copy->dst.first + c}});
    }
  }

  void add_fold(StageProgram& made, int rank) const {
    const Parts& parts = parts_[static_cast<std::size_t>(rank)];
    const Op* fold = parts.fold;
    if (fold == nullptr) return;
    StageFold& to = made.fold.emplace();
    to.to = {fold->dst.space, fold->dst.first};
    to.finish = fold->finish;
    for (std::size_t s = 0; s < parts.operands.size(); ++s) {
      const Message& operand = parts.operands[s];
      const bool local = operand.peer == kLocal;
      const Region& src = local ? operand.src : find(operand.peer, rank, operand.step)->src;
      const Chunk from{src.space, src.first};
      to.sources.push_back(
          {operand.peer, local ? 0 : slot_of(operand.peer, from), from, fold->sources[s].raw});
    }
  }

  // The other side of what peers receive from this rank.
  void add_gives(StageProgram& made, int rank) const {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      for (const Op* recv : parts_[p].recvs) {
        if (recv->peer != rank) continue;
        const Message& message = *find(rank, static_cast<int>(p), recv->step);
        const Region& to = *landing(parts_[p], *recv);
        for (std::uint32_t c = 0; c < to.count; ++c) {
          Give give{static_cast<int>(p),
                    {message.src.space, message.src.first + c},
                    {to.space, to.first + c},
                    0};
          if (message.is_result) {
            made.puts.push_back(give);
          } else {
            give.share = share_of_work(rank, static_cast<int>(p));
            made.gives.push_back(give);
          }
        }
      }
    }
  }

  // Of moving a message: all of it divided so that everybody has as much to do. Where both ends
  // take as much as the other, reading alone does that, and costs less than writing.
  double share_of_work(int from, int to) const {
    const auto out = parts_[static_cast<std::size_t>(from)].messages.size();
    const auto in = parts_[static_cast<std::size_t>(to)].recvs.size();
    if (parts_[static_cast<std::size_t>(from)].recvs.size() == in) return 0;
    return static_cast<double>(in) / static_cast<double>(in + out);
  }

  // Whether peers may read and write this rank's buffers themselves: nothing that is shown is
  // overwritten in the first phase, neither here nor by whoever puts its result here, unless that
  // is the one who reads it.
  bool is_unaliased(const StageProgram& made, int rank) const {
    const Program& program = made.program;
    const auto place = [&](const Chunk& chunk) {
      return resolve(program, chunk.space, chunk.index);
    };
    std::vector<std::pair<Place, int>> writes;  // and by whom
    for (const Take& take : made.takes) writes.push_back({place(take.to), rank});
    for (const LocalCopy& copy : made.copies) writes.push_back({place(copy.to), rank});
    if (made.fold) writes.push_back({place(made.fold->to), rank});
    for (const Take& take : made.second) writes.push_back({place(take.to), take.peer});
    for (const Message& message : parts_[static_cast<std::size_t>(rank)].messages) {
      if (message.is_result) continue;
      for (std::uint32_t c = 0; c < message.src.count; ++c) {
        const Place shown = place({message.src.space, message.src.first + c});
        for (const auto& [written, writer] : writes)
          if (same(shown, written) && writer != message.peer) return false;
      }
    }
    return true;
  }

  const std::vector<Program>& programs_;
  std::vector<Parts> parts_;
};

}  // namespace

std::optional<StageProgram> compile_for_stage(const std::vector<Program>& programs, int rank) {
  return Compiler(programs).compile(rank);
}

}  // namespace tutti::engine
