#include "engine/compile.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "schedule/hazards.hpp"

namespace tutti::engine {
namespace {

using schedule::kLocal;
using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Region;

// Where two ops of one program that must keep their order touch the same memory.
void add_overlaps(const schedule::Places& places, const Program& program,
                  const schedule::Hazard& pair, std::vector<ChunkHazard>& found) {
  const auto place_of = [&](const Region& region) {
    return static_cast<std::uint32_t>(places.index(region.space, region.first));
  };
  schedule::each_access(program.ops[pair.first], [&](const Region& before, bool wrote) {
    schedule::each_access(program.ops[pair.second], [&](const Region& now, bool writes) {
      if (before.count == 0 || now.count == 0 || !(wrote || writes)) return;
      // Chunks that follow each other are places that do.
      const std::uint32_t earlier = place_of(before);
      const std::uint32_t later = place_of(now);
      const std::uint32_t end = std::min(earlier + before.count, later + now.count);
      for (std::uint32_t place = std::max(earlier, later); place < end; ++place)
        found.push_back({pair.first, place - earlier, place - later});
    });
  });
}

std::vector<std::vector<ChunkHazard>> chunk_hazards(const Program& program) {
  const schedule::Places places(program);
  std::vector<std::vector<ChunkHazard>> all(program.ops.size());
  for (const schedule::Hazard& pair : schedule::hazards(program))
    add_overlaps(places, program, pair, all[pair.second]);
  for (auto& list : all) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return all;
}

void sort_out(std::vector<int>& peers) {
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
}

void collect_streams(Compiled& compiled) {
  for (const Op& op : compiled.program.ops) {
    if (op.peer != kLocal) compiled.peers.push_back(op.peer);
    if (op.kind == OpKind::send) compiled.sends_to.push_back(op.peer);
    if (op.kind == OpKind::recv) compiled.streams.push_back({op.peer, op.step});
    for (const schedule::Source& source : op.sources) {
      if (source.peer == kLocal) continue;
      compiled.peers.push_back(source.peer);
      compiled.streams.push_back({source.peer, source.step});
    }
  }
  sort_out(compiled.peers);
  sort_out(compiled.sends_to);
  std::sort(compiled.streams.begin(), compiled.streams.end(), [](const Stream& a, const Stream& b) {
    return std::tie(a.peer, a.step) < std::tie(b.peer, b.step);
  });
}

// In each step one message goes out and one comes in, on every rank: whom a rank sends to is sent to by
// nobody else, as long as all keep step.
void find_exchanges(Compiled& compiled) {
  struct Exchange {
    int sends = 0;
    int comes = 0;
    std::uint32_t stream = 0;
  };
  std::map<std::uint32_t, Exchange> by_step;
  for (const Op& op : compiled.program.ops)
    if (op.kind == OpKind::send) ++by_step[op.step].sends;
  for (std::uint32_t i = 0; i < compiled.streams.size(); ++i) {
    Exchange& exchange = by_step[compiled.streams[i].step];
    ++exchange.comes;
    exchange.stream = i;
  }
  compiled.exchange_before.resize(compiled.program.ops.size());
  for (const auto& [step, exchange] : by_step)
    if (exchange.sends != 1 || exchange.comes != 1) return;
  compiled.exchanges = static_cast<int>(by_step.size());
  for (std::size_t i = 0; i < compiled.program.ops.size(); ++i) {
    const Op& op = compiled.program.ops[i];
    const auto at = by_step.find(op.step);
    if (op.kind == OpKind::send && at != by_step.begin())
      compiled.exchange_before[i] = std::prev(at)->second.stream;
  }
}

}  // namespace

int Compiled::find_stream(int peer, std::uint32_t step) const {
  const auto at = std::lower_bound(streams.begin(), streams.end(), std::pair(peer, step),
                                   [](const Stream& stream, const auto& key) {
                                     return std::pair(stream.peer, stream.step) < key;
                                   });
  if (at == streams.end() || at->peer != peer || at->step != step) return -1;
  return static_cast<int>(at - streams.begin());
}

Compiled compile(schedule::Program program) {
  Compiled compiled;
  compiled.program = std::move(program);
  collect_streams(compiled);
  compiled.hazards = chunk_hazards(compiled.program);
  const std::size_t count = compiled.program.ops.size();
  compiled.recv_stream.resize(count);
  compiled.source_stream.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Op& op = compiled.program.ops[i];
    if (op.kind == OpKind::recv)
      compiled.recv_stream[i] = static_cast<std::uint32_t>(compiled.find_stream(op.peer, op.step));
    for (const schedule::Source& source : op.sources)
      compiled.source_stream[i].push_back(
          source.peer == kLocal
              ? 0
              : static_cast<std::uint32_t>(compiled.find_stream(source.peer, source.step)));
  }
  find_exchanges(compiled);
  return compiled;
}

}  // namespace tutti::engine
