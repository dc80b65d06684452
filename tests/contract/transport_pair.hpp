// contract/transport_pair.hpp - two (or more) endpoints in this process, over any real transport,
// and a sink that writes down what happens.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/endpoint.hpp"

namespace tutti::test {

using namespace tutti::transport;
using namespace std::chrono_literals;

// Only against hangs.
inline constexpr auto kWaitAtMost = 20s;

struct Received {
  int peer = -1;
  Header header;
  std::string bytes;
  std::uint64_t lease = 0;
  const std::byte* view = nullptr;
  bool placed = false;
};

class Notebook final : public MessageSink {
 public:
  explicit Notebook(Endpoint& endpoint) : endpoint_(endpoint) {}

  std::byte* place(int, const Header& header) override {
    const auto it = places.find(header.sequence);
    return it == places.end() ? nullptr : it->second + header.offset;
  }
  void on_message(int peer, const Header& header, const Payload& payload) override {
    Received received{peer, header, {}, payload.lease, payload.data, payload.placed};
    if (!payload.placed && header.bytes > 0)
      received.bytes.assign(reinterpret_cast<const char*>(payload.data), header.bytes);
    if (payload.lease != 0 && !keep) {
      endpoint_.link(peer)->release(payload.lease);
      received.lease = 0;
    }
    messages.push_back(std::move(received));
  }
  void on_sent(std::uint64_t token) override { sent.push_back(token); }
  void on_down(int peer, const Status& reason) override { downs.emplace_back(peer, reason); }

  bool keep = false;                           // views are held instead of being released at once
  std::map<std::uint64_t, std::byte*> places;  // by sequence
  std::deque<Received> messages;               // references stay valid while more arrive
  std::vector<std::uint64_t> sent;
  std::vector<std::pair<int, Status>> downs;

 private:
  Endpoint& endpoint_;
};

inline Config config_for(const std::string& transport) {
  Config config;
  config.transport = transport;
  config.segment_bytes = 64 * 1024;
  return config;
}

// Opens `size` ranks in this process and connects them, each in a thread of its own.
struct Ranks {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<std::unique_ptr<Notebook>> notes;
  std::vector<Status> statuses;
  std::function<void()> before_poll;  // of any rank; may be empty
  std::function<void(int rank)> end;  // how a rank goes; empty: its endpoint is destroyed
  bool leave_together = false;        // all at once, as in a job, for one may wait for the other

  explicit Ranks(std::vector<std::unique_ptr<Endpoint>> made)
      : endpoints(std::move(made)), statuses(endpoints.size()) {
    for (auto& endpoint : endpoints) notes.push_back(std::make_unique<Notebook>(*endpoint));
  }
  Ranks(int size, const std::string& transport,
        const std::function<void(int, OpeningOptions&)>& change = {},
        std::chrono::nanoseconds timeout = kWaitAtMost,
        const std::function<void(const std::vector<std::string>&)>& meanwhile = {}) {
    std::vector<std::unique_ptr<Opening>> openings;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < size; ++rank) {
      OpeningOptions options;
      options.rank = rank;
      options.size = size;
      options.epoch = 7;
      options.secret = "a secret of thirty-two bytes ...";
      options.config = config_for(transport);
      if (change) change(rank, options);
      auto opening = Opening::open(std::move(options));
      EXPECT_TRUE(opening.ok()) << opening.status().to_string();
      addresses.push_back((*opening)->address());
      openings.push_back(std::move(*opening));
    }
    endpoints.resize(static_cast<std::size_t>(size));
    statuses.resize(static_cast<std::size_t>(size));
    if (meanwhile) meanwhile(addresses);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
      threads.emplace_back([&, rank] {
        auto endpoint = openings[rank]->connect(addresses, timeout);
        statuses[rank] = endpoint.status();
        if (endpoint.ok()) endpoints[rank] = std::move(*endpoint);
      });
    for (std::thread& thread : threads) thread.join();
    for (auto& endpoint : endpoints)
      notes.push_back(endpoint ? std::make_unique<Notebook>(*endpoint) : nullptr);
  }

  ~Ranks() {
    std::vector<std::thread> leaving;
    for (auto& endpoint : endpoints)
      if (leave_together) leaving.emplace_back([&endpoint] { endpoint.reset(); });
    for (std::thread& each : leaving) each.join();
  }

  bool ok() const {
    for (const Status& status : statuses)
      if (!status.ok()) return false;
    return true;
  }
  Link& link(int from, int to) { return *endpoints[static_cast<std::size_t>(from)]->link(to); }
  Notebook& note(int rank) { return *notes[static_cast<std::size_t>(rank)]; }
  void poll(int rank) {
    if (before_poll) before_poll();
    endpoints[static_cast<std::size_t>(rank)]->poll(*notes[static_cast<std::size_t>(rank)]);
  }
  // Polls everybody until `done`, or until patience ends.
  bool poll_until(const std::function<bool()>& done) {
    const auto limit = std::chrono::steady_clock::now() + kWaitAtMost;
    while (!done()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
        if (endpoints[rank]) poll(static_cast<int>(rank));
    }
    return true;
  }
  // A rank goes, and the others are polled until `done`.
  bool leave(int rank, const std::function<bool()>& done) {
    auto leaving = std::move(endpoints[static_cast<std::size_t>(rank)]);
    if (end) {
      end(rank);
      return poll_until(done);
    }
    std::thread leaver([&] { leaving.reset(); });
    const bool seen = poll_until(done);
    leaver.join();
    return seen;
  }
};

inline Header header_of(MessageKind kind, std::uint64_t sequence, std::uint32_t channel = 1) {
  Header header;
  header.kind = kind;
  header.channel = channel;
  header.sequence = sequence;
  return header;
}

// Bytes that show misplacement: no two neighbouring positions of any size are alike.
inline std::string pattern(std::size_t bytes, unsigned seed = 1) {
  std::string text(bytes, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (char& c : text) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    c = static_cast<char>(state >> 56);
  }
  return text;
}

}  // namespace tutti::test
