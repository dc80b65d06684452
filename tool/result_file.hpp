// tool/result_file.hpp - the results of a long command, written as they come: whatever ends it, the
// file holds what was measured until then.
#pragma once

#include <string>

#include "tutti/status.hpp"

namespace tutti::tool {

class ResultFile {
 public:
  // "-" is standard output; an empty path, not said: nothing is written.
  explicit ResultFile(std::string path);

  // What there is so far. Pipes and devices cannot take anything back: they get the end only.
  Status keep(const std::string& text) const { return is_file_ ? write(text) : Status(); }
  Status finish(const std::string& text) const { return write(text); }

  const std::string& path() const { return path_; }
  bool keeps() const { return is_file_; }

 private:
  Status write(const std::string& text) const;

  std::string path_;
  bool is_file_ = false;
};

}  // namespace tutti::tool
