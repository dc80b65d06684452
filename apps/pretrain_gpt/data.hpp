// apps/pretrain_gpt/data.hpp - sequences of bytes, in an order that depends on the seed alone.
//
// All files are one stream, with an end-of-document token after each. The stream is cut into
// sequences; the last twentieth is kept for validation. Sequence i of the training is the same one
// on every number of ranks: a permutation of the epoch that i falls into.
//
// Thread-safety  one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/status.hpp"

namespace pretrain {

constexpr std::int64_t kEndOfDocument = 256;
constexpr std::int64_t kVocabulary = 257;

// Row-major [sequences, length].
struct TokenBatch {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> labels;  // the token that follows
  std::vector<float> loss_mask;      // 0: not counted
  std::int64_t counted = 0;          // tokens that are
};

class Data {
 public:
  // io names a file that cannot be read, invalid_argument one set of files that is too small.
  static tutti::Result<Data> open(const std::vector<std::string>& paths, int seq_length,
                                  std::uint64_t seed, bool mask_end_of_document);

  // Sequences first, first + 1, … of the training.
  TokenBatch training(std::uint64_t first, int sequences);
  // Of the validation; starts over when it is through.
  TokenBatch validation(std::uint64_t first, int sequences) const;

  std::size_t bytes() const { return stream_.size(); }
  // Of the files' names, order, sizes and contents: other data has another number.
  std::uint64_t identity() const { return identity_; }

 private:
  void append(TokenBatch& batch, std::size_t sequence) const;
  void shuffle_epoch(std::uint64_t epoch);

  std::vector<std::uint16_t> stream_;
  std::uint64_t identity_ = 0;
  std::size_t length_ = 0;
  std::uint64_t seed_ = 0;
  bool mask_ = false;
  std::size_t training_ = 0;
  std::size_t validation_ = 0;
  std::vector<std::uint32_t> order_;  // of the epoch that was asked for last
  std::uint64_t epoch_ = ~0ULL;
};

// Spreads what it is given over all bits; the same on every machine.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

}  // namespace pretrain
