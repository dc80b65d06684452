// bench/peers/peer_mpi.cpp - Open MPI and MPICH from one source; started by `tutti bench compare`.
#include <mpi.h>

#include "bench/peers/peer.hpp"

using tutti::bench::PeerCell;
using tutti::bench::PeerOp;

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto make = [](PeerCell& cell) -> std::function<void()> {
    const int whole = static_cast<int>(cell.count);
    const int part = static_cast<int>(cell.part);
    float* const in = cell.in;
    float* const out = cell.out;
    switch (cell.op) {
      case PeerOp::all_reduce:
        return [=] { MPI_Allreduce(MPI_IN_PLACE, out, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
      case PeerOp::reduce_scatter:
        return [=] { MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
      case PeerOp::all_gather:
        return [=] { MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD); };
      case PeerOp::broadcast: return [=] { MPI_Bcast(out, whole, MPI_FLOAT, 0, MPI_COMM_WORLD); };
      case PeerOp::all_to_all:
        return [=] { MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD); };
      case PeerOp::barrier: return [] { MPI_Barrier(MPI_COMM_WORLD); };
      case PeerOp::none: break;
    }
    return {};
  };
  {
    const tutti::bench::PeerOptions options(count, words);
    tutti::bench::PeerLoop loop(options, rank, ranks);
    loop.run(make);
  }
  MPI_Finalize();
  return 0;
}
