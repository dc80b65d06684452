#include "engine/compile.hpp"

#include <algorithm>
#include <tuple>

#include "schedule/hazards.hpp"

namespace tutti::engine {
namespace {

using schedule::kLocal;
using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Region;

// Who touched a chunk since (and including) its last write. Earlier ones are covered: a reader
// waits for the writer before it, byte by byte.
struct Touch {
  std::uint32_t op;
  std::uint32_t chunk;
  bool writes;
};

class HazardFinder {
 public:
  explicit HazardFinder(const Program& program)
      : program_(program), places_(program), touched_(places_.count()) {}

  std::vector<Hazard> visit(std::uint32_t index) {
    std::vector<Hazard> found;
    std::vector<std::pair<std::size_t, Touch>> mine;
    schedule::each_access(program_.ops[index], [&](const Region& region, bool writes) {
      for (std::uint32_t k = 0; k < region.count; ++k)
        mine.push_back({places_.index(region.space, region.first + k), {index, k, writes}});
    });
    for (const auto& [key, touch] : mine)
      for (const Touch& before : touched_[key])
        if (before.writes || touch.writes) found.push_back({before.op, before.chunk, touch.chunk});
    for (const auto& [key, touch] : mine) remember(touched_[key], touch);
    std::sort(found.begin(), found.end(), [](const Hazard& a, const Hazard& b) {
      return std::tie(a.earlier, a.earlier_chunk, a.chunk) <
             std::tie(b.earlier, b.earlier_chunk, b.chunk);
    });
    return found;
  }

 private:
  // A write replaces all touches but those of its own op; a read is added.
  static void remember(std::vector<Touch>& touches, const Touch& touch) {
    if (touch.writes) std::erase_if(touches, [&](const Touch& old) { return old.op != touch.op; });
    touches.push_back(touch);
  }

  const Program& program_;
  schedule::Places places_;
  std::vector<std::vector<Touch>> touched_;
};

void collect_streams(const Program& program, std::vector<Stream>& streams,
                     std::vector<int>& peers) {
  for (const Op& op : program.ops) {
    if (op.peer != kLocal) peers.push_back(op.peer);
    if (op.kind == OpKind::recv) streams.push_back({op.peer, op.step});
    for (const schedule::Source& source : op.sources) {
      if (source.peer == kLocal) continue;
      peers.push_back(source.peer);
      streams.push_back({source.peer, source.step});
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  std::sort(streams.begin(), streams.end(), [](const Stream& a, const Stream& b) {
    return std::tie(a.peer, a.step) < std::tie(b.peer, b.step);
  });
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
  collect_streams(compiled.program, compiled.streams, compiled.peers);
  HazardFinder finder(compiled.program);
  const std::size_t count = compiled.program.ops.size();
  compiled.recv_stream.resize(count);
  compiled.source_stream.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Op& op = compiled.program.ops[i];
    compiled.hazards.push_back(finder.visit(i));
    if (op.kind == OpKind::recv)
      compiled.recv_stream[i] = static_cast<std::uint32_t>(compiled.find_stream(op.peer, op.step));
    for (const schedule::Source& source : op.sources)
      compiled.source_stream[i].push_back(
          source.peer == kLocal
              ? 0
              : static_cast<std::uint32_t>(compiled.find_stream(source.peer, source.step)));
  }
  return compiled;
}

}  // namespace tutti::engine
