#include "tool/trace/flight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "core/files.hpp"
#include "core/json.hpp"
#include "trace/trace_file.hpp"
#include "tutti/types.hpp"

namespace tutti::tool::trace {
namespace {

namespace fs = std::filesystem;
struct Dumped {
  Flight flight;
  int pid = 0;
  int size = 0;
};

// Reads a dump. The first field that is missing or of another kind is kept.
class DumpReader {
 public:
  Result<Dumped> read(const Json& dump) {
    Dumped dumped;
    Flight& flight = dumped.flight;
    flight.has_dump = true;
    flight.rank = whole<int>(dump, "rank");
    flight.reason = text(dump, "reason");
    flight.dumped_ns = time(dump, "unix_time_ns");
    dumped.pid = whole<int>(dump, "pid");
    const std::int64_t ranks = dump["ranks"].integer();  // 0: not known
    if (ranks < 0 || ranks > tutti::trace::kMostRanks)
      return Status(Code::corrupt, fmt::format("a job of {} ranks", ranks));
    dumped.size = static_cast<int>(ranks);
    to_wall_ = flight.dumped_ns - time(dump, "time_ns");
    for (const Json& group : dump["groups"].items()) {
      FlightGroup& mine = flight.groups[whole<std::uint32_t>(group, "channel")];
      mine.name = text(group, "name");
      mine.ranks = tutti::trace::ranks_of_text(text(group, "ranks")).value_or(std::vector<int>());
    }
    for (const Json& label : dump["labels"].items()) flight.labels.push_back(label.string());
    for (const Json& record : need(dump, "records", Json::Kind::array).items())
      take(record, flight);
    if (!wrong_.ok()) return wrong_;
    return dumped;
  }

 private:
  const Json& need(const Json& object, const char* name, Json::Kind kind) {
    const Json& value = object[name];
    if (value.kind() != kind && wrong_.ok())
      wrong_ = Status(Code::corrupt, fmt::format("'{}' is missing or of another kind", name));
    return value;
  }
  const std::string& text(const Json& object, const char* name) {
    return need(object, name, Json::Kind::string).string();
  }
  template <class T>
  T whole(const Json& object, const char* name) {
    const auto number = need(object, name, Json::Kind::number).whole();
    if (number && std::in_range<T>(*number)) return static_cast<T>(*number);
    if (wrong_.ok()) wrong_ = Status(Code::corrupt, fmt::format("'{}' is out of range", name));
    return 0;
  }
  // Wall and steady clocks are added and subtracted: none may come near the end of 64 bits.
  std::int64_t time(const Json& object, const char* name) {
    constexpr std::int64_t kMost = std::int64_t{1} << 61;
    const auto ns = whole<std::int64_t>(object, name);
    if (ns > -kMost && ns < kMost) return ns;
    if (wrong_.ok()) wrong_ = Status(Code::corrupt, fmt::format("'{}' is no time", name));
    return 0;
  }

  void take(const Json& record, Flight& flight) {
    const std::string& event = text(record, "event");
    if (event == "peer_down") return flight.lost.push_back(whole<int>(record, "peer"));
    if (event != "started" && event != "finished" && event != "failed") return;
    if (text(record, "collective") == "point_to_point") return;
    RecordedCall call;
    call.collective = text(record, "collective");
    call.dtype = text(record, "dtype");
    call.reduce_op = text(record, "reduce_op");
    call.bytes = whole<std::uint64_t>(record, "bytes");
    call.label = text(record, "label");
    call.finished = event == "finished";
    call.time_ns = time(record, "time_ns") + to_wall_;
    FlightGroup& group = flight.groups[whole<std::uint32_t>(record, "channel")];
    if (group.name.empty()) group.name = call.label;
    const auto sequence = whole<std::uint64_t>(record, "sequence");
    const auto known = group.calls.find(sequence);
    // When it began is what tells who waited how long; `failed` comes to all at once.
    if (event == "failed" && known != group.calls.end()) call.time_ns = known->second.time_ns;
    group.calls[sequence] = std::move(call);
  }

  std::int64_t to_wall_ = 0;
  Status wrong_;
};

Result<Dumped> parse_text(const std::string& path, const std::string& text) {
  const auto dump = Json::parse(text);
  if (!dump.ok()) return Status(Code::corrupt, fmt::format("{}: not whole: this is no JSON", path));
  const Json* version = dump->find("tutti_recorder");
  if (version == nullptr)
    return Status(Code::corrupt, fmt::format("{}: this is no dump of a flight recorder", path));
  if (*version != 1)
    return Status(
        Code::invalid_argument,
        fmt::format("{}: a dump of version {}; this tool reads version 1", path, version->dump()));
  auto dumped = DumpReader().read(*dump);
  return dumped.ok() ? std::move(dumped) : dumped.status().annotate(path);
}

// Finished operations of a rank that left no dump.
void add_trace(Flight& flight, const tutti::trace::RankTrace& trace) {
  flight.has_trace = true;
  flight.rank = trace.rank;
  for (const auto& [channel, group] : trace.groups) {
    FlightGroup& mine = flight.groups[channel];
    mine.name = group.name;
    mine.ranks = group.ranks;
  }
  const std::int64_t to_wall = trace.unix_time_ns - trace.time_ns;
  for (const auto& entry : trace.collectives) {
    auto& calls = flight.groups[entry.channel].calls;
    if (calls.count(entry.sequence) != 0) continue;  // a dump knows better
    RecordedCall call;
    call.collective = to_string(static_cast<Collective>(entry.collective));
    call.dtype = to_string(static_cast<Dtype>(entry.dtype));
    call.reduce_op = to_string(static_cast<ReduceOp>(entry.reduce_op));
    call.bytes = entry.bytes;
    call.label = entry.name != 0 ? trace.text(entry.name) : flight.groups[entry.channel].name;
    call.finished = entry.code == 0;
    call.time_ns = (call.finished ? entry.end : entry.begin) + to_wall;
    calls[entry.sequence] = std::move(call);
  }
}

class Folder {
 public:
  explicit Folder(const std::string& folder) : folder_(folder) {}

  Result<Flights> read() {
    if (Status status = read_files(); !status.ok()) return status;
    if (dumps_.empty() && traces_.empty())
      return Status(Code::invalid_argument,
                    fmt::format("{} holds neither dumps (tutti.rank*.json) nor traces "
                                "(rank-*.trace); run the job with TUTTI_TRACE_DIR={} or "
                                "TUTTI_DUMP_DIR={}",
                                folder_, folder_, folder_));
    keep_newest_dumps();
    keep_one_job();
    return join();
  }

 private:
  Status read_files() {
    std::error_code error;
    if (!fs::is_directory(folder_, error))
      return {Code::invalid_argument, fmt::format("there is no folder {}", folder_)};
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(folder_, error))
      paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths)
      if (Status status = read_one(path); !status.ok()) return status;
    return {};
  }

  Status read_one(const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    if (name.starts_with("rank-") && name.ends_with(".trace")) {
      auto trace = tutti::trace::read_trace(path);
      if (!trace.ok()) return trace.status();
      traces_.push_back(*std::move(trace));
    } else if (name.starts_with("tutti.rank") && name.ends_with(".json")) {
      const auto text = tutti::read_file(path);
      if (!text.ok()) return text.status();
      auto dump = parse_text(path, *text);
      if (!dump.ok()) return dump.status();
      dumps_.push_back(*std::move(dump));
    }
    return {};
  }

  // A rank may have failed in several runs.
  void keep_newest_dumps() {
    std::map<int, Dumped> newest;
    for (Dumped& dump : dumps_) {
      auto [at, is_new] = newest.try_emplace(dump.flight.rank);
      if (!is_new)
        remarks_.push_back(
            fmt::format("rank {} has several dumps: the newest counts", dump.flight.rank));
      if (is_new || at->second.flight.dumped_ns < dump.flight.dumped_ns)
        at->second = std::move(dump);
    }
    dumps_.clear();
    for (auto& [rank, dump] : newest) dumps_.push_back(std::move(dump));
  }

  // Traces of the processes that left the dumps; without dumps, of the newest job.
  void keep_one_job() {
    if (traces_.empty()) return;
    std::string job;
    for (const auto& trace : traces_)
      for (const Dumped& dump : dumps_)
        if (dump.flight.rank == trace.rank && dump.pid == trace.pid) job = trace.job;
    std::set<std::string> jobs;
    std::int64_t newest = 0;
    for (const auto& trace : traces_) {
      jobs.insert(trace.job);
      if (!dumps_.empty() || trace.unix_time_ns <= newest) continue;
      newest = trace.unix_time_ns;
      job = trace.job;
    }
    if (jobs.size() > 1 && !job.empty())
      remarks_.push_back(
          fmt::format("the folder holds traces of {} jobs: {} counts", jobs.size(), job));
    std::erase_if(traces_, [&](const auto& trace) { return trace.job != job; });
  }

  Flights join() {
    std::map<int, Flight> ranks;
    Flights flights;
    for (Dumped& dump : dumps_) {
      flights.size = std::max(flights.size, dump.size);
      ranks[dump.flight.rank] = std::move(dump.flight);
    }
    for (const auto& trace : traces_) {
      flights.size = std::max(flights.size, trace.ranks);
      add_trace(ranks[trace.rank], trace);
    }
    for (auto& [rank, flight] : ranks) flights.ranks.push_back(std::move(flight));
    std::sort(remarks_.begin(), remarks_.end());
    remarks_.erase(std::unique(remarks_.begin(), remarks_.end()), remarks_.end());
    flights.remarks = std::move(remarks_);
    return flights;
  }

  std::string folder_;
  std::vector<Dumped> dumps_;
  std::vector<tutti::trace::RankTrace> traces_;
  std::vector<std::string> remarks_;
};

}  // namespace

Result<Flight> parse_dump(const std::string& path, const std::string& text, int* size) {
  auto dump = parse_text(path, text);
  if (!dump.ok()) return dump.status();
  if (size != nullptr) *size = dump->size;
  return std::move(dump->flight);
}

Result<Flights> read_flights(const std::string& folder) { return Folder(folder).read(); }

}  // namespace tutti::tool::trace
