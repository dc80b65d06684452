// contract/transport_contract.hpp - what every transport promises. A new one enrols with a
// TransportKind, as those of transport_kinds.cpp do; the tests are in transport_contract.cpp.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "contract/transport_pair.hpp"

namespace tutti::test {

struct TransportKind {
  std::string name;  // as its links say
  std::function<std::unique_ptr<Ranks>(int ranks)> make;
  std::string variant{};  // of that name, where it comes in several
};
inline void PrintTo(const TransportKind& kind, std::ostream* out) { *out << kind.name; }
inline std::string name_of_kind(const testing::TestParamInfo<TransportKind>& info) {
  return info.param.name + info.param.variant;
}

// Ranks of this process that are forced to use one transport, of the built-in ones or of `more`.
inline TransportKind forced(const std::string& name,
                            std::vector<const transport::Transport*> more = {}) {
  return {name, [=](int ranks) {
            return std::make_unique<Ranks>(
                ranks, name, [=](int, OpeningOptions& options) { options.transports = more; });
          }};
}

// What two links promise when both are polled by one thread.
class TransportContract : public testing::TestWithParam<TransportKind> {
 protected:
  std::unique_ptr<Ranks> made_ = GetParam().make(2);
  Ranks& ranks = *made_;
  void SetUp() override {
    for (const Status& status : ranks.statuses) ASSERT_TRUE(status.ok()) << status.to_string();
    // The sender's own view comes first: nothing is asked of links that do not exist.
    ASSERT_NE(ranks.endpoints[0]->link(1), nullptr);
  }

  // Sends all of `text` in as many segments as the link wants; gives the tokens that were lent.
  std::vector<std::uint64_t> send_all(int from, int to, Header header, const std::string& text) {
    std::vector<std::uint64_t> lent;
    std::size_t offset = 0;
    const auto push = [&] {
      header.offset = offset;
      const std::uint64_t token = 1000 + offset;
      const Sent sent =
          ranks.link(from, to).send(header, text.data() + offset, text.size() - offset, token);
      if (!sent.accepted) return false;
      if (sent.lent) lent.push_back(token);
      offset += sent.bytes;
      return offset == text.size();
    };
    EXPECT_TRUE(ranks.poll_until(push));
    return lent;
  }

  // The message's bytes, put together by offset.
  std::string assembled(int rank, std::uint64_t sequence, std::size_t bytes) {
    std::string text(bytes, '?');
    for (const Received& message : ranks.note(rank).messages)
      if (message.header.sequence == sequence)
        text.replace(message.header.offset, message.bytes.size(), message.bytes);
    return text;
  }
  std::size_t arrived(int rank, std::uint64_t sequence) {
    std::size_t bytes = 0;
    for (const Received& message : ranks.note(rank).messages)
      if (message.header.sequence == sequence) bytes += message.header.bytes;
    return bytes;
  }
};

// What they promise besides to threads that send at once, sleep and are woken.
class SleepingContract : public TransportContract {};

}  // namespace tutti::test
