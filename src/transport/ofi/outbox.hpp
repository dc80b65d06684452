// transport/ofi/outbox.hpp - messages that wait for their turn: what is urgent goes ahead, and of what is as
// urgent the small ahead of the large; within a channel the order is that of the pushes.
//
// Thread-safety  none of its own; OfiLink's send lock covers it.
#pragma once

#include <array>
#include <deque>
#include <string>

#include "transport/message.hpp"
#include "transport/ofi/enrolled.hpp"
#include "tutti/types.hpp"

namespace tutti::transport::ofi {

struct Outgoing {
  Header header;
  Urgency urgency = Urgency::normal;
  std::string copy;  // of a small one's payload
  Place payload;     // of a large one's: a landing of our own, or symmetric memory that was lent
  std::uint64_t token = 0;
  bool lent = false;

  bool large() const { return static_cast<bool>(payload); }
  bool gives_way_to(const Outgoing& other) const {
    return urgency < other.urgency || (urgency == other.urgency && large() && !other.large());
  }
};

class Outbox {
 public:
  bool empty() const { return waiting_.empty(); }
  const Outgoing& front() const { return waiting_.front(); }
  // Of messages that do not give way to those of `urgency`.
  std::size_t bytes_before(Urgency urgency) const;
  void push(Outgoing message);
  Outgoing pop();
  void clear();
  std::deque<Outgoing>& all() { return waiting_; }

 private:
  std::deque<Outgoing> waiting_;
  std::array<std::size_t, 3> bytes_{};  // by urgency
};

}  // namespace tutti::transport::ofi
