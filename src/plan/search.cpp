#include "plan/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tutti::plan {
namespace {

constexpr int kLongestMicroBatch = 16;
constexpr int kLongSequence = 16384;
constexpr int kShortestPart = 2048;
constexpr int kMostVirtualStages = 8;
constexpr int kTensorWithoutHosts = 8;  // largest tp where every rank is a host of its own

std::vector<int> divisors(int number, int most) {
  std::vector<int> result;
  for (int i = 1; i <= std::min(number, most); ++i)
    if (number % i == 0) result.push_back(i);
  return result;
}

// "tp 16 does not divide the 40 heads" → "tp does not divide the heads".
std::string without_numbers(std::string_view text) {
  std::string words;
  for (const char letter : text)
    if (std::isdigit(static_cast<unsigned char>(letter)) == 0) words += letter;
  std::string result;
  for (const char letter : words)
    if (letter != ' ' || (!result.empty() && result.back() != ' ')) {
      if (letter == ')' && !result.empty() && result.back() == ' ') result.pop_back();
      result += letter;
    }
  return result;
}

// Faster first; of equally fast ones that which needs less memory.
bool better(const Candidate& a, const Candidate& b) {
  if (a.step_s != b.step_s) return a.step_s < b.step_s;
  return a.memory_bytes < b.memory_bytes;
}

class Search {
 public:
  Search(const Model& model, const Cluster& cluster, const SearchOptions& options)
      : model_(model), cluster_(cluster), options_(options), prices_(cluster) {}

  SearchResult run() {
    const int host = cluster_.ranks_per_host > 1 ? cluster_.ranks_per_host : kTensorWithoutHosts;
    const int most_tp = options_.most_tp > 0 ? options_.most_tp : host;
    for (const int tp : divisors(options_.ranks, most_tp))
      for (const int pp : divisors(options_.ranks / tp, static_cast<int>(model_.layers)))
        for (const int cp : divisors(options_.ranks / tp / pp, most_cp())) {
          ModelLayout layout = options_.base;
          layout.tp = tp;
          layout.pp = pp;
          layout.cp = cp;
          layout.dp = options_.ranks / tp / pp / cp;
          layout.sequence_parallel = tp > 1;
          vary_batches(layout);
        }
    return finish();
  }

 private:
  int most_cp() const {
    return options_.base.seq < kLongSequence ? 1 : options_.base.seq / kShortestPart;
  }

  void vary_batches(ModelLayout layout) {
    for (int size = 1; size <= kLongestMicroBatch; size *= 2) {
      layout.micro_batch = size;
      if (std::int64_t{size} * layout.dp > layout.global_batch && size > 1) break;
      for (int pieces = 1; pieces <= kMostVirtualStages; ++pieces) {
        if (pieces > 1 && (layout.pp == 1 || model_.layers % (layout.pp * pieces) != 0)) continue;
        layout.virtual_stages = pieces;
        vary_sharding(layout);
      }
    }
  }

  void vary_sharding(ModelLayout layout) {
    const auto whole = complete(layout, model_, cluster_);
    if (!whole.ok()) {
      ++result_.impossible[without_numbers(whole.status().message())];
      return;
    }
    const int most_zero = layout.data_ranks() == 1 ? 0 : layout.pp == 1 ? 3 : 1;
    for (int zero = 0; zero <= most_zero; ++zero)
      for (int recompute = 0; recompute < kRecomputes; ++recompute) {
        layout = *whole;
        layout.zero = zero;
        layout.recompute = static_cast<Recompute>(recompute);
        judge(plan_step(model_, layout, prices_));
      }
  }

  void judge(const StepPlan& plan) {
    ++result_.planned;
    const Candidate candidate{plan.layout,       plan.step_s,         plan.mfu,
                              plan.tokens_per_s, plan.memory.total(), binding_constraint(plan)};
    if (!plan.fits()) {
      ++result_.too_large[std::string(largest_part(plan.memory))];
      if (result_.nearest.memory_bytes == 0 ||
          candidate.memory_bytes < result_.nearest.memory_bytes)
        result_.nearest = candidate;
      return;
    }
    ++result_.fitting;
    ++result_.constraints[std::string(to_string(candidate.constraint))];
    result_.best.push_back(candidate);
    if (result_.best.size() >= 4 * options_.keep + 1024) shorten();
  }

  void shorten() {
    std::stable_sort(result_.best.begin(), result_.best.end(), better);
    if (result_.best.size() > options_.keep) result_.best.resize(options_.keep);
  }
  SearchResult finish() {
    shorten();
    return std::move(result_);
  }

  const Model& model_;
  const Cluster& cluster_;
  const SearchOptions& options_;
  Prices prices_;
  SearchResult result_;
};

}  // namespace

std::int64_t usual_global_batch(int seq) {
  std::int64_t batch = 1;
  while (batch * 2 * seq <= (4 << 20)) batch *= 2;
  return batch;
}

Result<SearchResult> search_layouts(const Model& model, const Cluster& cluster,
                                    const SearchOptions& options) {
  const auto wrong = [](std::string text) {
    return Status(Code::invalid_argument, std::move(text));
  };
  if (options.ranks < 1)
    return wrong(fmt::format("a search needs at least one rank, not {}", options.ranks));
  if (cluster.max_ranks > 0 && options.ranks > cluster.max_ranks)
    return wrong(fmt::format("{} ranks are more than the {} of cluster {}", options.ranks,
                             cluster.max_ranks, cluster.name));
  SearchOptions filled = options;
  if (filled.base.seq == 0) filled.base.seq = static_cast<int>(model.context);
  if (filled.base.global_batch == 0) filled.base.global_batch = usual_global_batch(filled.base.seq);
  SearchResult result = Search(model, cluster, filled).run();
  if (result.planned > 0) return result;
  // All fail for a reason; the most frequent one says most.
  const auto most =
      std::max_element(result.impossible.begin(), result.impossible.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return wrong(fmt::format("no layout of {} on {} ranks is possible with a global batch of {}: {}",
                           model.name, options.ranks, filled.base.global_batch,
                           most == result.impossible.end() ? "nothing divides" : most->first));
}

}  // namespace tutti::plan
