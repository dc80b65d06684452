// What was asked for on the command line, read and made whole.
#include <fmt/format.h>

#include <array>
#include <numeric>

#include "core/files.hpp"
#include "core/words.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/show/show.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool {
namespace {

template <class Enum>
std::vector<std::string_view> all_words(int count) {
  std::vector<std::string_view> words;
  for (int i = 0; i < count; ++i) words.push_back(to_string(static_cast<Enum>(i)));
  return words;
}

// An option that takes one of two words, or none: whether it is the second.
Result<bool> read_second(std::string_view option, std::string_view word,
                         std::array<std::string_view, 2> words) {
  if (word.empty() || word == words[0]) return false;
  if (word == words[1]) return true;
  return Status(Code::invalid_argument, unknown_word(option, word, words));
}

// "2x3": ranks 0 1 2 on host 0, ranks 3 4 5 on host 1.
Result<std::vector<int>> read_hosts(const std::string& text) {
  if (text.empty()) return std::vector<int>();
  const auto parts = split_words(text, 'x');
  std::int64_t hosts = 0;
  std::int64_t each = 0;
  if (parts.size() == 2) {
    if (const auto number = parse_integer(parts[0]); number.ok()) hosts = *number;
    if (const auto number = parse_integer(parts[1]); number.ok()) each = *number;
  }
  if (hosts < 1 || each < 1 || hosts > kMostRanksShown || each > kMostRanksShown)
    return Status(Code::invalid_argument,
                  fmt::format("--hosts '{}' is not HOSTSxRANKS, such as 2x2", text));
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * each; ++rank) host_of.push_back(rank / static_cast<int>(each));
  return host_of;
}

Status read_request(const ShowOptions& options, ShownCall& call) {
  const auto collective = parse_collective(options.collective);
  if (!collective)
    return {Code::invalid_argument,
            unknown_word("collective", options.collective, all_words<Collective>(kCollectives))};
  auto hosts = read_hosts(options.hosts);
  if (!hosts.ok()) return hosts.status();
  call.host_of = *std::move(hosts);
  const int placed = static_cast<int>(call.host_of.size());
  const int ranks = options.ranks != 0 ? options.ranks : placed != 0 ? placed : 4;
  if (placed != 0 && ranks != placed)
    return {Code::invalid_argument, fmt::format("-n {} does not fit --hosts {}, which are {} ranks",
                                                ranks, options.hosts, placed)};
  if (ranks < 1 || ranks > kMostRanksShown)
    return {Code::invalid_argument,
            fmt::format("-n {} lies outside 1 … {}", ranks, kMostRanksShown)};
  call.request.collective = *collective;
  call.request.size = ranks;
  call.request.root = options.root;
  call.request.in_place = options.in_place;
  call.request.host_of = call.host_of;
  return {};
}

Status read_form(const ShowOptions& options, ShownCall& call) {
  const auto host = read_second("form", options.form, {"message", "host"});
  if (!host.ok()) return host.status();
  call.on_one_host = *host;
  const auto symmetric = read_second("memory", options.memory, {"ordinary", "symmetric"});
  if (!symmetric.ok()) return symmetric.status();
  if (*symmetric) call.memory = CallMemory::symmetric;
  if ((!options.memory.empty() || options.all) && !call.on_one_host)
    return {Code::invalid_argument, fmt::format("{} is about host forms: it needs --form host",
                                                options.all ? "--all" : "--memory")};
  if (call.on_one_host && !call.host_of.empty() && call.host_of.back() > 0)
    return {Code::invalid_argument,
            fmt::format("--form host is for ranks of one host, not for --hosts {}", options.hosts)};
  return {};
}

Result<tuner::Machine> read_machine(const std::string& path) {
  if (path.empty()) return tuner::built_in_machine();
  const auto text = read_file(path);
  if (!text.ok())
    return Status(Code::invalid_argument, fmt::format("--tuning {}", text.status().message()));
  auto machine = tuner::parse_machine(*text);
  if (!machine.ok())
    return Status(Code::invalid_argument,
                  fmt::format("--tuning {}: {}", path, machine.status().message()));
  return machine;
}

Status read_algorithm(const ShowOptions& options, ShownCall& call) {
  call.is_named = !options.algorithm.empty();
  if (!call.is_named) return {};
  const auto algorithm = parse_algorithm(options.algorithm);
  if (algorithm) call.algorithm = *algorithm;
  if (call.algorithm != Algorithm::automatic) return {};
  std::vector<std::string_view> words;
  for (const Algorithm each : schedule::algorithms_for(call.request.collective))
    words.push_back(to_string(each));
  return {Code::invalid_argument, unknown_word(fmt::format("algorithm for {}", options.collective),
                                               options.algorithm, words)};
}

}  // namespace

Result<ShownCall> read_call(const ShowOptions& options) {
  ShownCall call;
  for (auto read : {read_request, read_form, read_algorithm})
    if (Status status = read(options, call); !status.ok()) return status;
  const auto bytes = parse_bytes(options.bytes);
  if (!bytes.ok()) return bytes.status().annotate("--bytes");
  call.bytes = shape_of(call.request.collective).has_data() ? *bytes : 0;
  auto machine = read_machine(options.tuning);
  if (!machine.ok()) return machine.status();
  call.machine = *std::move(machine);
  const auto choice =
      choose(call.request, call.algorithm, call.on_one_host, call.bytes, call.machine);
  // What cannot be chosen cannot be built either, and then its builder says why.
  if (choice.ok()) {
    call.algorithm = choice->algorithm;
    call.request.shots = choice->shots;
  }
  return call;
}

Result<tuner::Choice> choose(const schedule::Request& request, Algorithm named, bool on_one_host,
                             std::size_t bytes, const tuner::Machine& machine) {
  std::vector<int> host_of(request.host_of.begin(), request.host_of.end());
  host_of.resize(static_cast<std::size_t>(request.size));
  if (!on_one_host && request.host_of.empty()) std::iota(host_of.begin(), host_of.end(), 0);
  tuner::Situation situation;
  situation.collective = request.collective;
  situation.ranks = request.size;
  situation.bytes = bytes;
  situation.host_of = host_of;
  return tuner::choose_forced(situation, named, machine);
}

bool has_shots(Algorithm algorithm, schedule::Request request) {
  request.shots = 1;
  const auto one = schedule::build(algorithm, request);
  request.shots = 2;
  const auto two = schedule::build(algorithm, request);
  return one.ok() && two.ok() && *one != *two;
}

std::string count_of(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string title_of(const ShownCall& call) {
  const schedule::Request& request = call.request;
  std::string title =
      fmt::format("{} by {}", to_string(request.collective), to_string(call.algorithm));
  // A host form says it by its meetings, and where memory is mapped both are one.
  if (!call.on_one_host && has_shots(call.algorithm, request))
    title += request.shots == 1 ? " in one shot" : " in two shots";
  title += fmt::format(" on {}", count_of(static_cast<std::uint64_t>(request.size), "rank"));
  return call.bytes == 0 ? title : fmt::format("{}, {}", title, size_words(call.bytes));
}

}  // namespace tutti::tool
