#include "tool/show/redistribution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/output_file.hpp"
#include "core/words.hpp"
#include "tool/command.hpp"
#include "tool/plan/read_cluster.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kRedistributeCommand = "show redistribute";
constexpr int kMostShown = 4096;  // ranks
constexpr int kMostDrawn = 64;    // of which pictures are made

Status refuse_flag(const char* flag, const std::string& value, std::string_view why) {
  return {Code::invalid_argument, fmt::format("{} {}: {}", flag, value, why)};
}

Result<MeshAxes> read_mesh(const std::string& text) {
  constexpr const char* kForm = "a mesh is NAME=SIZE,…, such as dp=2,tp=4";
  MeshAxes axes;
  for (const std::string_view word : split_words(text, ',')) {
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) return refuse_flag("--mesh", text, kForm);
    const auto size = parse_integer(word.substr(equals + 1));
    if (!size.ok() || *size < 1 || *size > kMostShown) return refuse_flag("--mesh", text, kForm);
    axes.push_back({std::string(word.substr(0, equals)), static_cast<int>(*size)});
  }
  if (Status status = check_axes(axes); !status.ok())
    return refuse_flag("--mesh", text, status.message());
  if (ranks_of(axes) > kMostShown)
    return refuse_flag("--mesh", text, fmt::format("more than {} ranks", kMostShown));
  return axes;
}

Result<std::vector<std::int64_t>> read_shape(const std::string& text) {
  const auto words = split_words(text, 'x');
  const auto crosses = std::count(text.begin(), text.end(), 'x');
  constexpr const char* kForm = "a shape is LENGTHxLENGTH…, such as 1024x4096";
  if (std::ssize(words) != crosses + 1) return refuse_flag("--shape", text, kForm);  // it has gaps
  std::vector<std::int64_t> shape;
  for (const std::string_view word : words) {
    const auto length = parse_integer(word);
    if (!length.ok() || *length < 0) return refuse_flag("--shape", text, kForm);
    shape.push_back(*length);
  }
  return shape;
}

Result<TensorLayout> read_layout(const char* flag, const std::string& text, TensorLayout tensor) {
  auto placements = parse_placements(text);
  if (!placements.ok()) return refuse_flag(flag, text, placements.status().message());
  tensor.placements = *std::move(placements);
  if (Status status = tensor.check(); !status.ok())
    return refuse_flag(flag, text, status.message());
  return tensor;
}

Result<TensorLayout> read_tensor(const RedistributionOptions& options) {
  TensorLayout tensor;
  auto axes = read_mesh(options.mesh);
  if (!axes.ok()) return axes.status();
  auto shape = read_shape(options.shape);
  if (!shape.ok()) return shape.status();
  const auto dtype = parse_dtype(options.dtype);
  if (!dtype) return refuse_flag("--dtype", options.dtype, "there is no such element type");
  tensor.axes = *std::move(axes);
  tensor.shape = *std::move(shape);
  tensor.dtype = *dtype;
  return tensor;
}

// With as many ranks on each host as `hosts` hosts need.
Result<tutti::plan::Cluster> read_hosts(const RedistributionOptions& options, int ranks) {
  auto cluster = plan::read_cluster(options.cluster);
  if (!cluster.ok() || options.hosts == 0) return cluster;
  if (ranks % options.hosts != 0)
    return refuse_flag("--hosts", fmt::to_string(options.hosts),
                       fmt::format("{} ranks do not fill so many evenly", ranks));
  cluster->ranks_per_host = ranks / options.hosts;
  cluster->max_ranks = 0;
  if (Status status = tutti::plan::check_cluster(*cluster); !status.ok())
    return refuse_flag("--hosts", fmt::to_string(options.hosts), status.message());
  return cluster;
}

Result<ShownRedistribution> make_plan(const RedistributionOptions& options) {
  const auto tensor = read_tensor(options);
  if (!tensor.ok()) return tensor.status();
  const auto from = read_layout("--from", options.from, *tensor);
  if (!from.ok()) return from.status();
  const auto to = read_layout("--to", options.to, *tensor);
  if (!to.ok()) return to.status();
  const int ranks = ranks_of(tensor->axes);
  const auto cluster = read_hosts(options, ranks);
  if (!cluster.ok()) return cluster.status();
  if (cluster->max_ranks > 0 && ranks > cluster->max_ranks)
    return refuse_flag("--mesh", options.mesh,
                       fmt::format("cluster '{}' has {} ranks", cluster->name, cluster->max_ranks));
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank / cluster->ranks_per_host);
  ShownRedistribution shown;
  shown.cluster = cluster->name;
  shown.rank_at = place_ranks(tensor->axes, host_of);
  tutti::plan::Prices prices(*cluster);
  const RedistributionCosts costs = cluster_costs(prices, tensor->axes, shown.rank_at);
  shown.hosts = costs.hosts;
  auto plan = plan_redistribution(*from, *to, costs);
  if (!plan.ok()) return plan.status();
  shown.plan = *std::move(plan);
  return shown;
}

// "2 hosts of 4 ranks".
std::string hosts_words(const ShownRedistribution& shown) {
  const int hosts = 1 + *std::max_element(shown.hosts.begin(), shown.hosts.end());
  const auto first = std::count(shown.hosts.begin(), shown.hosts.end(), 0);
  return fmt::format("{} host{} of {} rank{}", hosts, hosts == 1 ? "" : "s", first,
                     first == 1 ? "" : "s");
}

void print_text(const ShownRedistribution& shown) {
  const RedistributionPlan& plan = shown.plan;
  fmt::print("{}on {} of '{}'\n\n", describe(plan), hosts_words(shown), shown.cluster);
  std::string naive;
  for (const RedistributionStep& step : plan.naive.steps) {
    naive += fmt::format("{}{}", naive.empty() ? "" : ", ", to_string(step.kind));
    for (const int axis : step.axes)
      naive += " " + step.after.axes[static_cast<std::size_t>(axis)].name;
  }
  if (!naive.empty()) fmt::print("axis by axis, as DTensor goes on CPU groups: {}\n\n", naive);
  if (ranks_of(plan.from.axes) > kMostDrawn) return;
  fmt::print(
      "Who holds what; ranks by their place in the mesh, + joins what is yet to be folded.\n\n");
  fmt::print("({})\n{}", to_string(plan.from.placements), draw(plan.from));
  for (const RedistributionStep& step : plan.chain.steps)
    fmt::print("\n{}: ({})\n{}", to_string(step.kind), to_string(step.after.placements),
               draw(step.after));
}

}  // namespace

int show_redistribution(const RedistributionOptions& options) {
  if (options.json && !options.html.empty())
    return complain(kRedistributeCommand, "--html and --json exclude each other", kBadInput);
  if (Status status = check_output("--html", options.html); !status.ok())
    return complain(kRedistributeCommand, status);
  const auto shown = make_plan(options);
  if (!shown.ok()) return complain(kRedistributeCommand, shown.status());
  if (!options.html.empty() && ranks_of(shown->plan.from.axes) > kMostDrawn)
    return complain(kRedistributeCommand,
                    fmt::format("--html draws up to {} ranks; --json has more", kMostDrawn),
                    kBadInput);
  if (options.json) {
    fmt::print("{}\n", to_json(*shown, false).dump(1));
    return kDone;
  }
  if (options.html.empty()) {
    print_text(*shown);
    return kDone;
  }
  const std::string page = make_page(*shown);
  if (Status status = write_file(options.html, page); !status.ok())
    return complain(kRedistributeCommand, status);
  if (options.html != "/dev/stdout")
    fmt::print("wrote {} ({} KiB)\n", options.html, (page.size() + 1023) / 1024);
  return kDone;
}

}  // namespace tutti::tool
