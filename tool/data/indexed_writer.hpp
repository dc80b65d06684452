// tool/data/indexed_writer.hpp - PREFIX.bin, PREFIX.idx and PREFIX.tokens, as Megatron and pretrain_gpt read them.
//
// docs/formats/tokens.md. The tokens go to disk as they come; of each document twelve bytes stay in memory until
// finish(). Without it nothing appears under these names, and what was there before is there still.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/output_file.hpp"

namespace tutti::tool {

class IndexedWriter {
 public:
  // Two bytes a token where they suffice, else four.
  static Result<IndexedWriter> open(const std::string& prefix, std::int64_t vocabulary);

  // Of the document that end_document ends, which counts if it has any.
  Status add(std::span<const std::int32_t> tokens);
  Status end_document();
  // `about`: the lines of PREFIX.tokens.
  Status finish(const std::string& about);

  std::uint64_t documents() const { return lengths_.size(); }
  std::uint64_t tokens() const { return bytes_ / width_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  IndexedWriter(std::string prefix, OutputFile file, std::size_t width)
      : prefix_(std::move(prefix)), file_(std::move(file)), width_(width) {}
  Status flush();

  std::string prefix_;
  OutputFile file_;
  std::size_t width_;
  std::string pending_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> offsets_;
  std::uint64_t bytes_ = 0;
  std::uint64_t begin_ = 0;  // of the document that is being written
};

}  // namespace tutti::tool
