// One table holds every environment variable: from_environment reads by it, `tutti info` prints it.
#include "tutti/config.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/process_hooks.hpp"
#include "core/words.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

using std::chrono::nanoseconds;

// ---- readers: text → field; the failure names the culprit, the caller adds the variable

Status read_transport(std::string_view text, std::string& list) {
  static constexpr std::array kWords = {
      std::string_view("auto"),
#define TUTTI_TRANSPORT(word) std::string_view(#word),
#include "tutti/transports.def"
#undef TUTTI_TRANSPORT
  };
  const auto words = split_words(text, ',');
  if (words.empty()) return Status(Code::invalid_argument, "the list is empty");
  for (std::string_view word : words) {
    bool known = false;
    for (std::string_view right : kWords) known |= word == right;
    if (!known) return Status(Code::invalid_argument, unknown_word("transport", word, kWords));
    if (word == "auto" && words.size() > 1)
      return Status(Code::invalid_argument, "auto stands alone, without other transports");
  }
  list = fmt::format("{}", fmt::join(words, ","));
  return {};
}

template <class Enum>
std::vector<std::string_view> all_words(int count) {
  std::vector<std::string_view> words;
  for (int i = 0; i < count; ++i) words.push_back(to_string(static_cast<Enum>(i)));
  return words;
}

// "all_reduce:ring,broadcast:binomial_tree".
Status read_algorithms(std::string_view text, std::array<Algorithm, kCollectives>& forced) {
  for (std::string_view entry : split_words(text, ',')) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos)
      return Status(Code::invalid_argument,
                    fmt::format("'{}' is not of the form collective:algorithm", entry));
    const std::string_view left = entry.substr(0, colon);
    const std::string_view right = entry.substr(colon + 1);
    const auto collective = parse_collective(left);
    if (!collective)
      return Status(Code::invalid_argument,
                    unknown_word("collective", left, all_words<Collective>(kCollectives)));
    const auto algorithm = parse_algorithm(right);
    if (!algorithm)
      return Status(Code::invalid_argument,
                    unknown_word("algorithm", right, all_words<Algorithm>(kAlgorithms)));
    forced[static_cast<std::size_t>(*collective)] = *algorithm;
  }
  return {};
}

Status read_timeout(std::string_view text, nanoseconds& field) {
  auto time = parse_duration(text);
  if (!time.ok()) return time.status();
  if (*time <= nanoseconds(0)) return Status(Code::invalid_argument, "it must be more than zero");
  field = *time;
  return {};
}

Status read_dead_after(std::string_view text, nanoseconds& field) {
  auto time = parse_duration(text);
  if (!time.ok()) return time.status();
  if (*time != nanoseconds(0) && *time < std::chrono::milliseconds(500))
    return Status(Code::invalid_argument, "it must be half a second or more, or 0 for never");
  field = *time;
  return {};
}

Status read_bytes(std::string_view text, std::size_t& field, std::size_t least, std::size_t most) {
  auto bytes = parse_bytes(text);
  if (!bytes.ok()) return bytes.status();
  if (*bytes < least || *bytes > most)
    return Status(Code::invalid_argument,
                  fmt::format("{} lies outside {} … {}", *bytes, least, most));
  field = *bytes;
  return {};
}

Status read_level(std::string_view text, std::string& field) {
  if (auto level = parse_level(text); !level.ok()) return level.status();
  field = text;
  return {};
}

Status read_subsystems(std::string_view text, std::string& field) {
  if (auto mask = parse_subsystems(text); !mask.ok()) return mask.status();
  field = text;
  return {};
}

// One of a few words.
Status read_word(std::string_view text, std::string& field,
                 std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), text) == words.end())
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is none of {}", text, fmt::join(words, ", ")));
  field = text;
  return {};
}

Status read_spin(std::string_view text, long& field) {
  auto number = parse_integer(text);
  if (!number.ok()) return number.status();
  field = static_cast<long>(*number);
  return {};
}

Status read_list(std::string_view text, std::vector<std::string>& field) {
  for (const std::string_view word : split_words(text, ',')) field.emplace_back(word);
  return {};
}

Status read_within(std::string_view text, int least, int most, int& field) {
  auto number = parse_integer(text);
  if (!number.ok()) return number.status();
  if (*number < least || *number > most)
    return Status(Code::invalid_argument,
                  fmt::format("{} lies outside {} … {}", *number, least, most));
  field = static_cast<int>(*number);
  return {};
}

Status read_switch(std::string_view text, bool& field) {
  auto value = parse_switch(text);
  if (!value.ok()) return value.status();
  field = *value;
  return {};
}

// "3", "0,4-7"
Status read_cpus(std::string_view text, std::vector<int>& field) {
  std::vector<int> cpus;
  while (true) {
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const auto dash = part.find('-');
    auto first = parse_integer(part.substr(0, dash));
    auto last = dash == std::string_view::npos ? first : parse_integer(part.substr(dash + 1));
    if (!first.ok() || !last.ok() || *first < 0 || *last < *first || *last >= 4096)
      return Status(Code::invalid_argument,
                    fmt::format("'{}' is neither a core nor a range of cores such as 4-7", part));
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  field = std::move(cpus);
  return {};
}

Status read_share(std::string_view text, double& field) {
  char* end = nullptr;
  const std::string copy(text);
  const double share = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || !(share >= 0.01 && share <= 1.0))
    return Status(Code::invalid_argument, fmt::format("'{}' is not a share of 0.01 … 1", text));
  field = share;
  return {};
}

std::string seconds(nanoseconds time) { return fmt::format("{}", in_seconds(time)); }

// ---- the table

struct Row {
  const char* name;
  const char* meaning;
  // Null: handed down from the launcher to its ranks, and read when a group looks for itself.
  Status (*read)(std::string_view text, Config& config);
  std::string (*show)(const Config& config);  // a default Config's field, as it would be written
};

using Text = std::string_view;
using Filled = const Config&;

const Row kRows[] = {
    {"TUTTI_TRANSPORT",
     "transports that may be used: auto, or a comma list of those that `tutti info` names",
     [](Text text, Config& c) { return read_transport(text, c.transport); },
     [](Filled c) { return c.transport; }},
    {"TUTTI_ALGORITHM", "forced algorithms, such as all_reduce:ring,broadcast:binomial_tree",
     [](Text text, Config& c) { return read_algorithms(text, c.algorithm); },
     [](Filled) { return std::string(); }},
    {"TUTTI_TIMEOUT", "seconds an operation may take unless its call says otherwise",
     [](Text text, Config& c) { return read_timeout(text, c.timeout); },
     [](Filled c) { return seconds(c.timeout); }},
    {"TUTTI_JOIN_TIMEOUT", "seconds ranks wait for each other when a group is created",
     [](Text text, Config& c) { return read_timeout(text, c.join_timeout); },
     [](Filled c) { return seconds(c.join_timeout); }},
    {"TUTTI_DEAD_AFTER",
     "seconds without a sign of life after which a rank is taken for dead; 0: never",
     [](Text text, Config& c) { return read_dead_after(text, c.dead_after); },
     [](Filled c) { return seconds(c.dead_after); }},
    {"TUTTI_LINKS",
     "when links are made: eager (while ranks join), lazy (at first use), auto (lazy above 16 ranks)",
     [](Text text, Config& c) {
       return read_word(text, c.links, {"auto", "eager", "lazy"});
     },
     [](Filled c) { return c.links; }},
    {"TUTTI_HOST", "address on which other hosts reach this one; found when not set",
     [](Text text, Config& c) { return c.host = text, Status(); }, [](Filled c) { return c.host; }},
    {"TUTTI_INTERFACE", "network interface to use between hosts; found when not set",
     [](Text text, Config& c) { return c.interface = text, Status(); },
     [](Filled c) { return c.interface; }},
    {"TUTTI_RACKS", "file that says which rack each host stands in (docs/formats/racks.md)",
     [](Text text, Config& c) { return c.racks = text, Status(); },
     [](Filled c) { return c.racks; }},
    {"TUTTI_DEBUG", "how much to log: off, WARN, INFO or TRACE",
     [](Text text, Config& c) { return read_level(text, c.debug); },
     [](Filled c) { return c.debug; }},
    {"TUTTI_DEBUG_SUBSYS",
     "comma list of what to log: INIT NET SHM COLL P2P TUNE STORE WATCH RUN; all when not set",
     [](Text text, Config& c) { return read_subsystems(text, c.debug_subsystems); },
     [](Filled c) { return c.debug_subsystems; }},
    {"TUTTI_DEBUG_FILE", "file for the log, %h stands for the host, %p for the pid; else stderr",
     [](Text text, Config& c) { return c.debug_file = text, Status(); },
     [](Filled c) { return c.debug_file; }},
    {"TUTTI_DUMP_DIR", "folder for flight-recorder dumps; a summary on stderr when not set",
     [](Text text, Config& c) { return c.dump_dir = text, Status(); },
     [](Filled c) { return c.dump_dir; }},
    {"TUTTI_TRACE_DIR", "folder into which every rank traces what it does; no trace when not set",
     [](Text text, Config& c) { return c.trace_dir = text, Status(); },
     [](Filled c) { return c.trace_dir; }},
    {"TUTTI_RECORDER_SIZE", "records the flight recorder keeps",
     [](Text text, Config& c) {
       return read_bytes(text, c.recorder_size, 1, std::size_t{1} << 24);
     },
     [](Filled c) { return std::to_string(c.recorder_size); }},
    {"TUTTI_SEGMENT_BYTES", "bytes that move at once",
     [](Text text, Config& c) {
       return read_bytes(text, c.segment_bytes, 64, std::size_t{1} << 30);
     },
     [](Filled c) { return std::to_string(c.segment_bytes); }},
    {"TUTTI_TUNING", "costs to choose by: auto (measured once), fixed, measure (again), or a file",
     [](Text text, Config& c) { return c.tuning = text, Status(); },
     [](Filled c) { return c.tuning; }},
    {"TUTTI_CACHE_DIR", "folder for measured costs; tutti/ in the user's cache when not set",
     [](Text text, Config& c) { return c.cache_dir = text, Status(); },
     [](Filled c) { return c.cache_dir; }},
    {"TUTTI_STREAMS", "tcp connections between two ranks, 1 … 8; the smaller of both sides counts",
     [](Text text, Config& c) { return read_within(text, 1, 8, c.streams); },
     [](Filled c) { return std::to_string(c.streams); }},
    {"TUTTI_TCP_CONGESTION",
     "congestion control of tcp: auto (cubic instead of bbr), system, or a name",
     [](Text text, Config& c) { return c.tcp_congestion = text, Status(); },
     [](Filled c) { return c.tcp_congestion; }},
    {"TUTTI_TLS",
     "whether tcp connections are encrypted, the store's too; on every rank or on none",
     [](Text text, Config& c) { return read_switch(text, c.tls); },
     [](Filled c) { return std::string(c.tls ? "1" : "0"); }},
    {"TUTTI_TLS_CERT", "PEM file of this side's certificate; the job's secret counts when not set",
     [](Text text, Config& c) { return c.tls_cert = text, Status(); },
     [](Filled c) { return c.tls_cert; }},
    {"TUTTI_TLS_KEY", "PEM file of that certificate's key",
     [](Text text, Config& c) { return c.tls_key = text, Status(); },
     [](Filled c) { return c.tls_key; }},
    {"TUTTI_TLS_CA", "PEM file of the authority that the other side's certificate must be of",
     [](Text text, Config& c) { return c.tls_ca = text, Status(); },
     [](Filled c) { return c.tls_ca; }},
    {"TUTTI_TCP_CHECKSUM", "whether tcp's frames carry checksums; off only if both sides say so",
     [](Text text, Config& c) { return read_switch(text, c.tcp_checksum); },
     [](Filled c) { return std::string(c.tcp_checksum ? "1" : "0"); }},
    {"TUTTI_TCP_EXPRESS",
     "whether urgent groups have a tcp connection to themselves with each peer; if both sides say so",
     [](Text text, Config& c) { return read_switch(text, c.tcp_express); },
     [](Filled c) { return std::string(c.tcp_express ? "1" : "0"); }},
    {"TUTTI_SWITCH", "whether a switch that folds joins this job (tutti switch); rank 0's counts",
     [](Text text, Config& c) { return read_switch(text, c.use_switch); },
     [](Filled c) { return std::string(c.use_switch ? "1" : "0"); }},
    {"TUTTI_OFI_PROVIDER",
     "libfabric's provider for ofi, such as verbs;ofi_rxm or tcp;ofi_rxm; the best one when not set",
     [](Text text, Config& c) { return c.ofi_provider = text, Status(); },
     [](Filled c) { return c.ofi_provider; }},
    {"TUTTI_OFI_DOMAINS",
     "domains that ofi uses, a rail each, such as mlx5_0,mlx5_1; found when not set",
     [](Text text, Config& c) { return read_list(text, c.ofi_domains); },
     [](Filled) { return std::string(); }},
    {"TUTTI_BUSY_POLL",
     "microseconds for which the kernel asks the network card when a tcp connection has nothing",
     [](Text text, Config& c) { return read_within(text, 0, 10000, c.busy_poll); },
     [](Filled c) { return std::to_string(c.busy_poll); }},
    {"TUTTI_CUDA_MEET", "how ranks on GPUs meet: auto (measured), host, memops or kernel",
     [](Text text, Config& c) {
       return read_word(text, c.cuda_meet, {"auto", "host", "memops", "kernel"});
     },
     [](Filled c) { return c.cuda_meet; }},
    {"TUTTI_CUDA_REACH",
     "how they reach each other's memory: auto, ipc (mapped) or staged (through host memory)",
     [](Text text, Config& c) {
       return read_word(text, c.cuda_reach, {"auto", "ipc", "staged"});
     },
     [](Filled c) { return c.cuda_reach; }},
    {"TUTTI_CUDA_PUSH",
     "bytes of an all_gather or a broadcast there from which owners write to all; rank 0's counts",
     [](Text text, Config& c) {
       return read_bytes(text, c.cuda_push, std::size_t{0}, std::size_t{1} << 46);
     },
     [](Filled c) { return std::to_string(c.cuda_push); }},
    {"TUTTI_SHARED_HEAP",
     "whether `import tutti_torch` puts tensors into memory that the ranks of the host have mapped",
     [](Text text, Config& c) { return read_switch(text, c.shared_heap); },
     [](Filled c) { return std::string(c.shared_heap ? "1" : "0"); }},
    {"TUTTI_SHARED_HEAP_BYTES",
     "the most that a process has of such memory; what is available when it begins when not set",
     [](Text text, Config& c) {
       return read_bytes(text, c.shared_heap_bytes, std::size_t{1} << 20, std::size_t{1} << 46);
     },
     [](Filled) { return std::string(); }},
    {"TUTTI_SPIN", "polls before a waiting thread yields; negative: by the number of cores",
     [](Text text, Config& c) { return read_spin(text, c.spin); },
     [](Filled c) { return std::to_string(c.spin); }},
    {"TUTTI_PROGRESS_THREAD", "whether a thread of its own drives async operations",
     [](Text text, Config& c) { return read_switch(text, c.progress_thread); },
     [](Filled c) { return std::string(c.progress_thread ? "1" : "0"); }},
    {"TUTTI_PROGRESS_CPUS", "cores that thread may run on, such as 3 or 0,4-7; any when not set",
     [](Text text, Config& c) { return read_cpus(text, c.progress_cpus); },
     [](Filled) { return std::string(); }},
    {"TUTTI_MAX_CORE_SHARE", "the most of a core's time that it takes from compute, 0.01 to 1",
     [](Text text, Config& c) { return read_share(text, c.max_core_share); },
     [](Filled c) { return fmt::format("{:g}", c.max_core_share); }},

    {"TUTTI_RANK", "this process's rank in the job; set by the launcher", nullptr, nullptr},
    {"TUTTI_SIZE", "ranks in the job; set by the launcher", nullptr, nullptr},
    {"TUTTI_LOCAL_RANK", "this process's rank on its host; set by the launcher", nullptr, nullptr},
    {"TUTTI_LOCAL_SIZE", "ranks on this host; set by the launcher", nullptr, nullptr},
    {"TUTTI_STORE", "address of the job's store server; set by the launcher", nullptr, nullptr},
    {"TUTTI_SECRET_FD", "descriptor that holds the job's 32-byte secret; set by the launcher",
     nullptr, nullptr},
    {"TUTTI_SECRET_FILE", "file of mode 0600 that holds the job's secret; for several hosts",
     nullptr, nullptr},
    {"TUTTI_RENDEZVOUS", "host:port at which the launchers of several hosts meet", nullptr,
     nullptr},
    {"TUTTI_BOARD_FD", "descriptor of the launcher's status board; set by the launcher", nullptr,
     nullptr},
    {"TUTTI_JOB", "name of the job; set by the launcher", nullptr, nullptr},
    {"TUTTI_RESTART", "how often the job was restarted; set by the launcher", nullptr, nullptr},
    {"TUTTI_RETURNED", "how often this rank came back; set by the launcher", nullptr, nullptr},
};

// What this repository's own tests tell each other: nobody's slips.
constexpr std::string_view kOfTests[] = {
    "TUTTI_TEST_", "TUTTI_TOOL",     "TUTTI_BUILD_DIR",     "TUTTI_SOURCE_DIR",
    "TUTTI_SEED",  "TUTTI_SKIPS_TO", "TUTTI_TORCH_BACKEND", "TUTTI_UPDATE_GOLDENS"};

// Set to nothing means not set.
std::string_view value_of(const Row& row) {
  const char* value = std::getenv(row.name);
  return value ? value : "";
}

// Somebody else tells what this process could: the launcher, or rank 0.
bool is_told_elsewhere() {
  if (std::getenv("TUTTI_RANK") != nullptr) return true;
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name); rank != nullptr && std::atoi(rank) != 0) return true;
  return false;
}

void warn_of_unknown_variables(const Config& config) {
  if (is_told_elsewhere()) return;
  const auto sentences = unknown_variables();
  if (sentences.empty() || !first_warning(Warning::unknown_variables)) return;
  const auto log = Log::open(config);
  for (const std::string& sentence : sentences)
    if (log.ok()) log->warn(Subsystem::init, "{}", sentence);
}

}  // namespace

Result<Config> Config::from_environment() {
  Config config;
  for (const Row& row : kRows) {
    const std::string_view text = value_of(row);
    if (!row.read || text.empty()) continue;
    if (Status status = row.read(text, config); !status.ok())
      return status.annotate(fmt::format("{}={}", row.name, text));
  }
  warn_of_unknown_variables(config);
  return config;
}

std::vector<std::string> unknown_variables() {
  constexpr std::string_view kPrefix = "TUTTI_";
  std::vector<std::string_view> known;  // without the prefix, which would make all of them alike
  for (const Row& row : kRows) known.push_back(std::string_view(row.name).substr(kPrefix.size()));
  std::vector<std::string> sentences;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view word = name.substr(kPrefix.size());
    if (std::ranges::count(known, word) > 0) continue;
    if (std::ranges::any_of(kOfTests, [&](auto prefix) { return name.starts_with(prefix); }))
      continue;
    const std::string_view nearest = nearest_word(word, known);
    sentences.push_back(fmt::format("{} is passed over: there is no such variable; {}", name,
                                    nearest.empty() ? "tutti info lists those that there are"
                                                    : fmt::format("is TUTTI_{} meant?", nearest)));
  }
  return sentences;
}

std::vector<ConfigVariable> config_variables() {
  const Config defaults;
  std::vector<ConfigVariable> variables;
  for (const Row& row : kRows)
    variables.push_back({row.name, row.meaning, row.show ? row.show(defaults) : std::string(),
                         std::string(value_of(row))});
  return variables;
}

}  // namespace v1
}  // namespace tutti
