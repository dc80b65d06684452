#include "engine/vote.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti::engine {
namespace {

// Of a table that is told to others: a status has room for a page or so.
constexpr std::size_t kMostSides = 16;
constexpr std::size_t kMostListed = 32;

struct Side {
  std::string words;
  std::vector<int> ranks;
};

// By the lowest rank that holds each.
std::vector<Side> sides_of(const std::vector<Said>& said) {
  std::vector<Side> sides;
  for (const Said& each : said) {
    auto at = std::find_if(sides.begin(), sides.end(),
                           [&](const Side& side) { return side.words == each.words; });
    if (at == sides.end()) at = sides.insert(sides.end(), Side{each.words, {}});
    at->ranks.push_back(each.rank);
  }
  return sides;
}

std::string names_of(std::vector<int> ranks, const std::function<std::string(int)>& where) {
  if (ranks.size() == 1) return where(ranks[0]);
  const std::size_t more = ranks.size() > kMostListed ? ranks.size() - kMostListed : 0;
  ranks.resize(ranks.size() - more);
  const std::string listed = fmt::format("ranks {}", fmt::join(ranks, ", "));
  return more == 0 ? listed : fmt::format("{} and {} more", listed, more);
}

}  // namespace

Vote vote(const std::vector<Said>& said, const std::function<std::string(int rank)>& where) {
  const std::vector<Side> sides = sides_of(said);
  // The first of the largest: it has the lowest rank among those.
  const auto right = std::max_element(sides.begin(), sides.end(), [](const Side& a, const Side& b) {
    return a.ranks.size() < b.ranks.size();
  });
  Vote result;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const Side& side = sides[i];
    result.tied |= &side != &*right && side.ranks.size() == right->ranks.size();
    if (result.culprit < 0 && side.words != right->words) result.culprit = side.ranks[0];
    if (i < kMostSides)
      result.table += fmt::format("{}{} called {}", i == 0 ? "" : ", ", names_of(side.ranks, where),
                                  side.words);
  }
  if (sides.size() > kMostSides)
    result.table += fmt::format(", and {} more opinions", sides.size() - kMostSides);
  return result;
}

}  // namespace tutti::engine
