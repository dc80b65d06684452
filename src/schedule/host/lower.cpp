#include "schedule/host/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/check.hpp"

namespace tutti::schedule {
namespace {

// A chunk as it is named in one of the caller's buffers.
struct ChunkName {
  Space space = Space::input;
  std::uint32_t index = 0;

  Spot spot() const { return chunk_spot(space, index); }
  friend bool operator==(const ChunkName&, const ChunkName&) = default;
};

// What one rank sends: chunks as they were passed, or the result of its fold.
struct Sent {
  int peer = 0;
  std::uint32_t step = 0;
  Region src;
  bool is_result = false;

  auto key() const { return std::tie(peer, step); }
};

// An operand of the fold: a chunk of this rank, or the message that `peer` sends at `step`.
struct FoldOperand {
  int peer = kLocal;
  std::uint32_t step = 0;
  Region own;
  bool raw = false;
};

// One rank's program, taken apart.
struct RankParts {
  std::string objection;  // empty: it does nothing that ranks of one host could not do by meeting
  std::vector<Sent> sent;
  std::vector<ChunkName> shown;  // by slot
  const Op* fold = nullptr;
  std::vector<FoldOperand> operands;
  std::vector<const Op*> recvs;  // but those that only feed the fold
  std::vector<const Op*> copies;
};

// Takes one program apart, op by op.
class Reader {
 public:
  explicit Reader(const Program& program) : program_(program) {}

  RankParts read() {
    // A rank without input and output shows and takes nothing: meeting is all there is to it.
    if (chunk_count(program_, Space::input) + chunk_count(program_, Space::output) == 0)
      return std::move(parts_);
    for (const Op& op : program_.ops) {
      switch (op.kind) {
        case OpKind::send: send(op); break;
        case OpKind::recv:
          parts_.recvs.push_back(&op);
          note_written(op.dst);
          break;
        case OpKind::copy:
          parts_.copies.push_back(&op);
          note_written(op.dst);
          break;
        case OpKind::reduce: reduce(op); break;
      }
    }
    std::sort(parts_.sent.begin(), parts_.sent.end(),
              [](const Sent& a, const Sent& b) { return a.key() < b.key(); });
    return std::move(parts_);
  }

 private:
  void send(const Op& op) {
    if (op.src.space == Space::scratch) return refuse("sends out of scratch");
    const bool is_result = parts_.fold != nullptr && op.src == parts_.fold->dst;
    parts_.sent.push_back({op.peer, op.step, op.src, is_result});
    if (is_result) return;
    for (std::uint32_t c = 0; c < op.src.count; ++c) show({op.src.space, op.src.first + c});
  }

  void show(const ChunkName& chunk) {
    if (is_written(chunk)) return refuse("forwards what it received");
    if (!parts_.shown.empty() && parts_.shown[0].space != chunk.space)
      return refuse("sends out of its input and its output");
    if (std::find(parts_.shown.begin(), parts_.shown.end(), chunk) == parts_.shown.end())
      parts_.shown.push_back(chunk);
  }

  void reduce(const Op& op) {
    if (parts_.fold != nullptr) return refuse("folds more than once");
    if (op.dst.space != Space::output || op.dst.count != 1)
      return refuse("folds something other than one chunk of output");
    for (const Source& source : op.sources) add_operand(source);
    parts_.fold = &op;
    note_written(op.dst);
  }

  void add_operand(const Source& source) {
    if (source.peer != kLocal) {
      parts_.operands.push_back({source.peer, source.step, {}, source.raw});
      return;
    }
    if (source.region.count != 1) return refuse("folds several chunks at once");
    if (source.region.space == Space::scratch) return take_feeder(source);
    if (is_written({source.region.space, source.region.first}))
      return refuse("folds what it made before");
    parts_.operands.push_back({kLocal, 0, source.region, source.raw});
  }

  // A message that was received into scratch only to be folded is folded where it lies instead.
  void take_feeder(const Source& source) {
    const auto feeder = std::find_if(parts_.recvs.begin(), parts_.recvs.end(),
                                     [&](const Op* recv) { return recv->dst == source.region; });
    if (feeder == parts_.recvs.end()) return refuse("folds scratch that no message filled");
    parts_.operands.push_back({(*feeder)->peer, (*feeder)->step, {}, source.raw});
    parts_.recvs.erase(feeder);
  }

  void note_written(const Region& region) {
    for (std::uint32_t c = 0; c < region.count; ++c)
      written_.push_back(resolve(program_, region.space, region.first + c));
  }
  bool is_written(const ChunkName& chunk) const {
    const Place place = resolve(program_, chunk.space, chunk.index);
    return std::find(written_.begin(), written_.end(), place) != written_.end();
  }
  void refuse(const char* what) {
    if (parts_.objection.empty()) parts_.objection = fmt::format("rank {} {}", program_.rank, what);
  }

  const Program& program_;
  RankParts parts_;
  std::vector<Place> written_;
};

}  // namespace

// The parts of all ranks, and what they make of one another.
class Lowering::Parts {
 public:
  explicit Parts(std::span<const Program> programs) : programs_(programs.begin(), programs.end()) {
    for (const Program& program : programs_) ranks_.push_back(Reader(program).read());
    objection_ = find_objection();
    if (!objection_.empty()) return;
    shown_extents_ = find_extents();
    lopsided_ = is_lopsided();
    readers_ = most_readers();
  }

  const std::string& objection() const { return objection_; }

  bool has_results() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankParts& rank) {
      return std::any_of(rank.sent.begin(), rank.sent.end(),
                         [](const Sent& sent) { return sent.is_result; });
    });
  }
  bool folds_of_others() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const RankParts& rank) { return taken_by_fold(rank) > 0; });
  }

  HostForm form(int rank, Reach reach) const {
    HostForm form;
    form.frame = programs_[at(rank)];
    form.frame.ops.clear();
    form.frame.scratch.clear();  // nothing lands there
    form.reach = reach;
    form.phases.resize(reach == Reach::window && !has_results() ? 2 : 3);
    for (const ChunkName& chunk : ranks_[at(rank)].shown) form.shown.push_back(chunk.spot());
    if (reach == Reach::window) add_shows(form);
    if (reach == Reach::mapped) add_gives(form, rank);
    add_copies(form, rank);
    add_takes(form, rank);
    add_fold(form, rank);
    form.shown_extents = shown_extents_;
    form.lopsided = lopsided_;
    form.readers = readers_;
    form.unaliased = is_unaliased(form, rank);
    return form;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  const Sent* find(int from, int to, std::uint32_t step) const {
    const auto& sent = ranks_[at(from)].sent;
    const auto found =
        std::lower_bound(sent.begin(), sent.end(), std::tie(to, step),
                         [](const Sent& each, const auto& key) { return each.key() < key; });
    return found != sent.end() && found->key() == std::tie(to, step) ? &*found : nullptr;
  }

  // Where the caller finds what a recv brings: in scratch it is only on its way to a copy.
  static const Region* landing(const RankParts& rank, const Op& recv) {
    if (recv.dst.space != Space::scratch) return &recv.dst;
    for (const Op* copy : rank.copies)
      if (copy->src == recv.dst) return &copy->dst;
    return nullptr;
  }

  // The first thing that does not fit; empty when all does.
  std::string find_objection() const {
    if (is_switch(programs_.back())) return "a switch folds, which is in no host's memory";
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!ranks_[r].objection.empty()) return ranks_[r].objection;
      if (const char* what = misfit(static_cast<int>(r))) return fmt::format("rank {} {}", r, what);
    }
    return {};
  }
  // What a rank waits for is shown, or a result; its fold reads shown chunks only.
  const char* misfit(int rank) const {
    const RankParts& parts = ranks_[at(rank)];
    for (const Op* recv : parts.recvs) {
      const Sent* sent = find(recv->peer, rank, recv->step);
      const Region* to = landing(parts, *recv);
      if (sent == nullptr || to == nullptr || to->count != sent->src.count)
        return "receives what is neither shown nor a result";
    }
    for (const Op* copy : parts.copies)
      if (!is_plain_copy(parts, *copy)) return "copies what it made before";
    for (const FoldOperand& operand : parts.operands) {
      if (operand.peer == kLocal) continue;
      const Sent* sent = find(operand.peer, rank, operand.step);
      if (sent == nullptr || sent->is_result || sent->src.count != 1)
        return "folds what is not a shown chunk";
    }
    return nullptr;
  }
  // From the input, or from where a message landed on its way.
  static bool is_plain_copy(const RankParts& parts, const Op& copy) {
    if (copy.src.space == Space::output || copy.dst.space == Space::scratch) return false;
    return copy.src.space == Space::input ||
           std::any_of(parts.recvs.begin(), parts.recvs.end(),
                       [&](const Op* recv) { return recv->dst == copy.src; });
  }

  // ---- the whole

  static std::size_t shown_messages(const RankParts& rank) {
    return static_cast<std::size_t>(std::count_if(
        rank.sent.begin(), rank.sent.end(), [](const Sent& sent) { return !sent.is_result; }));
  }
  static std::size_t taken_by_fold(const RankParts& rank) {
    return static_cast<std::size_t>(
        std::count_if(rank.operands.begin(), rank.operands.end(),
                      [](const FoldOperand& operand) { return operand.peer != kLocal; }));
  }
  bool is_lopsided() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto taken =
          std::count_if(ranks_[r].recvs.begin(), ranks_[r].recvs.end(), [&](const Op* recv) {
            return !find(recv->peer, static_cast<int>(r), recv->step)->is_result;
          });
      if (shown_messages(ranks_[r]) != static_cast<std::size_t>(taken) + taken_by_fold(ranks_[r]))
        return true;
    }
    return false;
  }

  std::uint32_t most_readers() const {
    std::uint32_t most = 0;
    for (const RankParts& rank : ranks_) {
      std::vector<std::uint32_t> readers(rank.shown.size(), 0);
      for (const Sent& sent : rank.sent)
        for (std::uint32_t c = 0; !sent.is_result && c < sent.src.count; ++c)
          ++readers[slot_of(rank, {sent.src.space, sent.src.first + c})];
      for (const std::uint32_t each : readers) most = std::max(most, each);
    }
    return most;
  }

  std::vector<std::vector<std::uint64_t>> find_extents() const {
    std::vector<std::vector<std::uint64_t>> extents(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (const ChunkName& chunk : ranks_[r].shown)
        extents[r].push_back(extent_of(programs_[r], chunk.space, chunk.index));
    return extents;
  }

  // ---- one rank's phases

  static std::uint32_t slot_of(const RankParts& rank, const ChunkName& chunk) {
    return static_cast<std::uint32_t>(std::find(rank.shown.begin(), rank.shown.end(), chunk) -
                                      rank.shown.begin());
  }
  // Where peers find a chunk that this rank shows.
  Spot shown_at(int rank, const ChunkName& chunk, Reach reach) const {
    if (reach != Reach::window) return chunk.spot();
    return {Spot::Where::window, slot_of(ranks_[at(rank)], chunk)};
  }

  static void add_shows(HostForm& form) {
    for (std::uint32_t slot = 0; slot < form.shown.size(); ++slot)
      form.phases[0].moves.push_back(
          {HostAction::show, kLocal, form.shown[slot], {Spot::Where::window, slot}, 0});
  }

  void add_copies(HostForm& form, int rank) const {
    for (const Op* copy : ranks_[at(rank)].copies) {
      if (copy->src.space == Space::scratch) continue;  // part of a take
      for (std::uint32_t c = 0; c < copy->dst.count; ++c)
        form.phases[1].moves.push_back({HostAction::copy, kLocal,
                                        chunk_spot(copy->src.space, copy->src.first + c),
                                        chunk_spot(copy->dst.space, copy->dst.first + c), 0});
    }
  }

  void add_takes(HostForm& form, int rank) const {
    const RankParts& parts = ranks_[at(rank)];
    for (const Op* recv : parts.recvs) {
      const Sent& sent = *find(recv->peer, rank, recv->step);
      const Region& to = *landing(parts, *recv);
      // Where results are put, nobody has to fetch them.
      if (sent.is_result && form.reach == Reach::mapped) continue;
      for (std::uint32_t c = 0; c < to.count; ++c) {
        HostMove take{HostAction::take, recv->peer, {}, chunk_spot(to.space, to.first + c), 0};
        if (sent.is_result) {
          take.from = {Spot::Where::result, 0};
          form.phases[2].moves.push_back(take);
          continue;
        }
        take.from = shown_at(recv->peer, {sent.src.space, sent.src.first + c}, form.reach);
        if (form.reach == Reach::mapped) take.givers_share = givers_share(recv->peer, rank);
        form.phases[1].moves.push_back(take);
      }
    }
  }

  // The other side of what peers take and do not move alone.
  void add_gives(HostForm& form, int rank) const {
    each_taker(rank, [&](int peer, const Sent& sent, const Region& to) {
      const double share = givers_share(rank, peer);
      for (std::uint32_t c = 0; !sent.is_result && share > 0 && c < to.count; ++c)
        form.phases[1].moves.push_back({HostAction::give, peer,
                                        chunk_spot(sent.src.space, sent.src.first + c),
                                        chunk_spot(to.space, to.first + c), share});
    });
  }

  void add_fold(HostForm& form, int rank) const {
    const RankParts& parts = ranks_[at(rank)];
    if (parts.fold == nullptr) return;
    HostFold& fold = form.phases[1].fold.emplace();
    fold.to = chunk_spot(parts.fold->dst.space, parts.fold->dst.first);
    fold.finish = parts.fold->finish;
    fold.balanced = parts.fold->balanced;
    for (const FoldOperand& operand : parts.operands) {
      const Region& src =
          operand.peer == kLocal ? operand.own : find(operand.peer, rank, operand.step)->src;
      const ChunkName chunk{src.space, src.first};
      const Spot from =
          operand.peer == kLocal ? chunk.spot() : shown_at(operand.peer, chunk, form.reach);
      fold.operands.push_back({operand.peer, from, operand.raw});
    }
    each_taker(rank, [&](int peer, const Sent& sent, const Region& to) {
      if (!sent.is_result) return;
      if (form.reach == Reach::mapped)
        fold.puts.push_back({peer, chunk_spot(to.space, to.first)});
      else
        fold.keeps_result = true;
    });
  }

  // Calls visit(peer, what it is sent, where it wants it) for all that receive from this rank, but
  // for those that fold it.
  template <class Visit>
  void each_taker(int rank, Visit visit) const {
    for (const Sent& sent : ranks_[at(rank)].sent)
      for (const Op* recv : ranks_[at(sent.peer)].recvs)
        if (recv->peer == rank && recv->step == sent.step)
          visit(sent.peer, sent, *landing(ranks_[at(sent.peer)], *recv));
  }

  // Of moving a message: all of it divided so that everybody has as much to do. Where both ends take
  // as much as the other, reading alone does that, and costs less than writing.
  double givers_share(int from, int to) const {
    const auto out = ranks_[at(from)].sent.size();
    const auto in = ranks_[at(to)].recvs.size();
    if (ranks_[at(from)].recvs.size() == in) return 0;
    return static_cast<double>(in) / static_cast<double>(in + out);
  }

  // Whoever overwrites a shown chunk in phase 1 must be its only reader, who has read it by then.
  bool is_unaliased(const HostForm& form, int rank) const {
    const Program& frame = form.frame;
    const auto place = [&](const Spot& spot) { return resolve(frame, spot.space(), spot.index); };
    std::vector<std::pair<Place, int>> writes;  // and by whom
    const RankParts& parts = ranks_[at(rank)];
    for (const Op* recv : parts.recvs) {
      const bool is_put = find(recv->peer, rank, recv->step)->is_result;
      const Region& to = *landing(parts, *recv);
      for (std::uint32_t c = 0; c < to.count; ++c)
        writes.push_back({place(chunk_spot(to.space, to.first + c)), is_put ? recv->peer : rank});
    }
    for (const HostMove& move : form.phases[1].moves)
      if (move.action == HostAction::copy) writes.push_back({place(move.to), rank});
    if (form.phases[1].fold) writes.push_back({place(form.phases[1].fold->to), rank});
    for (const Sent& sent : parts.sent)
      for (std::uint32_t c = 0; !sent.is_result && c < sent.src.count; ++c) {
        const Place shown = place(chunk_spot(sent.src.space, sent.src.first + c));
        for (const auto& [written, writer] : writes)
          if (shown == written && writer != sent.peer) return false;
      }
    return true;
  }

  std::vector<Program> programs_;  // their ops are referred to
  std::vector<RankParts> ranks_;
  std::string objection_;
  std::vector<std::vector<std::uint64_t>> shown_extents_;
  bool lopsided_ = false;
  std::uint32_t readers_ = 0;
};

Lowering::Lowering(std::span<const Program> programs) : parts_(std::make_unique<Parts>(programs)) {}

Lowering::~Lowering() = default;

const std::string& Lowering::objection() const { return parts_->objection(); }

bool Lowering::allows(Reach reach) const {
  switch (reach) {
    case Reach::window:
    case Reach::mapped: return true;
    case Reach::readable: return !parts_->folds_of_others();
    case Reach::mapped_source: return !parts_->has_results();
  }
  return false;
}

HostForm Lowering::form(int rank, Reach reach) const {
  TUTTI_CHECK(fits() && allows(reach));
  return parts_->form(rank, reach);
}

std::optional<std::vector<HostForm>> lower(std::span<const Program> programs, Reach reach) {
  const Lowering lowering(programs);
  if (!lowering.fits() || !lowering.allows(reach)) return {};
  std::vector<HostForm> forms;
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    forms.push_back(lowering.form(static_cast<int>(rank), reach));
  return forms;
}

}  // namespace tutti::schedule
