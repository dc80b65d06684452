#include "tool/bench/command_lines.hpp"

#include <fmt/format.h>

#include "core/words.hpp"

namespace tutti::tool {

// bench/hosts: host i is namespace bh<i>, address 10.83.0.<i + 1>, interface bheth.
const char* const kHostAgent = R"(#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
number=$((${1##*.} - 1))
shift
exec ip netns exec bh$number unshare -u bash -c "hostname bh$number; $*"
)";

namespace {

constexpr const char* kHostNetwork = "10.83.0.0/24";
constexpr const char* kHostInterface = "bheth";
constexpr int kPort = 29400;

std::string host_address(int host) { return fmt::format("10.83.0.{}", host + 1); }

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

void enter_host(int host, CommandLine& line) {
  line.words.insert(line.words.begin(), {"ip", "netns", "exec", fmt::format("bh{}", host)});
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

CommandLine tutti_command(const CompareOptions& options, const Contestant& contestant,
                          const Premises& premises) {
  CommandLine line;
  line.words = {premises.programs + "/tutti", "bench", words_of(contestant.collectives)};
  append(line.words, {"-n", std::to_string(premises.ranks)});
  append(line.words, {"-b", options.first, "-e", options.last, "-f", options.factor});
  append(line.words, {"--memory", contestant.setting, "--placement", "common", "--pin", "process"});
  // Between hosts there is no choice but a fabric, and inside of one memory is it.
  if (!options.hosts || options.wire == "ofi") append(line.words, {"--transport", options.wire});
  append(line.words, {"--budget", fmt::format("{:.3f}ms", options.budget_us / 1e3)});
  append(line.words, {"--json", "-"});
  if (!options.cold) line.words.emplace_back("--warm");
  if (options.back_to_back) line.words.emplace_back("--back-to-back");
  return line;
}

// A launcher on each host; rank 0's prints the results.
std::vector<CommandLine> tutti_on_hosts(const CompareOptions& options, const Contestant& contestant,
                                        const Premises& premises) {
  std::vector<CommandLine> lines;
  const int hosts = premises.ranks / options.each;
  for (int host = 0; host < hosts; ++host) {
    CommandLine line;
    line.words = {premises.programs + "/tutti", "run", "-n", std::to_string(options.each)};
    append(line.words, {"--nnodes", std::to_string(hosts)});
    append(line.words, {"--node-rank", std::to_string(host)});
    append(line.words, {"--rendezvous", fmt::format("{}:{}", host_address(0), kPort)});
    append(line.words, {"--secret-file", premises.secret, "--"});
    append(line.words, tutti_command(options, contestant, premises).words);
    enter_host(host, line);
    lines.push_back(std::move(line));
  }
  return lines;
}

Words peer_words(const CompareOptions& options, const Contestant& contestant,
                 const Premises& premises) {
  Words words = {"--meeting", premises.meeting};
  append(words, {"--collectives", words_of(contestant.collectives)});
  append(words, {"--sizes", with_commas(contestant.sizes,
                                        [](std::size_t size) { return std::to_string(size); })});
  append(words, {"--warm", options.cold ? "0" : "1"});
  append(words, {"--back_to_back", options.back_to_back ? "1" : "0"});
  append(words, {"--budget_us", fmt::format("{:.0f}", options.budget_us)});
  append(words, {"--crowded", premises.crowded() ? "1" : "0"});
  append(words, {"--limit_s", std::to_string(options.limit.count())});
  return words;
}

// A setting's words: NAME=value goes into the environment, the rest to launcher or program.
void apply(const CompareOptions& options, const std::string& setting, CommandLine& line) {
  for (std::string_view word : split_words(setting, ' ')) {
    if (word == "@network") word = options.hosts ? kHostNetwork : "lo";
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos && word.front() != '-')
      line.environment.emplace_back(word);
    else
      line.words.emplace_back(word);
  }
}

Words openmpi_launcher(const CompareOptions& options, const Premises& premises) {
  Words words = {"mpirun.openmpi", "--allow-run-as-root", "-n", std::to_string(premises.ranks)};
  append(words, {"--bind-to", premises.crowded() || options.hosts ? "none" : "core"});
  if (!options.hosts) {
    words.emplace_back("--oversubscribe");
    return words;
  }
  std::string hosts;
  for (int host = 0; host < premises.ranks / options.each; ++host)
    hosts += fmt::format("{}{}:{}", host == 0 ? "" : ",", host_address(host), options.each);
  append(words, {"--host", hosts, "--mca", "plm_rsh_agent", premises.agent});
  append(words, {"--mca", "plm_rsh_no_tree_spawn", "1"});
  append(words, {"--mca", "oob_tcp_if_include", kHostNetwork});
  return words;
}

CommandLine mpi_command(const CompareOptions& options, const Contestant& contestant,
                        const Premises& premises) {
  CommandLine line;
  if (contestant.library == "openmpi") {
    line.words = openmpi_launcher(options, premises);
  } else {
    line.words = {"mpiexec.mpich", "-n", std::to_string(premises.ranks)};
    if (!premises.crowded()) append(line.words, {"-bind-to", "core"});
  }
  apply(options, contestant.words, line);
  line.words.push_back(premises.programs + "/peer_" + contestant.library);
  append(line.words, peer_words(options, contestant, premises));
  return line;
}

std::vector<CommandLine> gloo_commands(const CompareOptions& options, const Contestant& contestant,
                                       const Premises& premises) {
  std::vector<CommandLine> lines;
  for (int rank = 0; rank < premises.ranks; ++rank) {
    CommandLine line;
    line.words = {premises.programs + "/peer_gloo", "--rank", std::to_string(rank)};
    append(line.words, {"--ranks", std::to_string(premises.ranks), "--store", premises.folder});
    append(line.words, {"--interface", options.hosts ? kHostInterface : "lo"});
    if (!premises.crowded() && !options.hosts)
      append(line.words, {"--cpu", std::to_string(premises.cpus[static_cast<std::size_t>(rank)])});
    apply(options, contestant.words, line);
    append(line.words, peer_words(options, contestant, premises));
    if (options.hosts) enter_host(rank / options.each, line);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::vector<CommandLine> command_lines(const CompareOptions& options, const Contestant& contestant,
                                       const Premises& premises) {
  if (contestant.library == "gloo") return gloo_commands(options, contestant, premises);
  if (contestant.library != "tutti") return {mpi_command(options, contestant, premises)};
  if (options.hosts) return tutti_on_hosts(options, contestant, premises);
  return {tutti_command(options, contestant, premises)};
}

}  // namespace tutti::tool
