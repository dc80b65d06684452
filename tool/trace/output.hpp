// tool/trace/output.hpp - a file that is written whole or not at all; gzipped if its name says so.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::tool::trace {

class Output {
 public:
  // io names the file. It is there under its name only after finish().
  static Result<std::unique_ptr<Output>> open(const std::string& path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Buffered; the first failure is reported by finish().
  void write(std::string_view text);
  Status finish();

 private:
  Output() = default;
  Status failed() const;

  std::string path_;
  std::string temporary_;
  void* zipped_ = nullptr;  // gzFile
  std::FILE* plain_ = nullptr;
  int error_ = 0;
};

// Says on stderr how far something has come, if that is a terminal and it takes more than a moment.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void at(std::size_t done, std::size_t all);

 private:
  std::string what_;
  bool shown_ = false;
  bool terminal_ = false;
  double began_s_ = 0;
  double last_s_ = 0;
};

}  // namespace tutti::tool::trace
