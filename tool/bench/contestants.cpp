#include "tool/bench/contestants.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/peers/settings.hpp"
#include "bench/protocol.hpp"
#include "core/auth.hpp"
#include "core/json.hpp"
#include "core/secret.hpp"
#include "core/sockets.hpp"
#include "core/words.hpp"
#include "tool/bench/command_lines.hpp"

namespace tutti::tool {
namespace {

namespace fs = std::filesystem;

// What Debian has them in.
constexpr std::pair<std::string_view, std::string_view> kPackages[] = {
    {"openmpi", "openmpi-bin libopenmpi-dev"},
    {"mpich", "mpich libmpich-dev"},
    {"gloo", "libgloo-dev"}};

bool fits(const bench::PeerSetting& setting, const CompareOptions& options, int ranks) {
  const bool crowded = ranks > static_cast<int>(bench::own_cpus().size());
  if (setting.room == bench::Room::spare && crowded) return false;
  if (setting.room == bench::Room::crowded && !crowded) return false;
  const bool tcp = options.wire == "tcp";
  if (setting.wire == bench::PeerWire::memory && options.wire != "shm") return false;
  if (setting.wire == bench::PeerWire::tcp && !tcp) return false;
  if (setting.wire == bench::PeerWire::loopback && (!tcp || options.hosts)) return false;
  if (setting.wire == bench::PeerWire::hosts && (!tcp || !options.hosts)) return false;
  if (setting.wire == bench::PeerWire::fabric && options.wire != "ofi") return false;
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

// A folder that goes with its object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "bench_XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text, fs::perms mode) const {
    const fs::path file = fs::path(path_) / name;
    std::ofstream(file) << text;
    std::error_code ignored;
    fs::permissions(file, mode, ignored);
    return file.string();
  }

 private:
  std::string path_;
};

SubprocessResult start(const CompareOptions& options, const Contestant& contestant, int ranks) {
  const Descriptor file(::memfd_create("bench_meeting", MFD_CLOEXEC));
  const auto bytes = static_cast<off_t>(bench::Meeting::bytes_for(ranks));
  if (!file || ::ftruncate(file.get(), bytes) != 0)
    return {"", "no memory for a meeting place", 1, false};
  const TemporaryFolder folder;
  const TemporaryFolder store;
  Premises premises;
  premises.programs = own_folder();
  premises.ranks = ranks;
  premises.cpus = bench::own_cpus();
  premises.meeting = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
  premises.folder = store.path();
  if (options.hosts) {
    premises.agent = folder.write("agent", kHostAgent, fs::perms::owner_all);
    premises.secret = folder.write("secret", random_bytes(kSecretBytes),
                                   fs::perms::owner_read | fs::perms::owner_write);
  }
  return run_together(command_lines(options, contestant, premises), options.limit);
}

std::vector<TimedCell> parse_report(const std::string& output) {
  std::vector<TimedCell> samples;
  const auto document = Json::parse(output);
  if (!document.ok()) return samples;
  for (const Json& row : (*document)["results"].items()) {
    const auto collective = parse_collective(row["collective"].string());
    if (!collective) continue;
    TimedCell sample;
    sample.collective = *collective;
    sample.bytes = static_cast<std::size_t>(row["bytes"].integer());
    sample.median_us = row["time_us"]["median"].number();
    sample.wrong = static_cast<decltype(sample.wrong)>(row["wrong"].integer());
    if (const Json& share = row["floor_share"]; !share.is_null())
      sample.floor_us = share.number() * sample.median_us;
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

Status check_premises(const CompareOptions& options) {
  const auto& named = options.peers;
  std::vector<std::string_view> absent;
  bool any = false;
  for (const auto& [peer, packages] : kPackages) {
    if (!named.empty() && std::find(named.begin(), named.end(), peer) == named.end()) continue;
    if (missing(std::string(peer)).empty())
      any = true;
    else
      absent.push_back(packages);
  }
  if (!any)
    return {Code::invalid_argument,
            fmt::format("there is no other library to compare with: apt-get install {}, then "
                        "cmake -B build && cmake --build build (no peer_* program lies in {})",
                        fmt::join(absent, " "), own_folder())};
  const int most = options.hosts ? std::ranges::max(options.ranks) / options.each : 0;
  std::error_code ignored;
  for (int host = 0; host < most; ++host)
    if (!fs::exists(fmt::format("/run/netns/bh{}", host), ignored))
      return {Code::invalid_argument,
              fmt::format("--hosts: there is no network namespace bh{}; as root: bench/hosts up {} "
                          "1000 makes {} of 1 Gbit/s",
                          host, most, most)};
  return {};
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

std::vector<TimedCell> parse_points(const std::string& output) {
  std::vector<TimedCell> samples;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark;
    std::string name;
    double p99 = 0;
    double min = 0;
    double back_to_back = 0;
    int iterations = 0;
    TimedCell sample;
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
  const SubprocessResult outcome = start(options, contestant, ranks);
  Measured measured;
  measured.samples =
      contestant.library == "tutti" ? parse_report(outcome.output) : parse_points(outcome.output);
  for (TimedCell& sample : measured.samples) {
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
