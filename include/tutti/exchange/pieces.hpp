// tutti/exchange/pieces.hpp - a collective cut into pieces, so that compute runs beside all but one of them.
//
//   gather_in_pieces     all_gather → compute            scatter_in_pieces    compute → reduce_scatter
//
//   wire     [0][1][2][3]                                wire        [0 ][1 ][2 ][3 ]
//   compute     [0 ][1 ][2 ][3 ]                         compute  [0][1 ][2 ][3 ]
//
// Rank r has counts[r] rows of `row` elements, and each rank's rows are cut into as many pieces: piece i
// is the i-th of every rank. The whole is laid out as the plain collective has it, rank after rank; a
// piece is therefore one stretch of it for each rank.
//
//   rank 0's rows        rank 1's rows
//   [ 0 | 1 | 2 | 3 ]    [ 0 | 1 | 2 | 3 ]     piece 2: the stretches marked 2
//
// Ordering       as of collectives: all ranks call it alike, with the same counts and number of pieces.
// Buffers        are lent from the call to its return; input and output must not overlap. Fastest where they
//                are symmetric memory.
// Callbacks      run in the calling thread. One that fails ends the exchange with its status, and the
//                group with it: the others wait for what would have come next.
// Failure        that of the collective, annotated with the piece. Every wait has the call's deadline.
// Thread-safety  as Group: exchanges on one group must not overlap in time.
//
//   auto times = gather_in_pieces(group, rows, mine, whole, 4, [&](const RowPiece& piece) {
//     for (int rank = 0; rank < group.size(); ++rank) multiply(piece.ranges[rank]);
//     return tutti::Status();
//   });
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tutti/exchange/sequence_cut.hpp"
#include "tutti/exchange/times.hpp"
#include "tutti/group.hpp"

namespace tutti::exchange {
inline namespace [[gnu::visibility("default")]] v1 {

// How many rows each rank has, and what a row is.
struct RowCounts {
  std::span<const std::size_t> counts;  // one for each rank
  std::size_t row = 1;                  // elements
};

// Rows of the whole, by rank: `first` counts from the beginning of the whole.
struct RowPiece {
  int index = 0;
  std::vector<IndexRun> ranges;
};

using PieceCallback = std::function<Status(const RowPiece&)>;

// Every rank's `input` reaches every rank's `output`; on_piece(i) is called when piece i is there, in order.
// All pieces are on their way from the beginning.
Result<ExchangeTimes> gather_in_pieces(Group& group, RowCounts rows, ConstBuffer input,
                                       Buffer output, int pieces, const PieceCallback& on_piece,
                                       const CallOptions& options = {});

// make_piece(i) fills its stretches of `whole`; their fold over all ranks becomes piece i of each rank's
// `output`, beside the next call of make_piece. `meanwhile`, where given, is called when all of them are on
// their way: compute that needs none of them.
Result<ExchangeTimes> scatter_in_pieces(Group& group, RowCounts rows, Buffer whole, Buffer output,
                                        Reduction reduction, int pieces,
                                        const PieceCallback& make_piece,
                                        const std::function<Status()>& meanwhile = {},
                                        const CallOptions& options = {});

// What cutting is expected to give.
struct PiecePlan {
  int pieces = 1;
  double seconds = 0;      // with that many
  double one_piece_s = 0;  // without cutting: the collective, then all of the compute
  double saved_s() const { return one_piece_s - seconds; }
};

// How long the collective takes for so many bytes.
using TimeOfBytes = std::function<double(std::size_t bytes)>;

// Of collective and compute together, when a piece of the collective takes piece_s:
//
//   piece + (k − 1) · max(piece, compute / k) + compute / k
//
double seconds_in_pieces(int pieces, double piece_s, double compute_s);

// The number of pieces, at most `most`, with which that is least. Pure. A larger number is taken only if it gains
// 1 % over the smaller ones.
PiecePlan plan_pieces(const TimeOfBytes& time, std::size_t bytes, double compute_s, int most = 16);
// The same by Group::predict, and 0.1 ms for each piece that threads take to wake up. All ranks get the same answer if they say the same compute_s. `bytes` is the
// whole array.
Result<PiecePlan> plan_pieces(Group& group, Collective collective, std::size_t bytes,
                              double compute_s, int most = 16);

}  // namespace v1
}  // namespace tutti::exchange
