// checkpoint/safe_file.hpp - files that are there whole or not at all, and their SHA-256.
//
// A SafeFile has no name while it is written, so that whoever is killed meanwhile leaves nothing
// behind. commit() syncs it, gives it its name and syncs the folder. A file of that name is replaced
// by way of .tmp_NAME, which exists for the moment between two system calls; where the file system
// has no files without a name, all the time. Nobody takes it for the file.
//
// Thread-safety  one thread at a time.
// Failure        Code::io names the path and carries the system's words.
//
//   auto file = SafeFile::create(folder + "/latest");
//   if (Status status = file->write(text.data(), text.size()); !status.ok()) return status;
//   return file->commit();
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/sockets.hpp"
#include "train/digest.hpp"
#include "tutti/status.hpp"

namespace tutti::checkpoint {

inline constexpr std::string_view kTemporaryPrefix = ".tmp_";

// A file that holds what it should not.
inline Status corrupt(std::string what) { return {Code::corrupt, std::move(what)}; }

std::string sha256_of(std::string_view text);
// Reads the file in pieces.
Result<std::string> sha256_of_file(const std::string& path);

class SafeFile {
 public:
  static Result<SafeFile> create(std::string path);
  SafeFile(SafeFile&& other) noexcept = default;
  SafeFile& operator=(SafeFile&&) = delete;
  ~SafeFile();

  Status write(const void* data, std::size_t bytes);
  Status commit();

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }
  // Of everything written; once, when that is all.
  std::string sha256() { return train::to_hex(digest_.value()); }

 private:
  SafeFile(std::string path, int descriptor, bool is_named);
  Status give_name();

  std::string path_;
  std::string temporary_;
  bool is_named_;  // as temporary_
  Descriptor descriptor_;
  std::uint64_t bytes_ = 0;
  train::Digest digest_;
};

// "PATH: WHAT: what errno says".
Status file_trouble(const std::string& path, std::string_view what);
Status file_trouble(const std::string& path, std::string_view what, const std::error_code& error);
// A file of text, whole; one with more than `most` bytes is refused.
Result<std::string> read_bounded(const std::string& path, std::size_t most);
Status write_text(const std::string& path, std::string_view text);
// Makes the names in a folder survive a crash of the machine.
Status sync_folder(const std::string& folder);

}  // namespace tutti::checkpoint
