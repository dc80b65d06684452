// apps/pretrain_gpt/data.hpp - sequences of tokens, in an order that depends on the seed alone.
//
//   --data-path FILE …                  bytes of all files in a row; the last twentieth is kept for validation
//   --data-path [WEIGHT] PREFIX …       Megatron's .bin/.idx, blended by weight (or by size), split by --split
//
// A set of tokens is cut into sequences. Sequence i of the training is the same one on every number of ranks: of the
// blend the i-th, of its set a permutation of the epoch that it falls into.
//
// Thread-safety  one thread at a time, where nothing else is said.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "flags.hpp"
#include "tokens.hpp"
#include "tutti/status.hpp"

namespace pretrain {

// Row-major [sequences, length].
struct TokenBatch {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> labels;  // the token that follows
  std::vector<float> loss_mask;      // 0: not counted
  std::int64_t counted = 0;          // tokens that are
};

// Numbers 0 … count − 1 in an order of their own for each key.
class Shuffle {
 public:
  virtual ~Shuffle() = default;
  virtual std::uint64_t at(std::uint64_t key, std::uint64_t index) = 0;
};
// Fisher and Yates: of four bytes each.
std::unique_ptr<Shuffle> shuffle_in_memory(std::uint64_t count);
// By a Feistel network, without any memory.
std::unique_ptr<Shuffle> shuffle_by_number(std::uint64_t count);

// Of sample `index` of a blend: which of its sets, and the how-manieth of that set. Each set's share of any first i
// samples is its weight to within one.
std::pair<std::size_t, std::uint64_t> place_in_blend(const std::vector<double>& weights,
                                                     std::uint64_t index);

class Data {
 public:
  // io names a file that cannot be read, invalid_argument a set that is too small and flags that do not fit.
  static tutti::Result<Data> open(const Flags& flags);

  // Sequences first, first + 1, … of the training.
  // Failure: io where a file is not what it was, corrupt where a token is not in the vocabulary.
  tutti::Result<TokenBatch> training(std::uint64_t first, int sequences);
  // Of the validation; starts over when it is through. In any thread.
  tutti::Result<TokenBatch> validation(std::uint64_t first, int sequences) const;

  std::uint64_t bytes() const;
  // Of the sets' names, order, weights, sizes and contents: other data has another number.
  std::uint64_t identity() const { return identity_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  // The token that ends one; -1: nobody says.
  std::int64_t end_of_document() const;

 private:
  struct Range {
    std::uint64_t first = 0, sequences = 0;  // first token; sequences from there on
  };
  struct Set {
    std::string name;
    std::shared_ptr<const Tokens> tokens;
    Range training, validation;
    std::unique_ptr<Shuffle> shuffle;
  };

  tutti::Status add_bytes(const Flags& flags);
  tutti::Status add_indexed(const Flags& flags);
  tutti::Status add_set(const std::string& prefix, const std::vector<double>& split);
  tutti::Status find_vocabulary(const Flags& flags);
  tutti::Status append(TokenBatch& batch, const Set& set, std::uint64_t begin) const;

  std::vector<Set> sets_;
  std::vector<double> weights_;
  std::uint64_t identity_ = 0;
  std::uint64_t length_ = 0;
  std::uint64_t seed_ = 0;
  std::int64_t vocabulary_ = 0;
  std::int64_t masked_ = -1;  // the token whose loss does not count
};

}  // namespace pretrain
