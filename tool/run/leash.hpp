// tool/run/leash.hpp - how a launcher on another host hangs on the one that started it: its standard
// input (docs/formats/leash.md).
//
// The first line is its order; what follows are signals, as if they had come here, and what rank 0 is
// to read. The end of it is the end of the job: the connection went, or whoever held it.
#pragma once

#include <deque>
#include <optional>
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
  // The next piece for rank 0, empty at the end of input; the one that sent it waits until it is told
  // that the piece was taken.
  std::optional<std::string> take_input();
  // Without waiting: a signal that came, SIGTERM once it is gone, 0 otherwise.
  int glance();
  bool gone() const { return gone_; }
  // With which lines begin that are for the other end.
  const std::string& mark() const { return mark_; }

 private:
  void sort();

  std::string in_;
  std::deque<int> signals_;
  std::deque<std::string> inputs_;
  std::string mark_;
  bool gone_ = false;
};

// What the other end puts.
std::string signal_words(int signal);
std::string input_words(const std::string& piece);

}  // namespace tutti::tool
