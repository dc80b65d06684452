// tool/run/leash.hpp - how a launcher on another host hangs on the one that started it: its standard
// input (docs/formats/leash.md).
//
// The first line is its order; each later one is "signal N", as if that signal had come here. The
// end of it is the end of the job: the connection went, or whoever held it.
#pragma once

#include <string>

#include "tool/run/order.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

class Leash {
 public:
  // Waits for the order.
  static Result<Leash> take(NodeOrder& order);

  // What to poll; -1 once it is gone.
  int descriptor() const { return gone_ ? -1 : 0; }
  // Reads what is there.
  void pump();
  // The next signal that was sent; 0: none.
  int take_signal();
  // Without waiting: a signal that came, SIGTERM once it is gone, 0 otherwise.
  int glance();
  bool gone() const { return gone_; }

 private:
  std::string in_;
  bool gone_ = false;
};

}  // namespace tutti::tool
