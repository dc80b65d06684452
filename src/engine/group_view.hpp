// engine/group_view.hpp - what runs and messages see of their group.
#pragma once

#include <cstdint>
#include <string>

#include "trace/tracer.hpp"
#include "transport/link.hpp"

namespace tutti::engine {

class GroupView {
 public:
  virtual ~GroupView() = default;
  virtual transport::Link& link_to(int peer) = 0;  // by group rank
  // At the collective under way, with the same call.
  virtual bool has_arrived(int peer) const = 0;
  virtual bool all_have_arrived() const = 0;
  // Data is about to be sent there: what has to be known before goes ahead of it.
  virtual void precede_data(int /*peer*/) {}
  virtual std::uint32_t channel() const = 0;
  virtual int world_rank(int peer) const { return peer; }
  // For messages: "rank 3 (host b, pid 4182)".
  virtual std::string where(int peer) const { return "rank " + std::to_string(peer); }
  virtual trace::Tracer* tracer() { return nullptr; }  // null: nothing is traced
};

}  // namespace tutti::engine
