#include "tutti/exchange/pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "exchange/ended_group.hpp"
#include "tutti/exchange/meter.hpp"

namespace tutti::exchange {

namespace {

// What a collective that nobody waits for yet costs beyond its prediction: its start wakes the progress thread, its
// end the thread that computes, on every rank. 30 to 50 µs each on virtual machines (docs/thread_model.md).
constexpr double kWakeUpsS = 100e-6;

// One call, checked, and the pieces it is cut into.
class Cutting {
 public:
  Cutting(const Group& group, RowCounts rows, int pieces)
      : rank_(group.rank()), size_(group.size()), rows_(rows), pieces_(pieces) {}

  Status check(ConstBuffer part, ConstBuffer whole) const {
    if (pieces_ < 1)
      return {Code::invalid_argument, fmt::format("an exchange in {} pieces; at least 1", pieces_)};
    if (rows_.counts.size() != static_cast<std::size_t>(size_))
      return {Code::invalid_argument,
              fmt::format("row counts of {} ranks for a group of {}", rows_.counts.size(), size_)};
    const std::size_t all =
        std::accumulate(rows_.counts.begin(), rows_.counts.end(), std::size_t{0});
    if (whole.count != all * rows_.row || part.count != rows_.counts[at(rank_)] * rows_.row)
      return {Code::invalid_argument,
              fmt::format("buffers of {} and {} elements for {} of {} rows of {} elements",
                          part.count, whole.count, rows_.counts[at(rank_)], all, rows_.row)};
    return {};
  }

  RowPiece piece(int index) const {
    RowPiece piece{index, {}};
    std::int64_t before = 0;
    for (const std::size_t count : rows_.counts) {
      IndexRun range = part_of(static_cast<std::int64_t>(count), pieces_, index);
      range.first += before;
      piece.ranges.push_back(range);
      before += static_cast<std::int64_t>(count);
    }
    return piece;
  }

  // Of this rank's own rows.
  IndexRun own(int index) const {
    return part_of(static_cast<std::int64_t>(rows_.counts[at(rank_)]), pieces_, index);
  }

  template <class AnyBuffer>
  AnyBuffer stretch(AnyBuffer buffer, IndexRun range) const {
    const std::size_t offset = at(range.first) * rows_.row * size_of(buffer.dtype);
    using Bytes = std::conditional_t<std::is_same_v<AnyBuffer, Buffer>, std::byte, const std::byte>;
    buffer.data = static_cast<Bytes*>(buffer.data) + offset;
    buffer.count = at(range.count) * rows_.row;
    return buffer;
  }

  // One for each rank.
  template <class AnyBuffer>
  std::vector<AnyBuffer> stretches(AnyBuffer whole, const RowPiece& piece) const {
    std::vector<AnyBuffer> list;
    for (const IndexRun& range : piece.ranges) list.push_back(stretch(whole, range));
    return list;
  }

  Status annotate(const Status& status, const char* what, int index) const {
    return status.annotate(fmt::format("{} in pieces, {} of {}", what, index + 1, pieces_));
  }

 private:
  template <class Number>
  static std::size_t at(Number index) {
    return static_cast<std::size_t>(index);
  }

  int rank_;
  int size_;
  RowCounts rows_;
  int pieces_;
};

}  // namespace

inline namespace v1 {

Result<ExchangeTimes> gather_in_pieces(Group& group, RowCounts rows, ConstBuffer input,
                                       Buffer output, int pieces, const PieceCallback& on_piece,
                                       const CallOptions& options) {
  const Cutting cutting(group, rows, pieces);
  if (Status status = cutting.check(input, output); !status.ok()) return status;
  ExchangeMeter meter(output.device, options.stream);
  for (int i = 0; i < pieces; ++i) {
    const auto parts = cutting.stretches(output, cutting.piece(i));
    meter.follow(group.all_gather_async(cutting.stretch(input, cutting.own(i)), parts, options));
  }
  for (int i = 0; i < pieces; ++i) {
    Status status = meter.wait(static_cast<ExchangeMeter::Trip>(i));
    if (status.ok()) {
      status = on_piece(cutting.piece(i));
      if (!status.ok()) end_group(group, status);
    } else {
      status = cutting.annotate(status, "all_gather", i);
    }
    if (status.ok()) continue;
    (void)meter.wait_for_all().ok();  // the buffers are lent until then
    return status;
  }
  return meter.times();
}

Result<ExchangeTimes> scatter_in_pieces(Group& group, RowCounts rows, Buffer whole, Buffer output,
                                        Reduction reduction, int pieces,
                                        const PieceCallback& make_piece,
                                        const std::function<Status()>& meanwhile,
                                        const CallOptions& options) {
  const Cutting cutting(group, rows, pieces);
  if (Status status = cutting.check(output, whole); !status.ok()) return status;
  ExchangeMeter meter(output.device, options.stream);
  const auto give_up = [&](const Status& status) {
    end_group(group, status);
    (void)meter.wait_for_all().ok();  // the buffers are lent until then
    return status;
  };
  for (int i = 0; i < pieces; ++i) {
    const RowPiece piece = cutting.piece(i);
    if (Status status = make_piece(piece); !status.ok()) return give_up(status);
    const auto parts = cutting.stretches(ConstBuffer(whole), piece);
    meter.follow(group.reduce_scatter_async(parts, cutting.stretch(output, cutting.own(i)),
                                            reduction, options));
  }
  if (meanwhile)
    if (Status status = meanwhile(); !status.ok()) return give_up(status);
  for (int i = 0; i < pieces; ++i) {
    if (Status status = meter.wait(static_cast<ExchangeMeter::Trip>(i)); !status.ok()) {
      (void)meter.wait_for_all().ok();
      return cutting.annotate(status, "reduce_scatter", i);
    }
  }
  return meter.times();
}

double seconds_in_pieces(int pieces, double piece_s, double compute_s) {
  const double part_s = compute_s / pieces;
  return piece_s + (pieces - 1) * std::max(piece_s, part_s) + part_s;
}

PiecePlan plan_pieces(const TimeOfBytes& time, std::size_t bytes, double compute_s, int most) {
  PiecePlan best{1, time(bytes) + compute_s, time(bytes) + compute_s};
  for (int pieces = 2; pieces <= most; ++pieces) {
    const auto parts = static_cast<std::size_t>(pieces);
    const double seconds = seconds_in_pieces(pieces, time((bytes + parts - 1) / parts), compute_s);
    if (seconds < 0.99 * best.seconds) {
      best.pieces = pieces;
      best.seconds = seconds;
    }
  }
  return best;
}

Result<PiecePlan> plan_pieces(Group& group, Collective collective, std::size_t bytes,
                              double compute_s, int most) {
  Status failure;
  const auto time = [&](std::size_t part) {
    const auto predicted = group.predict(collective, part);
    if (predicted.ok()) return std::chrono::duration<double>(predicted->time).count() + kWakeUpsS;
    failure = predicted.status();
    return 0.0;
  };
  const PiecePlan plan = plan_pieces(time, bytes, compute_s, most);
  if (!failure.ok()) return failure;
  return plan;
}

}  // namespace v1
}  // namespace tutti::exchange
