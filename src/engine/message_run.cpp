#include "engine/message_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/numbers.hpp"
#include "reduce/fold.hpp"

namespace tutti::engine {

using schedule::kLocal;
using schedule::Op;
using schedule::OpKind;
using transport::Header;
using transport::MessageKind;

namespace {
// The most that one op does in one step: long enough to be worth a step, short enough (some 20 µs)
// that other groups of this rank get their turn.
constexpr std::size_t kRunQuantumBytes = 256 * 1024;
constexpr std::size_t kCutAt = 128;
// Exchanges that take so long each keep step however small their messages: what waiting for one costs is little
// beside what two senders cost who share the way into a host (64 KiB at 1 Gbit/s: 524 µs).
constexpr Nanoseconds kSlowStep = std::chrono::microseconds(200);
constexpr std::size_t kLeastPart = 16 * 1024;
}  // namespace

MessageRun::MessageRun(GroupView& group, Compiled compiled, std::size_t segment_bytes,
                       DeviceSide* side)
    : group_(group),
      compiled_(std::move(compiled)),
      company_{compiled_.peers, compiled_.sends_to},
      // Whole lines, halved too, so that no element is ever cut in two.
      segment_bytes_(std::max(segment_bytes / kCutAt * kCutAt, kCutAt)),
      staging_(side != nullptr ? std::make_unique<Staging>(*side) : nullptr),
      running_(std::make_unique<Running[]>(compiled_.program.ops.size())),
      streams_(compiled_.streams.size()),
      receiver_(compiled_.streams.size(), kNoOp),
      user_(compiled_.streams.size(), kNoOp) {
  if (staging_)
    layout_.take_scratch_from([this](std::size_t bytes) { return staging_->scratch(bytes); });
  for (std::size_t i = 0; i < compiled_.program.ops.size(); ++i) {
    const Op& op = compiled_.program.ops[i];
    if (op.kind == OpKind::recv)
      receiver_[compiled_.recv_stream[i]] = user_[compiled_.recv_stream[i]] = i;
    for (std::size_t s = 0; s < op.sources.size(); ++s)
      if (op.sources[s].peer != kLocal) user_[compiled_.source_stream[i][s]] = i;
  }
}

void MessageRun::begin(const Launch& launch, std::uint64_t sequence) {
  launch_ = &launch;
  sequence_ = sequence;
  open_ = 0;
  tainted_ = false;
  failure_ = {};
  if (staging_) failure_ = staging_->begin(launch);
  has_slow_steps_ = compiled_.exchanges > 0 && launch.expected >= kSlowStep * compiled_.exchanges;
  layout_.reset(compiled_.program, launch);
  for (SegmentQueue& stream : streams_) stream.clear();
  for (std::size_t i = 0; i < compiled_.program.ops.size(); ++i) prepare(i, running_[i]);
}

void MessageRun::prepare(std::size_t index, Running& running) {
  const Op& op = compiled_.program.ops[index];
  running.issued = running.done = 0;
  running.opened = running.finished = false;
  running.in_flight.store(0, std::memory_order_relaxed);
  running.copies.clear();
  running.dst.clear();
  running.src.clear();
  running.sources.resize(op.sources.size());
  if (op.kind != OpKind::send) add_region(op.dst, running.dst);
  if (op.kind != OpKind::recv && op.kind != OpKind::reduce) add_region(op.src, running.src);
  for (std::size_t s = 0; s < op.sources.size(); ++s) {
    running.sources[s].clear();
    if (op.sources[s].peer == kLocal) add_region(op.sources[s].region, running.sources[s]);
  }
  const schedule::Region& region = op.kind == OpKind::send ? op.src : op.dst;
  running.starts.assign(1, 0);
  for (std::uint32_t k = 0; k < region.count; ++k)
    running.starts.push_back(running.starts.back() +
                             layout_.chunk_bytes(region.space, region.first + k));
  running.element = size_of(launch_->dtype);
  if (region.count > 0) running.element *= layout_.growth_of(region.space, region.first);
}

// Where a fold's operands are when it is at `position`.
std::size_t MessageRun::operand_bytes(const Running& running, std::size_t position) const {
  return position / running.element * size_of(launch_->dtype);
}

void MessageRun::add_region(const schedule::Region& region, Scattered& pieces) const {
  for (std::uint32_t k = 0; k < region.count; ++k)
    layout_.append(region.space, region.first + k, pieces);
}

// How far op `index` may go, in bytes; kBlocked when it may not even begin. An overlap of zero
// bytes orders whole ops: barriers and empty messages live on that.
std::size_t MessageRun::limit_of(std::size_t index) const {
  const Running& mine = running_[index];
  std::size_t limit = mine.starts.back();
  for (const ChunkHazard& hazard : compiled_.hazards[index]) {
    const Running& before = running_[hazard.earlier];
    if (before.finished) continue;
    const std::size_t begin = mine.starts[hazard.chunk];
    const std::size_t bytes = mine.starts[hazard.chunk + 1] - begin;
    if (bytes == 0) return kBlocked;
    const std::size_t before_begin = before.starts[hazard.earlier_chunk];
    std::size_t through = before.done > before_begin ? before.done - before_begin : 0;
    if (before.element != mine.element) through = through / before.element * mine.element;
    if (through < bytes) limit = std::min(limit, begin + through);
  }
  return limit;
}

void MessageRun::deliver(int peer, const Header& header, Segment segment) {
  const int stream = compiled_.find_stream(peer, header.step - first_step_);
  const auto refuse = [&](const char* why) {
    if (segment.lease != 0) group_.link_to(peer).release(segment.lease);
    failure_ = {Code::corrupt,
                fmt::format("rank {} sent a segment of {} (step {}, {} bytes at {}) {}", peer,
                            numbered(to_string(compiled_.program.collective), sequence_),
                            header.step, header.bytes, header.offset, why),
                {compiled_.program.rank, peer, number_of(sequence_)}};
  };
  if (stream < 0) return refuse("that nobody expects here");
  if (const char* why = misfit(static_cast<std::size_t>(stream), header)) return refuse(why);
  streams_[static_cast<std::size_t>(stream)].push(segment);
}

// Why a segment cannot be the next one of its stream; null: it can.
const char* MessageRun::misfit(std::size_t stream, const Header& header) const {
  if (header.offset != streams_[stream].received()) return "out of order";
  if (header.bytes > bytes_of(stream) - header.offset) return "that is longer than the message";
  // A fold would wait for ever for the other half of an element.
  if (receiver_[stream] == kNoOp && header.bytes % size_of(launch_->dtype) != 0)
    return "that cuts an element in two";
  return nullptr;
}

// Of the message that comes there.
std::size_t MessageRun::bytes_of(std::size_t stream) const {
  const Running& user = running_[user_[stream]];
  return receiver_[stream] == kNoOp ? operand_bytes(user, user.starts.back()) : user.starts.back();
}

// How far a send may go before the exchange before it has come as far. Small messages do not keep step: they
// wait for nothing but the way.
std::size_t MessageRun::turn_of(std::size_t index, const transport::Link& link) const {
  const std::size_t total = running_[index].starts.back();
  const auto& before = compiled_.exchange_before[index];
  const std::size_t small = has_slow_steps_ ? kLeastPart : link.eager_bytes();
  if (!before || link.shares_memory() || total <= small) return total;
  const std::size_t received = streams_[*before].received();
  return received == bytes_of(*before) ? total : std::min<std::size_t>(received, total);
}

// A place is given only if nobody reads or writes it any more before the recv does: then it does
// not matter that the bytes come a little early. Their delivery, in order, is what moves the recv
// on.
std::byte* MessageRun::place(int peer, const Header& header) const {
  const int stream = compiled_.find_stream(peer, header.step - first_step_);
  if (stream < 0 || tainted_ || header.sequence != sequence_) return nullptr;
  const std::size_t index = receiver_[static_cast<std::size_t>(stream)];
  if (index == kNoOp || header.offset < streams_[static_cast<std::size_t>(stream)].received())
    return nullptr;
  const std::size_t total = running_[index].starts.back();
  if (header.bytes > total || header.offset > total - header.bytes) return nullptr;
  const std::size_t limit = limit_of(index);
  if (limit == kBlocked || header.offset + header.bytes > limit) return nullptr;
  const Piece piece = running_[index].dst.at(header.offset);
  return piece.bytes >= header.bytes ? piece.data : nullptr;
}

bool MessageRun::step() {
  bool moved = false;
  const std::size_t count = compiled_.program.ops.size();
  if (tainted_) return false;
  for (std::size_t i = open_; i < count; ++i) {
    if (!running_[i].finished) moved |= advance(i);
    if (i == open_ && running_[i].finished) ++open_;
  }
  return moved;
}

bool MessageRun::advance(std::size_t index) {
  switch (compiled_.program.ops[index].kind) {
    case OpKind::send: return advance_send(index);
    case OpKind::recv: return advance_recv(index);
    case OpKind::copy:
      return is_staged(compiled_.program.ops[index]) ? advance_staged(index) : advance_copy(index);
    case OpKind::reduce: return advance_reduce(index);
  }
  return false;
}

// A message that moves bytes comes in two parts at least, unless it is small: the receiver works on
// the first, and passes it on, while the second is still under way.
std::size_t MessageRun::most_at_once(const transport::Link& link, std::size_t total) const {
  if (link.shares_memory()) return total;
  return std::max((total / 2 + 63) / 64 * 64, has_slow_steps_ ? kLeastPart : segment_bytes_ / 2);
}

bool MessageRun::advance_send(std::size_t index) {
  const Op& op = compiled_.program.ops[index];
  Running& running = running_[index];
  const std::size_t total = running.starts.back();
  std::size_t limit = limit_of(index);
  bool moved = false;
  if (limit != kBlocked && (running.issued < limit || !running.opened)) {
    transport::Link& link = group_.link_to(op.peer);
    limit = std::min(limit, turn_of(index, link));
    const bool invited = group_.has_arrived(op.peer);
    // Whole segments while more is to come; the last one as soon as it is there.
    const std::size_t most = most_at_once(link, total);
    const bool enough = limit == total || limit - running.issued >= std::min(segment_bytes_, most);
    if ((invited || total <= link.eager_bytes()) && enough) {
      while (running.issued < limit || !running.opened) {
        const Piece piece = total == 0 ? Piece{} : running.src.at(running.issued);
        const std::size_t bytes = std::min({piece.bytes, limit - running.issued, most});
        Header header;
        header.channel = group_.channel();
        header.kind = MessageKind::data;
        header.sequence = sequence_;
        header.step = first_step_ + op.step;
        header.offset = running.issued;
        if (!running.opened) group_.precede_data(op.peer);
        running.in_flight.fetch_add(1, std::memory_order_relaxed);
        const transport::Sent sent = link.send(header, piece.data, bytes,
                                               reinterpret_cast<std::uint64_t>(&running.in_flight));
        if (!sent.lent) running.in_flight.fetch_sub(1, std::memory_order_relaxed);
        if (!sent.accepted) break;
        running.issued += sent.bytes;
        running.opened = moved = true;
      }
    }
  }
  if (running.in_flight.load(std::memory_order_acquire) == 0) running.done = running.issued;
  if (running.opened && running.done == total) moved = running.finished = true;
  return moved;
}

// Takes `bytes` off the front segment. A view is believed only if its owner still lends it after it
// was read; if not, the owner has failed and its abort is on the way, so this run stops here.
void MessageRun::consume(SegmentQueue& queue, std::size_t bytes, int peer) {
  Segment& segment = queue.front();
  segment.used += bytes;
  if (segment.used < segment.bytes) return;
  if (segment.lease != 0) {
    transport::Link& link = group_.link_to(peer);
    if (link.revoked(segment.lease)) tainted_ = true;
    link.release(segment.lease);
  }
  queue.pop();
}

bool MessageRun::advance_recv(std::size_t index) {
  Running& running = running_[index];
  SegmentQueue& queue = streams_[compiled_.recv_stream[index]];
  const std::size_t total = running.starts.back();
  const std::size_t limit = limit_of(index);
  if (limit == kBlocked || !queue.opened()) return false;
  bool moved = false;
  std::size_t budget = kRunQuantumBytes;
  while (running.done < limit && !queue.empty() && budget > 0 && !tainted_) {
    Segment& segment = queue.front();
    std::size_t bytes = std::min<std::size_t>(segment.bytes - segment.used, limit - running.done);
    if (!segment.placed) {
      const Piece piece = running.dst.at(running.done);
      bytes = std::min({bytes, piece.bytes, budget});
      std::memcpy(piece.data, segment.data(), bytes);
      budget -= bytes;
    }
    consume(queue, bytes, compiled_.program.ops[index].peer);
    running.done += bytes;
    moved = true;
  }
  if (running.done == total && !tainted_) moved = running.finished = true;
  return moved;
}

bool MessageRun::advance_copy(std::size_t index) {
  Running& running = running_[index];
  const std::size_t total = running.starts.back();
  const std::size_t limit = limit_of(index);
  if (limit == kBlocked) return false;
  bool moved = false;
  std::size_t budget = kRunQuantumBytes;
  while (running.done < limit && budget > 0) {
    const Piece to = running.dst.at(running.done);
    const Piece from = running.src.at(running.done);
    const std::size_t bytes = std::min({to.bytes, from.bytes, limit - running.done, budget});
    if (to.data != from.data) std::memmove(to.data, from.data, bytes);
    running.done += bytes;
    budget -= bytes;
    moved = true;
  }
  if (running.done == total) moved = running.finished = true;
  return moved;
}

// As far as the ops before it have come, in pieces; over as far as the device has come with them.
bool MessageRun::advance_staged(std::size_t index) {
  const Op& op = compiled_.program.ops[index];
  const auto direction = op.dst.space == schedule::Space::scratch ? Staging::Direction::to_host
                                                                  : Staging::Direction::to_device;
  Running& running = running_[index];
  bool moved = issue_staged(index, direction);
  while (!running.copies.empty() && failure_.ok()) {
    const auto over = staging_->is_over(direction, running.copies.front().name);
    if (!over.ok()) failure_ = over.status();
    if (!over.ok() || !*over) break;
    running.done = running.copies.front().end;
    running.copies.pop_front();
    moved = true;
  }
  if (running.done == running.starts.back() && running.copies.empty())
    moved = running.finished = true;
  return moved;
}

bool MessageRun::issue_staged(std::size_t index, Staging::Direction direction) {
  Running& running = running_[index];
  const std::size_t limit = limit_of(index);
  const std::size_t total = running.starts.back();
  if (limit == kBlocked || !failure_.ok()) return false;
  bool moved = false;
  while (running.issued < limit) {
    const Piece to = running.dst.at(running.issued);
    const Piece from = running.src.at(running.issued);
    const std::size_t bytes =
        std::min({to.bytes, from.bytes, limit - running.issued, Staging::kPieceBytes});
    // A whole piece, or what is left of this one: many short copies would take longer.
    const bool enough =
        bytes == std::min({to.bytes, from.bytes, total - running.issued, Staging::kPieceBytes});
    if (!enough) break;
    const auto name = staging_->copy(direction, to.data, from.data, bytes);
    if (!name.ok()) failure_ = name.status();
    if (!name.ok() || *name == 0) break;
    running.issued += bytes;
    running.copies.push_back({*name, running.issued});
    moved = true;
  }
  return moved;
}

bool MessageRun::advance_reduce(std::size_t index) {
  const Op& op = compiled_.program.ops[index];
  Running& running = running_[index];
  const std::size_t total = running.starts.back();
  const std::size_t limit = limit_of(index);
  if (limit == kBlocked) return false;
  for (std::size_t s = 0; s < op.sources.size(); ++s)
    if (op.sources[s].peer != kLocal && !streams_[compiled_.source_stream[index][s]].opened())
      return false;
  bool moved = false;
  std::size_t budget = kRunQuantumBytes;
  while (running.done < limit && budget > 0 && !tainted_) {
    trace::Tracer* tracer = group_.tracer();
    const std::int64_t began = tracer != nullptr ? trace::now_ns() : 0;
    const std::size_t bytes = fold_piece(index, std::min(limit, running.done + budget));
    if (bytes == 0) break;
    const std::size_t taken = operand_bytes(running, bytes);
    if (tracer != nullptr && taken >= trace::kLeastFold)
      tracer->fold(group_.channel(), number_of(sequence_), taken, began, trace::now_ns());
    for (std::size_t s = 0; s < op.sources.size(); ++s)
      if (op.sources[s].peer != kLocal)
        consume(streams_[compiled_.source_stream[index][s]], taken, op.sources[s].peer);
    running.done += bytes;
    budget -= std::min(budget, bytes);
    moved = true;
  }
  if (running.done == total && !tainted_) moved = running.finished = true;
  return moved;
}

// Folds the next run of elements that is contiguous in every operand, and says how many bytes of the
// result that is; 0 when a message has to come first.
std::size_t MessageRun::fold_piece(std::size_t index, std::size_t limit) {
  const Op& op = compiled_.program.ops[index];
  Running& running = running_[index];
  const std::size_t element = size_of(launch_->dtype);
  const Piece to = running.dst.at(running.done);
  std::size_t bytes = operand_bytes(running, std::min(to.bytes, limit - running.done));
  std::vector<reduce::Operand> operands(op.sources.size());
  for (std::size_t s = 0; s < op.sources.size(); ++s) {
    operands[s].raw = op.sources[s].raw;
    if (op.sources[s].peer == kLocal) {
      const Piece from = running.sources[s].at(operand_bytes(running, running.done));
      operands[s].data = from.data;
      bytes = std::min(bytes, from.bytes);
      continue;
    }
    SegmentQueue& queue = streams_[compiled_.source_stream[index][s]];
    if (queue.empty()) return 0;
    operands[s].data = queue.front().data();
    bytes = std::min<std::size_t>(bytes, queue.front().bytes - queue.front().used);
  }
  const std::size_t count = bytes / element;
  const reduce::Folding folding{launch_->dtype,         launch_->reduction, op.finish,
                                compiled_.program.size, launch_->widens,    op.balanced};
  reduce::fold(folding, to.data, operands, count);
  return count * running.element;
}

void MessageRun::abandon() {
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    for (; !streams_[s].empty(); streams_[s].pop())
      if (const Segment& segment = streams_[s].front(); segment.lease != 0)
        group_.link_to(compiled_.streams[s].peer).release(segment.lease);
    streams_[s].clear();
  }
}

bool MessageRun::done() const {
  return open_ == compiled_.program.ops.size() && group_.all_have_arrived();
}

std::vector<int> MessageRun::waiting_for() const {
  std::vector<int> peers;
  for (std::size_t i = open_; i < compiled_.program.ops.size(); ++i) {
    if (running_[i].finished) continue;
    const Op& op = compiled_.program.ops[i];
    if (op.peer != kLocal) peers.push_back(op.peer);
    for (std::size_t s = 0; s < op.sources.size(); ++s)
      if (op.sources[s].peer != kLocal && streams_[compiled_.source_stream[i][s]].empty())
        peers.push_back(op.sources[s].peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace tutti::engine
