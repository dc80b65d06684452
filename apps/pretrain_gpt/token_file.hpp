// apps/pretrain_gpt/token_file.hpp - a file that tokens are read from, a few at a time: nothing of it stays in memory.
//
// It is read, not mapped: pages come from the same cache, and a file that is cut short meanwhile is an error with a
// name, where a mapped one would end the process by SIGBUS.
//
// Thread-safety  several threads may read at once.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/status.hpp"

namespace pretrain {

class TokenFile {
 public:
  TokenFile() = default;
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;
  ~TokenFile();

  // Regular files alone. io says why it cannot be read.
  tutti::Status open(const std::string& path);
  // In place of a file: what a pipe gives, kept on disk (in TMPDIR) without a name.
  tutti::Status open_unnamed(const std::string& path);
  tutti::Status append(const void* data, std::size_t bytes);

  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // io: it is shorter than it was, or cannot be read.
  tutti::Status read(std::uint64_t offset, void* out, std::size_t bytes) const;

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace pretrain
