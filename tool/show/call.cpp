// What was asked for on the command line, read and made whole.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/files.hpp"
#include "core/words.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/numbers.hpp"
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

Status check_word(std::string_view option, std::string_view word,
                  std::array<std::string_view, 2> words) {
  if (word.empty() || std::ranges::count(words, word) > 0) return {};
  return {Code::invalid_argument, unknown_word(option, word, words)};
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
  const auto order = parse_reduction_order(options.order.empty() ? "any" : options.order);
  if (!order)
    return {Code::invalid_argument,
            unknown_word("order", options.order, all_words<ReductionOrder>(kReductionOrders))};
  call.request.order = *order;
  return {};
}

Status read_form(const ShowOptions& options, ShownCall& call) {
  for (Status status : {check_word("form", options.form, {"message", "host"}),
                        check_word("memory", options.memory, {"ordinary", "symmetric"})})
    if (!status.ok()) return status;
  const bool several = !call.host_of.empty() && call.host_of.back() > 0;
  if (options.form == "host" && several)
    return {Code::invalid_argument,
            fmt::format("--form host is for ranks of one host, not for --hosts {}", options.hosts)};
  call.is_placed = !options.form.empty() || !options.hosts.empty();
  call.on_one_host = options.form != "message" && !several;
  if (!options.memory.empty())
    call.memory = options.memory == "symmetric" ? CallMemory::symmetric : CallMemory::ordinary;
  if ((call.memory || options.all) && !call.on_one_host)
    return {Code::invalid_argument,
            fmt::format("{} is about host forms, which only ranks of one host run",
                        options.all ? "--all" : "--memory")};
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

Status read_costs(const ShowOptions& options, ShownCall& call) {
  const auto bytes = read_size("--bytes", options.bytes.empty() ? "1M" : options.bytes);
  if (!bytes.ok()) return bytes.status();
  call.bytes = shape_of(call.request.collective).has_data() ? *bytes : 0;
  auto machine = read_machine(options.tuning);
  if (!machine.ok()) return machine.status();
  call.machine = *std::move(machine);
  return {};
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

Status find_host_form(const ShowOptions& options, ShownCall& call) {
  if (!call.on_one_host) return {};
  auto view = HostView::make(call.algorithm, call.request);
  if (!view.ok()) return view.status();
  call.host = *std::move(view);
  if (call.host || options.form != "host") return {};
  const auto forms = message_forms(call.algorithm, call.request);
  if (!forms.ok()) return forms.status();
  return {Code::invalid_argument,
          fmt::format("there is no host form of {} by {} on {}: {}; --form message shows what "
                      "runs instead",
                      to_string(call.request.collective), to_string(call.algorithm),
                      count_of(static_cast<std::uint64_t>(call.request.size), "rank"),
                      why_by_message(forms->back()))};
}

}  // namespace

bool ShowOptions::is_bare() const {
  const std::string* const words[] = {&algorithm, &hosts, &form, &memory,
                                      &bytes,     &order, &html, &svg};
  return std::ranges::all_of(words, &std::string::empty) && ranks == 0 && !in_place && !all;
}

std::string_view ShownCall::placement() const {
  if (on_one_host || (!host_of.empty() && host_of.back() == 0)) return "one_host";
  const bool each =
      host_of.empty() || host_of.size() == static_cast<std::size_t>(host_of.back()) + 1;
  return each ? "apart" : "hosts";
}

Result<ShownCall> read_call(const ShowOptions& options) {
  ShownCall call;
  for (auto read : {read_request, read_form, read_algorithm, read_costs})
    if (Status status = read(options, call); !status.ok()) return status;
  const auto choice =
      choose(call.request, call.algorithm, call.on_one_host, call.bytes, call.machine);
  if (!choice.ok() && call.request.order != ReductionOrder::any) return choice.status();
  // What cannot be chosen cannot be built either, and then its builder says why.
  if (choice.ok()) {
    call.algorithm = choice->algorithm;
    call.request.shots = choice->shots;
  }
  if (Status status = find_host_form(options, call); !status.ok()) return status;
  return call;
}

Result<tuner::Choice> choose(const schedule::Request& request, Algorithm named, bool on_one_host,
                             std::size_t bytes, const tuner::Machine& machine) {
  std::vector<int> host_of(request.host_of.begin(), request.host_of.end());
  host_of.resize(static_cast<std::size_t>(request.size));
  if (!on_one_host && request.host_of.empty()) std::iota(host_of.begin(), host_of.end(), 0);
  tuner::CallFacts facts;
  facts.collective = request.collective;
  facts.ranks = request.size;
  facts.bytes = bytes;
  facts.host_of = host_of;
  facts.order = request.order;
  return tuner::choose_forced(facts, named, machine);
}

bool has_shots(Algorithm algorithm, schedule::Request request) {
  request.shots = 1;
  const auto one = schedule::build(algorithm, request);
  request.shots = 2;
  const auto two = schedule::build(algorithm, request);
  return one.ok() && two.ok() && *one != *two;
}

std::string where_words(const ShownCall& call) {
  const int ranks = call.request.size;
  if (call.placement() == "apart") return "every rank has a host of its own";
  if (call.placement() == "hosts")
    return fmt::format("{} hosts have {} ranks each", call.host_of.back() + 1,
                       ranks / (call.host_of.back() + 1));
  return call.is_crowded()
             ? fmt::format("all ranks share a host with {} for {} ranks",
                           count_of(static_cast<std::uint64_t>(call.machine.cores), "core"), ranks)
             : "all ranks share a host with a core for each";
}

std::string count_of(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string order_words(const schedule::VerifyReport& report, ReductionOrder asked) {
  // Of few ranks it may be both.
  const bool as_tree =
      report.tree_ordered && (asked == ReductionOrder::tree || !report.rank_ordered);
  if (!as_tree && !report.rank_ordered) return "an order of its own";
  return fmt::format("{} order{}", as_tree ? "tree" : "rank",
                     report.whole_folds ? "" : ", from partial folds");
}

std::string title_of(const ShownCall& call) {
  const schedule::Request& request = call.request;
  std::string title =
      fmt::format("{} by {}", to_string(request.collective), to_string(call.algorithm));
  // A host form says it by its meetings, and where memory is mapped both are one.
  if (!call.host && has_shots(call.algorithm, request))
    title += request.shots == 1 ? " in one shot" : " in two shots";
  title += fmt::format(" on {}", count_of(static_cast<std::uint64_t>(request.size), "rank"));
  return call.bytes == 0 ? title : fmt::format("{}, {}", title, size_words(call.bytes));
}

}  // namespace tutti::tool
