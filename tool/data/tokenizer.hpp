// tool/data/tokenizer.hpp - text to tokens.
//
//   bytes             each byte is a token, and 256 ends a document
//   FILE.model        SentencePiece, where the tool was built with it
//   FILE.json         a tokenizer.json of Hugging Face whose model is byte-level BPE
//
// Marks of a document's begin and end are not added, and special tokens that text spells out are text.
//
// Thread-safety  one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::tool {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Takes tokens in the order of the text, some ten thousand at a time; what it fails with ends encode.
  using Take = std::function<Status(std::span<const std::int32_t>)>;
  // Of a whole document.
  virtual Status encode(std::string_view text, const Take& take) = 0;
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t end_of_document() const = 0;  // -1: there is none
  // The number of a token as it is written; -1: there is none.
  virtual std::int64_t find(const std::string& word) const = 0;
};

// invalid_argument names what in the file is not known here; io, that it cannot be read.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& name);
Result<std::unique_ptr<Tokenizer>> open_sentence_pieces(const std::string& path);
Result<std::unique_ptr<Tokenizer>> open_byte_level_bpe(const std::string& path);

}  // namespace tutti::tool
