#include "tool/bench/contestants.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/peers/settings.hpp"
#include "bench/protocol.hpp"
#include "core/sockets.hpp"
#include "core/words.hpp"

namespace tutti::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool crowded(int ranks) { return ranks > static_cast<int>(bench::own_cpus().size()); }

bool fits(const bench::PeerSetting& setting, const CompareOptions& options, int ranks) {
  if (setting.room == bench::Room::spare && crowded(ranks)) return false;
  if (setting.room == bench::Room::crowded && !crowded(ranks)) return false;
  if (setting.wire == bench::Wire::memory && options.tcp) return false;
  if (setting.wire == bench::Wire::tcp && !options.tcp) return false;
  const auto& peers = options.peers;
  return peers.empty() || std::find(peers.begin(), peers.end(), setting.peer) != peers.end();
}

Contestant contestant_of(const bench::PeerSetting& setting, const CompareOptions& options) {
  Contestant contestant{setting.peer, setting.name, {}, {}, setting.words};
  const auto only = split_words(setting.collectives, ',');
  for (const Collective collective : options.collectives)
    if (only.empty() || std::find(only.begin(), only.end(), to_string(collective)) != only.end())
      contestant.collectives.push_back(collective);
  for (const std::size_t size : options.sizes)
    if (size >= setting.least_bytes && (setting.most_bytes == 0 || size <= setting.most_bytes))
      contestant.sizes.push_back(size);
  return contestant;
}

template <class T, class Print>
std::string with_commas(const std::vector<T>& values, Print&& print) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ",") + std::string(print(value));
  return text;
}

std::string words_of(const std::vector<Collective>& collectives) {
  return with_commas(collectives, [](Collective c) { return to_string(c); });
}

CommandLine tutti_command(const CompareOptions& options, const Contestant& contestant, int ranks) {
  CommandLine line;
  line.words = {own_folder() + "/tutti",
                "bench",
                words_of(contestant.collectives),
                "-n",
                std::to_string(ranks),
                "-b",
                options.first,
                "-e",
                options.last,
                "-f",
                options.factor,
                "--memory",
                contestant.setting,
                "--transport",
                options.tcp ? "tcp" : "shm",
                "--placement",
                "common",
                "--budget",
                fmt::format("{:.3f}ms", options.budget_us / 1e3),
                "--json",
                "-"};
  if (!options.cold) line.words.emplace_back("--warm");
  return line;
}

std::vector<std::string> peer_words(const CompareOptions& options, const Contestant& contestant,
                                    int ranks, const std::string& meeting) {
  return {"--meeting",
          meeting,
          "--collectives",
          words_of(contestant.collectives),
          "--sizes",
          with_commas(contestant.sizes, [](std::size_t s) { return std::to_string(s); }),
          "--warm",
          options.cold ? "0" : "1",
          "--budget_us",
          fmt::format("{:.0f}", options.budget_us),
          "--crowded",
          crowded(ranks) ? "1" : "0",
          "--limit_s",
          std::to_string(options.limit.count())};
}

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// A setting's words: NAME=value goes into the environment, the rest to the launcher.
void apply(const std::string& setting, CommandLine& line) {
  for (const std::string_view word : split_words(setting, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos && word.front() != '-')
      line.environment.emplace_back(word);
    else
      line.words.emplace_back(word);
  }
}

CommandLine mpi_command(const CompareOptions& options, const Contestant& contestant, int ranks,
                        const std::string& meeting) {
  CommandLine line;
  const bool bind = !crowded(ranks);
  if (contestant.library == "openmpi") {
    line.words = {"mpirun.openmpi",     "--allow-run-as-root",  "--oversubscribe",
                  "--bind-to",          bind ? "core" : "none", "-n",
                  std::to_string(ranks)};
  } else {
    line.words = {"mpiexec.mpich", "-n", std::to_string(ranks)};
    if (bind) append(line.words, {"-bind-to", "core"});
  }
  apply(contestant.words, line);
  line.words.push_back(own_folder() + "/peer_" + contestant.library);
  append(line.words, peer_words(options, contestant, ranks, meeting));
  return line;
}

std::vector<CommandLine> gloo_commands(const CompareOptions& options, const Contestant& contestant,
                                       int ranks, const std::string& meeting,
                                       const std::string& store) {
  std::vector<CommandLine> lines;
  const std::vector<int> cpus = bench::own_cpus();
  for (int rank = 0; rank < ranks; ++rank) {
    CommandLine line;
    line.words = {own_folder() + "/peer_gloo",
                  "--rank",
                  std::to_string(rank),
                  "--ranks",
                  std::to_string(ranks),
                  "--store",
                  store};
    if (!crowded(ranks))
      append(line.words, {"--cpu", std::to_string(cpus[static_cast<std::size_t>(rank)])});
    apply(contestant.words, line);
    append(line.words, peer_words(options, contestant, ranks, meeting));
    lines.push_back(std::move(line));
  }
  return lines;
}

// A folder that goes with its object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "bench_store_XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Outcome run_peer(const CompareOptions& options, const Contestant& contestant, int ranks) {
  const Descriptor file(::memfd_create("bench_meeting", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bench::Meeting::bytes_for(ranks))) != 0)
    return {"", "no memory for a meeting place", 1, false};
  const std::string meeting = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
  const TemporaryFolder store;
  if (contestant.library == "gloo")
    return run_together(gloo_commands(options, contestant, ranks, meeting, store.path()),
                        options.limit);
  return run_together({mpi_command(options, contestant, ranks, meeting)}, options.limit);
}

std::vector<Sample> parse_report(const std::string& output) {
  std::vector<Sample> samples;
  const json document = json::parse(output, nullptr, false);
  if (document.is_discarded() || !document.contains("results")) return samples;
  for (const json& row : document["results"]) {
    Sample sample;
    sample.collective = *parse_collective(row["collective"].get<std::string>());
    sample.bytes = row["bytes"];
    sample.median_us = row["time_us"]["median"];
    sample.wrong = row["wrong"];
    if (row["floor_share"].is_number())
      sample.floor_us = row["floor_share"].get<double>() * sample.median_us;
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace

std::string own_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

std::string missing(const std::string& peer) {
  const std::string program = own_folder() + "/peer_" + peer;
  if (::access(program.c_str(), X_OK) != 0)
    return fmt::format("peer_{} was not built (its library was not found)", peer);
  return "";
}

std::vector<Contestant> contestants_for(const CompareOptions& options, int ranks) {
  std::vector<Contestant> list;
  for (const std::string& memory : options.memories)
    list.push_back({"tutti", memory, options.collectives, options.sizes, ""});
  for (const bench::PeerSetting& setting : bench::kPeerSettings) {
    if (!fits(setting, options, ranks) || !missing(setting.peer).empty()) continue;
    Contestant contestant = contestant_of(setting, options);
    if (!contestant.collectives.empty() && !contestant.sizes.empty())
      list.push_back(std::move(contestant));
  }
  return list;
}

std::vector<Sample> parse_points(const std::string& output) {
  std::vector<Sample> samples;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark;
    std::string name;
    double p99 = 0;
    double min = 0;
    double back_to_back = 0;
    int iterations = 0;
    Sample sample;
    if (!(words >> mark >> name >> sample.bytes >> sample.median_us >> p99 >> min >> back_to_back >>
          iterations >> sample.wrong) ||
        mark != "point")
      continue;
    const auto collective = parse_collective(name);
    if (!collective) continue;
    sample.collective = *collective;
    samples.push_back(sample);
  }
  return samples;
}

Measured measure_contestant(const CompareOptions& options, const Contestant& contestant, int run,
                            int ranks) {
  const bool own = contestant.library == "tutti";
  const Outcome outcome =
      own ? run_together({tutti_command(options, contestant, ranks)}, options.limit)
          : run_peer(options, contestant, ranks);
  Measured measured;
  measured.samples = own ? parse_report(outcome.output) : parse_points(outcome.output);
  for (Sample& sample : measured.samples) {
    sample.run = run;
    sample.ranks = ranks;
    sample.library = contestant.library;
    sample.setting = contestant.setting;
  }
  if (outcome.timed_out)
    measured.complaint = fmt::format("was ended after {} s", options.limit.count());
  else if (outcome.exit_code != 0)
    measured.complaint = fmt::format("ended with {}: {}", outcome.exit_code, outcome.complaint);
  else if (measured.samples.empty())
    measured.complaint = "gave no result";
  return measured;
}

}  // namespace tutti::tool
