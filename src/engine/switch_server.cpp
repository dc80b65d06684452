#include "engine/switch_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/check.hpp"
#include "core/pause.hpp"
#include "schedule/catalog.hpp"
#include "schedule/passes.hpp"
#include "tutti/shape.hpp"

namespace tutti::engine {

using transport::Header;
using transport::MessageKind;
using transport::Payload;

namespace {

// Looks before it sleeps, where there is a core for it beside those of the ranks that may be here: some 150 µs,
// a message's way there and back.
constexpr long kLooks = 500;
constexpr Nanoseconds kSleep = std::chrono::milliseconds(100);

long looks_of(const Config& config, int processes) {
  if (config.spin >= 0) return config.spin;
  return static_cast<int>(std::thread::hardware_concurrency()) >= processes ? kLooks : 0;
}

Reduction reduction_of(const Fingerprint& call) {
  Reduction reduction(call.op);
  if (call.op == ReduceOp::premul_sum)
    std::memcpy(&reduction.scalar, &call.scalar_bits, sizeof reduction.scalar);
  return reduction;
}

}  // namespace

// ---- a group

SwitchedGroup::SwitchedGroup(transport::Endpoint& endpoint, std::uint32_t channel,
                             Introduction said, std::size_t segment_bytes)
    : endpoint_(endpoint), channel_(channel), said_(std::move(said)), come_(said_.members.size()) {
  schedule::Request request;
  request.collective = Collective::all_reduce;
  request.size = request.rank = size();
  request.order = said_.order;
  auto program = schedule::build(Algorithm::in_network, request);
  TUTTI_CHECK(program.ok());
  run_ = std::make_unique<MessageRun>(*this, compile(schedule::fuse_folds(*std::move(program))),
                                      segment_bytes);
}

int SwitchedGroup::number_of_member(int world_rank) const {
  const auto at = std::find(said_.members.begin(), said_.members.end(), world_rank);
  return at == said_.members.end() ? -1 : static_cast<int>(at - said_.members.begin());
}

bool SwitchedGroup::all_have_arrived() const {
  for (int peer = 0; peer < size(); ++peer)
    if (!has_arrived(peer)) return false;
  return true;
}

// What comes from a rank is believed as far as it can be folded.
Status SwitchedGroup::check(const Fingerprint& call) const {
  const bool known =
      call.collective == Collective::all_reduce && call.algorithm == Algorithm::in_network &&
      static_cast<int>(call.dtype) < kDtypes && static_cast<int>(call.op) < kReduceOps &&
      call.op != ReduceOp::user && is_sensible(call.op, call.dtype) &&
      call.count <= kMostSwitchedBytes / size_of(call.dtype);
  if (known) return {};
  return {Code::corrupt, fmt::format("a call that no switch serves: {}", describe(call))};
}

void SwitchedGroup::on_arrive(int peer, std::uint64_t sequence, const Fingerprint& call) {
  if (Status status = check(call); !status.ok()) {
    failure_ = status;
    return;
  }
  if (call_ && sequence == call_->sequence) {
    // Ranks that call different things find out about it themselves.
    if (agree(call_->said, call)) greet(peer, call);
  } else if (sequence > (call_ ? call_->sequence : done_)) {
    announced_.push_back({peer, sequence, call});
    if (!call_) begin(sequence, call);
  }
}

void SwitchedGroup::begin(std::uint64_t sequence, const Fingerprint& call) {
  call_.emplace();
  call_->sequence = sequence;
  call_->said = call;
  std::vector<Announced> announced;
  announced.swap(announced_);
  begin_round(0);
  for (const Announced& each : announced)
    if (each.sequence != sequence)
      announced_.push_back(each);
    else if (agree(call, each.call))
      greet(each.peer, each.call);
}

// It has come to the call, too.
void SwitchedGroup::greet(int peer, const Fingerprint& call) {
  come_[static_cast<std::size_t>(peer)] = call_->sequence;
  const auto header = transport::header_for(MessageKind::arrive, channel_, call_->sequence);
  (void)link_to(peer).send(header, &call, sizeof call, 0);
}

void SwitchedGroup::begin_round(std::size_t round) {
  call_->round = round;
  Launch launch;
  launch.collective = Collective::all_reduce;
  launch.algorithm = Algorithm::in_network;
  launch.order = said_.order;
  launch.dtype = call_->said.dtype;
  launch.widens = call_->said.widens != 0;
  launch.reduction = reduction_of(call_->said);
  // Nothing lies there: it says how long messages are.
  launch.input = {{nullptr, std::min(bytes() - round * kRoundBytes, kRoundBytes)}};
  call_->launch = std::move(launch);
  run_->shift_steps(steps_of(round, Stage::fold));
  run_->begin(call_->launch, call_->sequence);
  std::vector<EarlySegment> early;
  early.swap(early_);
  for (const EarlySegment& each : early) on_data(each.peer, each.header, each.segment);
}

void SwitchedGroup::on_data(int peer, const Header& header, Segment segment) {
  const std::uint32_t mine = call_ ? steps_of(call_->round, Stage::fold) : 0;
  const bool is_current = call_ && header.sequence == call_->sequence;
  if (is_current && stage_of(header.step) == mine) return run_->deliver(peer, header, segment);
  const bool is_later = is_current ? stage_of(header.step) > mine
                                   : header.sequence > (call_ ? call_->sequence : done_);
  if (is_later && early_.size() < kMostEarlySegments)
    return early_.push_back({peer, header, segment});
  if (segment.lease != 0) link_to(peer).release(segment.lease);
  if (is_later)
    failure_ = {Code::corrupt, fmt::format("member {} sends more than it can have begun", peer)};
}

std::byte* SwitchedGroup::place(int peer, const Header& header) const {
  const bool fits = call_ && header.sequence == call_->sequence &&
                    stage_of(header.step) == steps_of(call_->round, Stage::fold);
  return fits ? run_->place(peer, header) : nullptr;
}

bool SwitchedGroup::step() {
  if (!call_) return false;
  const bool moved = run_->step();
  if (failure_.ok()) failure_ = run_->failure();
  if (!failure_.ok() || !run_->done()) return moved;
  if (call_->round + 1 < rounds_in(bytes()))
    begin_round(call_->round + 1);
  else
    finish();
  return true;
}

void SwitchedGroup::finish() {
  done_ = call_->sequence;
  call_.reset();
  const auto next = std::min_element(
      announced_.begin(), announced_.end(),
      [](const Announced& a, const Announced& b) { return a.sequence < b.sequence; });
  if (next != announced_.end()) begin(next->sequence, Fingerprint(next->call));
}

void SwitchedGroup::abandon() {
  if (call_) run_->abandon();
  for (const EarlySegment& each : early_)
    if (each.segment.lease != 0) link_to(each.peer).release(each.segment.lease);
  early_.clear();
  call_.reset();
}

// ---- all of them

SwitchServer::SwitchServer(std::unique_ptr<transport::Endpoint> endpoint, const Config& config,
                           Log log)
    : endpoint_(std::move(endpoint)),
      segment_bytes_(config.segment_bytes),
      looks_(looks_of(config, endpoint_->size())),
      log_(std::move(log)),
      ranks_left_(endpoint_->size() - 1) {
  endpoint_->all_have_joined();
}

void SwitchServer::serve(const std::function<bool()>& stop) {
  Nanoseconds ask_at{0};
  for (long idle = 0; ranks_left_ > 0;) {
    if (turn())
      idle = 0;
    else
      wait(++idle);
    const Nanoseconds now = steady_clock().now();
    if (now < ask_at) continue;
    if (stop && stop()) return;
    ask_at = now + kSleep;
  }
}

// Awake for a while, as the next piece is soon there; then asleep. To yield would cost it a slice (engine.cpp).
void SwitchServer::wait(long idle) {
  if (idle <= looks_)
    pause_cpu();
  else
    endpoint_->sleep(kSleep, false, [this] { return turn(); });
}

bool SwitchServer::turn() {
  bool moved = endpoint_->poll(*this);
  for (const auto& group : groups_) moved |= group->step();
  for (const auto& group : groups_)
    if (group->is_left()) dismiss(*group);
  std::erase_if(groups_, [](const auto& group) { return group->is_left(); });
  return moved;
}

SwitchedGroup* SwitchServer::find(std::uint32_t channel, int member) const {
  for (const auto& group : groups_)
    if (group->channel() == channel && group->number_of_member(member) >= 0) return group.get();
  return nullptr;
}

// Its members go on without the switch. Not from inside a poll.
void SwitchServer::dismiss(SwitchedGroup& group) {
  if (!group.failure().ok())
    log_.warn(Subsystem::net, "a group cannot be served: {}", group.failure().to_string());
  group.abandon();
  for (const int member : group.members()) {
    ended_.emplace(group.channel(), member);
    transport::Link* link = endpoint_->link(member);
    link->forget(group.channel());
    const auto goodbye = transport::header_for(MessageKind::goodbye, group.channel(), 0);
    (void)link->send(goodbye, nullptr, 0, 0);
  }
}

std::byte* SwitchServer::place(int peer, const Header& header) {
  const SwitchedGroup* group = find(header.channel, peer);
  return group != nullptr ? group->place(group->number_of_member(peer), header) : nullptr;
}

void SwitchServer::on_message(int peer, const Header& header, const Payload& payload) {
  if (header.kind == MessageKind::meet) return introduce(peer, header, payload);
  const auto let_go = [&] {
    if (payload.lease != 0) endpoint_->link(peer)->release(payload.lease);
  };
  SwitchedGroup* group = find(header.channel, peer);
  if (group == nullptr) return let_go();
  const int number = group->number_of_member(peer);
  switch (header.kind) {
    case MessageKind::data: return group->on_data(number, header, Segment::keep(header, payload));
    case MessageKind::arrive:
      if (Fingerprint call; header.bytes == sizeof call) {
        std::memcpy(&call, payload.data, sizeof call);
        group->on_arrive(number, header.sequence, call);
      }
      break;
    case MessageKind::goodbye: group->leave(); break;
    default: break;
  }
  let_go();
}

// All members say the same; the first is believed, as far as it names ranks that there are.
void SwitchServer::introduce(int peer, const Header& header, const Payload& payload) {
  const std::string_view words(reinterpret_cast<const char*>(payload.data), header.bytes);
  auto said = decode_introduction(words);
  const auto is_rank = [&](int member) { return member >= 0 && member < endpoint_->size() - 1; };
  const auto is_free = [&](int member) {
    return is_rank(member) && find(header.channel, member) == nullptr &&
           !ended_.contains({header.channel, member});
  };
  if (said && std::all_of(said->members.begin(), said->members.end(), is_free))
    groups_.push_back(std::make_unique<SwitchedGroup>(*endpoint_, header.channel, *std::move(said),
                                                      segment_bytes_));
  if (payload.lease != 0) endpoint_->link(peer)->release(payload.lease);
}

void SwitchServer::on_sent(std::uint64_t token) {
  if (token != 0)
    reinterpret_cast<std::atomic<std::uint32_t>*>(token)->fetch_sub(1, std::memory_order_release);
}

// Groups without it may go on; those with it need all members' parts.
void SwitchServer::on_down(int peer, const Status& reason) {
  --ranks_left_;
  log_.info(Subsystem::net, "{}", reason.message());
  for (const auto& group : groups_)
    if (group->number_of_member(peer) >= 0) group->leave();
}

}  // namespace tutti::engine
