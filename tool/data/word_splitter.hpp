// tool/data/word_splitter.hpp - cuts text where a pattern says, before BPE merges within each part.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::tool {

class WordSplitter {
 public:
  // invalid_argument: PCRE2 cannot read the pattern; unsupported: the tool was built without it.
  static Result<WordSplitter> create(const std::string& pattern);
  WordSplitter(WordSplitter&&) noexcept;
  WordSplitter& operator=(WordSplitter&&) noexcept;
  ~WordSplitter();

  // All of `text`, in order: what matches, and what lies between matches. Bytes that are not UTF-8 match nothing.
  // What `take` fails with ends it.
  Status split(std::string_view text, const std::function<Status(std::string_view)>& take) const;

 private:
  struct State;
  explicit WordSplitter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tutti::tool
