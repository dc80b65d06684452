// bench/peers/peer_gloo.cpp - Gloo over TCP; one process per rank, started by `tutti bench
// compare`.
//
//   --algorithm api        the functions that torch uses (ring); bcube: the same with that choice
//   --algorithm halving    and ring_chunked, ring: the older classes, with
//   --polling 0|1|2        pairs that are asynchronous, synchronous, or busy polling
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "bench/peers/peer.hpp"

namespace {

using tutti::bench::PeerCell;
using tutti::bench::PeerOp;
using Operation = std::function<void()>;
using Context = std::shared_ptr<gloo::Context>;

void sum(void* to, const void* a, const void* b, std::size_t count) {
  gloo::sum<float>(static_cast<float*>(to), static_cast<const float*>(a),
                   static_cast<const float*>(b), count);
}

Operation make_by_api(const Context& context, const PeerCell& cell, bool bcube) {
  switch (cell.op) {
    case PeerOp::all_reduce:
      return [=] {
        gloo::AllreduceOptions options(context);
        options.setAlgorithm(bcube ? gloo::AllreduceOptions::Algorithm::BCUBE
                                   : gloo::AllreduceOptions::Algorithm::RING);
        options.setOutput(cell.out, cell.count);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
      };
    case PeerOp::all_gather:
      return [=] {
        gloo::AllgatherOptions options(context);
        options.setInput(cell.in, cell.part);
        options.setOutput(cell.out, cell.count);
        gloo::allgather(options);
      };
    case PeerOp::broadcast:
      return [=] {
        gloo::BroadcastOptions options(context);
        options.setOutput(cell.out, cell.count);
        options.setRoot(0);
        gloo::broadcast(options);
      };
    case PeerOp::all_to_all:
      return [=] {
        gloo::AlltoallOptions options(context);
        options.setInput(cell.in, cell.count);
        options.setOutput(cell.out, cell.count);
        gloo::alltoall(options);
      };
    case PeerOp::barrier:
      return [=] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
      };
    case PeerOp::reduce_scatter:
    case PeerOp::none: break;
  }
  return {};
}

std::shared_ptr<gloo::Algorithm> make_reduction(const Context& context, const PeerCell& cell,
                                                const std::string& word) {
  const std::vector<float*> arrays{cell.out};
  const int count = static_cast<int>(cell.count);
  if (word == "halving")
    return std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, arrays, count);
  if (word == "ring_chunked")
    return std::make_shared<gloo::AllreduceRingChunked<float>>(context, arrays, count);
  return std::make_shared<gloo::AllreduceRing<float>>(context, arrays, count);
}

Operation make_by_class(const Context& context, PeerCell& cell, const std::string& word) {
  std::shared_ptr<gloo::Algorithm> algorithm;
  switch (cell.op) {
    case PeerOp::all_reduce: algorithm = make_reduction(context, cell, word); break;
    case PeerOp::reduce_scatter:
      if (word != "halving") return {};
      cell.result_in_input = true;
      algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
          context, std::vector<float*>{cell.in}, static_cast<int>(cell.count),
          std::vector<int>(static_cast<std::size_t>(context->size), static_cast<int>(cell.part)));
      break;
    case PeerOp::all_gather:
      algorithm = std::make_shared<gloo::AllgatherRing<float>>(
          context, std::vector<const float*>{cell.in}, cell.out, static_cast<int>(cell.part));
      break;
    case PeerOp::broadcast:
      algorithm = std::make_shared<gloo::BroadcastOneToAll<float>>(
          context, std::vector<float*>{cell.out}, static_cast<int>(cell.count), 0);
      break;
    case PeerOp::barrier: algorithm = std::make_shared<gloo::BarrierAllToAll>(context); break;
    case PeerOp::all_to_all:
    case PeerOp::none: return {};
  }
  return [algorithm] { algorithm->run(); };
}

}  // namespace

int main(int count, char** words) {
  const tutti::bench::PeerOptions options(count, words);
  const int rank = static_cast<int>(options.number("--rank", 0));
  const int ranks = static_cast<int>(options.number("--ranks", 1));
  if (const double cpu = options.number("--cpu", -1); cpu >= 0)
    tutti::bench::pin_this_thread(static_cast<int>(cpu));
  gloo::transport::tcp::attr attributes;
  attributes.iface = options.text("--interface", "lo");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(options.text("--store"));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(std::chrono::seconds(120));
  context->connectFullMesh(store, device);

  const std::string algorithm = options.text("--algorithm", "api");
  const bool by_api = algorithm == "api" || algorithm == "bcube";
  const int polling = static_cast<int>(options.number("--polling", 0));
  if (!by_api && polling > 0)
    for (int other = 0; other < ranks; ++other)
      if (other != rank) context->getPair(other)->setSync(true, polling == 2);
  tutti::bench::PeerLoop loop(options, rank, ranks);
  loop.run([&](PeerCell& cell) {
    return by_api ? make_by_api(context, cell, algorithm == "bcube")
                  : make_by_class(context, cell, algorithm);
  });
  return 0;
}
