// core/output_file.hpp - a file that people asked for, written whole or not at all.
//
// A regular file, or a name that is free, is replaced by rename: what was there stays until the new
// one is whole, and nothing stays of one that never will be. A symbolic link stays, its target is
// written. Whatever else the name stands for is written through and never replaced: devices, pipes,
// this process's own descriptors (/dev/stdout), and files that a rename would make others of: those
// with several names, of another owner, or mounted.
//
// Failure        Code::io names the file and the reason; from check(), which comes before the work,
//                it is Code::invalid_argument: the name can still be mended.
// Thread-safety  one thread at a time.
//
//   if (Status status = OutputFile::check(path); !status.ok()) return status;
//   …
//   if (Status status = write_file(path, text); !status.ok()) return status;
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti {

class OutputFile {
 public:
  // Whether it could be written now. Nothing is written, and nothing stays behind.
  static Status check(const std::string& path);
  // Whether it is put in place by rename, and so can be written again and again.
  static bool is_replaced(const std::string& path);

  static Result<OutputFile> open(const std::string& path);
  OutputFile(OutputFile&&) noexcept = default;
  // Without finish() what was there before is there still.
  ~OutputFile();

  int descriptor() const { return descriptor_.get(); }
  Status write(std::string_view text);
  // Puts it under its name. Nothing can be written afterwards.
  Status finish();
  // "x.json cannot be written: No space left on device"
  Status failed(int error) const;

 private:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}

  std::string path_;       // as it was said
  std::string replaced_;   // what finish() replaces, beyond all links; empty: written through
  std::string beside_;     // its name until then
  bool is_named_ = false;  // by that: where the file system has no files without names
  Descriptor descriptor_;
};

// All of it at once.
Status write_file(const std::string& path, std::string_view text);

}  // namespace tutti
