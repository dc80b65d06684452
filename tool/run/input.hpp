// tool/run/input.hpp - standard input for rank 0; the other ranks read nothing.
//
// A pipe or file is simply inherited. A terminal cannot be: rank 0 lives in a process group of its
// own and would be stopped (SIGTTIN) for reading, so the launcher passes the keystrokes on. What
// comes over a leash is passed on likewise.
#pragma once

#include <string>

#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

class Input {
 public:
  enum class Source { none, own, leash };
  // `none`: rank 0 runs elsewhere.
  static Result<Input> open(Source source);

  int for_first() const {
    return pipe_ ? pipe_.get() : (source_ == Source::own ? 0 : nothing_.get());
  }
  int for_others() const { return nothing_.get(); }
  // The ranks have their copies now.
  void release_children_ends() { pipe_.reset(); }

  // What to poll: the terminal while there is room, the pipe while there is something to pass on.
  int wants_read() const { return source_ == Source::own && relay_ && waiting_.empty() ? 0 : -1; }
  int wants_write() const { return relay_ && !waiting_.empty() ? relay_.get() : -1; }
  void pump();

  // A piece that came over the leash; the next one when it is idle() again. An empty one is the end.
  void feed(std::string piece);
  bool idle() const { return waiting_.empty(); }

 private:
  Source source_ = Source::none;
  Descriptor nothing_;  // /dev/null
  Descriptor pipe_;     // rank 0's end
  Descriptor relay_;    // ours; closed at the end of input
  std::string waiting_;
};

}  // namespace tutti::tool
