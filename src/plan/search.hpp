// plan/search.hpp - all sensible layouts of a model on so many ranks, ranked by step time.
//
// Sensible: tensor parallel ranks share a host; ZeRO-2 and 3 without a pipeline (they would move
// everything once per micro-batch); context parallelism only where a rank keeps 2,048 tokens or
// more of a sequence of at least 16,384; micro-batches of 1, 2, 4 … 16 sequences.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/verdict.hpp"

namespace tutti::plan {

struct SearchOptions {
  int ranks = 0;
  ModelLayout base;  // seq, global_batch, precision, overlaps; the rest is searched
  int most_tp = 0;   // 0: the ranks of a host
  std::size_t keep = 10;
};

struct Candidate {
  ModelLayout layout;
  double step_s = 0, mfu = 0, tokens_per_s = 0;
  double memory_bytes = 0;
  Constraint constraint = Constraint::compute;
};

struct SearchResult {
  std::vector<Candidate> best;  // fitting, fastest first
  std::int64_t planned = 0;     // layouts whose step was computed
  std::int64_t fitting = 0;
  std::map<std::string, std::int64_t> too_large;    // by the largest part of memory
  std::map<std::string, std::int64_t> impossible;   // by what does not divide what
  std::map<std::string, std::int64_t> constraints;  // of those that fit
  Candidate nearest;  // smallest of those that do not fit, where none fits
};

// A batch of about 4 Mi tokens, where none is asked for: a power of two of sequences.
std::int64_t usual_global_batch(int seq);

// invalid_argument when there is no layout at all to look at.
Result<SearchResult> search_layouts(const Model& model, const Cluster& cluster,
                                    const SearchOptions& options);

}  // namespace tutti::plan
