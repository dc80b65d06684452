#include "transport/address.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

Address example() {
  Address address;
  address.rank = 3;
  address.pid = 4182;
  address.host = "a";
  address.host_id = "boot/4/5";
  address.allowed = {true, false, true};
  address.streams = 2;
  address.local = "@tutti-1";
  address.tcp_loopback = "127.0.0.1:1";
  return address;
}

TEST(Address, comes_back_as_it_was) {
  auto back = Address::decode(example().encode());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->encode(), example().encode());
  EXPECT_EQ(back->rank, 3);
  EXPECT_EQ(back->allowed.shm, false);
  EXPECT_EQ(back->tcp_outward, "");
  EXPECT_EQ(back->streams, 2);
  EXPECT_EQ(back->whereabouts(), "host a, pid 4182");
}

TEST(Address, every_prefix_and_any_tail_is_corrupt) {
  const std::string bytes = example().encode();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_EQ(Address::decode(bytes.substr(0, size)).status().code(), Code::corrupt) << size;
  EXPECT_EQ(Address::decode(bytes + "x").status().code(), Code::corrupt);
}

TEST(Address, more_streams_than_there_can_be_are_corrupt) {
  for (const int streams : {0, -1, kMaxStreams + 1}) {
    Address address = example();
    address.streams = streams;
    EXPECT_EQ(Address::decode(address.encode()).status().code(), Code::corrupt);
  }
}

TEST(Address, another_protocol_is_a_mismatch) {
  std::string bytes = example().encode();
  bytes[4] = 77;
  EXPECT_EQ(Address::decode(bytes).status().code(), Code::mismatch);
}

TEST(Allowed, auto_is_everything_and_a_list_is_what_it_says) {
  EXPECT_TRUE(Allowed::parse("auto")->shm && Allowed::parse("auto")->tcp);
  auto some = Allowed::parse("shm, tcp");
  ASSERT_TRUE(some.ok());
  EXPECT_TRUE(some->shm && some->tcp && !some->inproc);
  EXPECT_EQ(Allowed::parse("shm,carrier_pigeon").status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace tutti::transport
