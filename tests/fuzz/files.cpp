// Files that anybody may have written.
#include <algorithm>

#include "checkpoint/manifest.hpp"
#include "checkpoint/safe_file.hpp"
#include "checkpoint/safetensors/safetensors.hpp"
#include "core/check.hpp"
#include "fuzz/targets.hpp"
#include "plan/cluster.hpp"
#include "schedule/text.hpp"
#include "tool/trace/flight.hpp"
#include "trace/exposure.hpp"
#include "trace/run.hpp"

namespace tutti::fuzz {

void safetensors(Input input) {
  const auto data_bytes = take<std::uint16_t>(input);
  const auto header = checkpoint::parse_safetensors(text_of(input), data_bytes);
  if (!header.ok()) return;
  for (const checkpoint::TensorEntry& tensor : header->tensors)
    TUTTI_CHECK(tensor.offset + tensor.bytes <= data_bytes && header->find(tensor.name) != nullptr);
}

// With a seal that fits, or nothing behind it would ever be reached.
void manifest(Input input) {
  std::string text(text_of(input));
  text += "  \"sha256\": \"" + checkpoint::sha256_of(text) + "\"\n}\n";
  const auto read = checkpoint::parse_manifest(text);
  if (!read.ok() || read->version < 3) return;
  const auto again = checkpoint::parse_manifest(checkpoint::to_json(*read));
  TUTTI_CHECK(again.ok() && checkpoint::to_json(*again) == checkpoint::to_json(*read));
}

void schedule(Input input) {
  const auto programs = schedule::parse(text_of(input));
  if (!programs.ok()) return;
  const std::string text = schedule::print(*programs);
  const auto again = schedule::parse(text);
  TUTTI_CHECK(again.ok() && schedule::print(*again) == text);
}

void cluster(Input input) {
  const auto read = plan::parse_cluster(text_of(input));
  if (!read.ok()) return;
  const auto again = plan::parse_cluster(plan::to_json(*read));
  TUTTI_CHECK(again.ok() && plan::to_json(*again) == plan::to_json(*read));
}

// With check sums that fit. Two files of one job.
void trace(Input input) {
  std::vector<trace::RankTrace> traces;
  for (int rank = 0; rank < 2; ++rank) {
    auto head = take<trace::FileHead>(input);
    std::memcpy(head.magic, trace::kMagic, sizeof head.magic);
    head.version = trace::kTraceVersion;
    head.head_bytes = sizeof(trace::FileHead);
    head.entry_bytes = sizeof(trace::TraceEntry);
    head.check = trace::check_of(head);
    std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
    const std::size_t entries = take<std::uint8_t>(input) % 16;
    for (std::size_t i = 0; i < entries && !input.empty(); ++i) {
      auto entry = take<trace::TraceEntry>(input);
      entry.check = trace::check_of(entry);
      bytes.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    }
    auto trace = trace::parse_trace("fuzz", bytes);
    if (!trace.ok()) return;
    traces.push_back(*std::move(trace));
  }
  const auto run = trace::make_run(std::move(traces), "", "folder");
  if (run.ok()) (void)trace::analyse(*run);
}

void flight(Input input) {
  int size = 0;
  (void)tool::trace::parse_dump("fuzz", std::string(text_of(input)), &size);
}

}  // namespace tutti::fuzz
