#include "engine/switched_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "engine/numbers.hpp"
#include "schedule/passes.hpp"

namespace tutti::engine {

using transport::Header;
using transport::MessageKind;

std::size_t bytes_in(const std::vector<Piece>& side) {
  std::size_t total = 0;
  for (const Piece& piece : side) total += piece.bytes;
  return total;
}

std::vector<Piece> part_of(const std::vector<Piece>& side, std::size_t begin, std::size_t end) {
  std::vector<Piece> part;
  std::size_t at = 0;
  for (const Piece& piece : side) {
    const std::size_t from = std::max(begin, at);
    const std::size_t to = std::min(end, at + piece.bytes);
    if (from < to) part.push_back({piece.data + (from - at), to - from});
    at += piece.bytes;
  }
  return part;
}

SwitchedRun::SwitchedRun(GroupView& group, Uplink& uplink, const schedule::Catalog& catalog,
                         const schedule::Request& request, std::size_t segment_bytes)
    : group_(group),
      uplink_(uplink),
      catalog_(catalog),
      request_(request),
      segment_bytes_(segment_bytes),
      // In place, too: results go where inputs lie only when they are everyone's.
      fold_(make(request.collective, Algorithm::in_network, request.shots, false)),
      settle_(make(Collective::barrier, Algorithm::recursive_doubling, 2, false)),
      run_(fold_.get()) {}

// The group room asked the catalog before it made the launch, so building cannot fail.
std::unique_ptr<MessageRun> SwitchedRun::make(Collective collective, Algorithm algorithm, int shots,
                                              bool in_place) const {
  schedule::Request request = request_;
  request.collective = collective;
  request.shots = shots;
  request.in_place = in_place;
  auto program = catalog_.build(algorithm, request);
  TUTTI_CHECK(program.ok());
  return std::make_unique<MessageRun>(group_, compile(schedule::fuse_folds(*std::move(program))),
                                      segment_bytes_);
}

MessageRun& SwitchedRun::second_choice(const Launch& launch) {
  auto& made = instead_[{launch.second_choice, launch.second_shots}];
  if (!made)
    made = make(launch.collective, launch.second_choice, launch.second_shots, launch.in_place);
  return *made;
}

void SwitchedRun::begin(const Launch& launch, std::uint64_t sequence) {
  launch_ = &launch;
  sequence_ = sequence;
  bytes_ = bytes_in(launch.input);
  over_ = false;
  failure_ = {};
  lost_from_ = ~std::size_t{0};
  // Whoever may have to be told, or asked for more.
  const auto& settling = settle_->company().peers;
  const auto& instead = second_choice(launch).company().peers;
  company_.peers.clear();
  std::set_union(settling.begin(), settling.end(), instead.begin(), instead.end(),
                 std::back_inserter(company_.peers));
  if (!uplink_.is_given_up()) uplink_.announce(launch, sequence);
  begin_round(0);
}

// The same call of a part of its bytes.
Launch SwitchedRun::part(std::size_t begin, std::size_t end) const {
  Launch launch;
  launch.collective = launch_->collective;
  launch.in_place = launch_->in_place;
  launch.order = launch_->order;
  launch.dtype = launch_->dtype;
  launch.widens = launch_->widens;
  launch.reduction = launch_->reduction;
  launch.input = part_of(launch_->input, begin, end);
  launch.output = part_of(launch_->output, begin * launch_->growth(), end * launch_->growth());
  return launch;
}

void SwitchedRun::begin_round(std::size_t round) {
  round_ = round;
  if (uplink_.is_given_up() || lost_from_ <= round_) return do_instead();
  const std::size_t begin = round * kRoundBytes;
  const std::size_t end = std::min(bytes_, begin + kRoundBytes);
  part_ = part(begin, end);
  if (launch_->in_place) {
    if (shadow_.size() < end - begin) shadow_.resize(end - begin);
    part_.in_place = false;
    part_.output = {{shadow_.data(), end - begin}};
  }
  enter(Stage::fold, *fold_);
}

// Takes up what came for this stage before this rank had come to it.
void SwitchedRun::enter(Stage stage, MessageRun& run) {
  stage_ = stage;
  run_ = &run;
  run.shift_steps(steps_of(round_, stage));
  run.begin(stage == Stage::settle ? barrier_ : part_, sequence_);
  std::vector<EarlySegment> early;
  early.swap(early_);
  for (EarlySegment& each : early) deliver(each.peer, each.header, each.segment);
}

bool SwitchedRun::step() {
  bool moved = false;
  while (!over_) {
    moved |= run_->step();
    if (!run_->failure().ok()) return true;
    if (run_->done()) {
      moved = true;
      if (stage_ == Stage::fold)
        enter(Stage::settle, *settle_);
      else
        go_on();
      continue;
    }
    if (stage_ == Stage::instead) return moved;
    const bool is_lost = stage_ == Stage::fold && !uplink_.loss().ok();
    if (is_lost && lost_from_ > round_) tell_loss();
    if (lost_from_ > round_) return moved;
    moved = true;
    do_instead();
  }
  return moved;
}

// A stage that ends a round is over.
void SwitchedRun::go_on() {
  const bool is_last = stage_ == Stage::instead || round_ + 1 == rounds_in(bytes_);
  if (stage_ == Stage::settle && launch_->in_place) {
    std::size_t at = 0;
    for (const Piece& piece : part_of(launch_->output, round_ * kRoundBytes,
                                      round_ * kRoundBytes + part_.output[0].bytes)) {
      std::memcpy(piece.data, shadow_.data() + at, piece.bytes);
      at += piece.bytes;
    }
  }
  over_ = is_last;
  if (!over_) begin_round(round_ + 1);
}

// No rank can be through with this round, because this one has not come to its barrier.
void SwitchedRun::tell_loss() {
  lost_from_ = round_;
  for (int peer = 0; peer < request_.size; ++peer) {
    if (peer == request_.rank) continue;
    Header header = transport::header_for(MessageKind::data, group_.channel(), sequence_);
    header.step = steps_of(round_, Stage::lost);
    (void)group_.link_to(peer).send(header, nullptr, 0, 0);
  }
}

void SwitchedRun::do_instead() {
  const bool is_new = !uplink_.is_given_up();
  if (is_new && round_ < rounds_in(bytes_) && stage_ != Stage::instead) run_->abandon();
  if (is_new)
    uplink_.give_up({Code::peer_lost,
                     "another rank of the group has lost it",
                     {request_.rank, uplink_.peer(), number_of(sequence_)}});
  part_ = part(round_ * kRoundBytes, bytes_);
  enter(Stage::instead, second_choice(*launch_));
}

void SwitchedRun::deliver(int peer, const Header& header, Segment segment) {
  const auto let_go = [&] {
    if (segment.lease != 0) group_.link_to(peer).release(segment.lease);
  };
  if (kind_of_stage(header.step) == Stage::lost) {
    lost_from_ = std::min(lost_from_, round_of(header.step));
    return let_go();
  }
  const std::uint32_t theirs = stage_of(header.step);
  const std::uint32_t mine = steps_of(round_, stage_);
  if (over_ || theirs < mine) return let_go();
  if (theirs == mine) return run_->deliver(peer, header, segment);
  if (early_.size() < kMostEarlySegments) return early_.push_back({peer, header, segment});
  let_go();
  failure_ = {Code::corrupt,
              fmt::format("{} sent more of {} than it can have come to", group_.where(peer),
                          numbered(to_string(request_.collective), sequence_)),
              {request_.rank, peer, number_of(sequence_)}};
}

std::byte* SwitchedRun::place(int peer, const Header& header) const {
  if (over_ || stage_of(header.step) != steps_of(round_, stage_)) return nullptr;
  return run_->place(peer, header);
}

void SwitchedRun::abandon() {
  run_->abandon();
  for (const EarlySegment& each : early_)
    if (each.segment.lease != 0) group_.link_to(each.peer).release(each.segment.lease);
  early_.clear();
}

}  // namespace tutti::engine
