// transport/regions.hpp - symmetric memory as one rank sees it: its own, and what peers have handed
// over.
//
// Thread-safety  any thread may ask; changes come from the endpoint.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>

#include "transport/endpoint.hpp"
#include "transport/mapping.hpp"

namespace tutti::transport {

class RegionTable {
 public:
  // Makes one. `shared`: other processes are going to map it, by `descriptor(id)`.
  Result<Region> allocate(std::uint64_t id, std::size_t bytes, bool shared);
  int descriptor(std::uint64_t id) const;
  // Drops this rank's own region and everybody's of that id.
  void free(std::uint64_t id);

  // A peer's region: mapped here, or simply somewhere in this process.
  void add(int peer, std::uint64_t id, Mapping mapping);
  void add(int peer, std::uint64_t id, std::byte* data, std::size_t bytes);
  bool has(int peer, std::uint64_t id) const;
  std::byte* reach(int peer, const MemoryRef& ref, std::size_t bytes) const;

  // The peer has mapped this rank's region: from now on it may be lent to it.
  void mark_mapped(int peer, std::uint64_t id);
  // Where `data` is in words that the peer understands; region 0 if it has not mapped it.
  MemoryRef share(int peer, const void* data, std::size_t bytes) const;

 private:
  struct Own {
    Mapping mapping;
    Descriptor descriptor;
    std::set<int> mapped_by;
  };
  struct Theirs {
    Mapping mapping;  // empty within one process
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, Own> own_;
  std::map<std::pair<int, std::uint64_t>, Theirs> theirs_;
  std::atomic<bool> lendable_{false};  // spares sends the lock while nobody has mapped anything
};

}  // namespace tutti::transport
