// apps/pretrain_gpt/tokens.hpp - a long row of tokens: files that are read as bytes, or Megatron's .bin/.idx.
// They stay on disk: a batch reads its own.
//
// docs/formats/tokens.md
//
// Thread-safety  as of constants.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/status.hpp"

namespace pretrain {

constexpr std::int64_t kByteVocabulary = 257;  // bytes, and the end of a document
constexpr std::int64_t kEndOfBytes = 256;

class Tokens {
 public:
  virtual ~Tokens() = default;

  virtual std::uint64_t count() const = 0;
  // Tokens first … first + count − 1. io: they cannot be read any more, as of a file that was cut short.
  virtual tutti::Status read(std::uint64_t first, std::uint64_t count, std::int64_t* out) const = 0;
  virtual std::uint64_t bytes() const = 0;
  virtual std::uint64_t documents() const = 0;
  // Where that document begins; `documents()`: the end.
  virtual std::uint64_t begin_of(std::uint64_t document) const = 0;
  // Of names, order, sizes and contents: other tokens have another number.
  virtual std::uint64_t identity() const = 0;
  // 0 and -1: not known.
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t end_of_document() const = 0;
};

// All files in a row, with kEndOfBytes after each. io names a file that cannot be read.
tutti::Result<std::shared_ptr<const Tokens>> read_bytes(const std::vector<std::string>& paths);

// Whether PREFIX.idx is there.
bool is_indexed(const std::string& prefix);
// What is not looked at takes no memory. io or corrupt name the file and what is wrong with it.
tutti::Result<std::shared_ptr<const Tokens>> map_indexed(const std::string& prefix);

// Spreads what it is given over all bits; the same on every machine.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);
// Of a path without its folder: data may be moved.
std::uint64_t hash_of_name(const std::string& path);

}  // namespace pretrain
