#include "transport/address.hpp"

#include <gtest/gtest.h>

#include "transport/transport.hpp"

namespace tutti::transport {
namespace {

Address example() {
  Address address;
  address.rank = 3;
  address.pid = 4182;
  address.host = "a";
  address.host_id = "boot/4/5";
  address.ready = {{"inproc", ""}, {"tcp", "2"}};
  address.local = "@tutti-1";
  address.tcp_loopback = "127.0.0.1:1";
  return address;
}

TEST(Address, comes_back_as_it_was) {
  auto back = Address::decode(example().encode());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->encode(), example().encode());
  EXPECT_EQ(back->rank, 3);
  EXPECT_EQ(back->note_of("shm"), nullptr);
  EXPECT_EQ(*back->note_of("inproc"), "");
  EXPECT_EQ(back->tcp_outward, "");
  EXPECT_EQ(*back->note_of("tcp"), "2");
  EXPECT_EQ(back->whereabouts(), "host a, pid 4182");
}

TEST(Address, every_prefix_and_any_tail_is_corrupt) {
  const std::string bytes = example().encode();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_EQ(Address::decode(bytes.substr(0, size)).status().code(), Code::corrupt) << size;
  EXPECT_EQ(Address::decode(bytes + "x").status().code(), Code::corrupt);
}

TEST(Address, another_protocol_is_a_mismatch) {
  std::string bytes = example().encode();
  bytes[4] = 77;
  EXPECT_EQ(Address::decode(bytes).status().code(), Code::mismatch);
}

std::string names_of(const std::vector<const Transport*>& transports) {
  std::string names;
  for (const Transport* transport : transports) names += std::string(transport->name()) + " ";
  return names;
}

TEST(Transports, auto_is_all_of_them_and_a_list_is_what_it_says_in_the_order_of_preference) {
  const auto named = [](const std::string& words) {
    return named_transports(words, built_in_transports());
  };
  EXPECT_EQ(names_of(*named("auto")), "inproc shm ofi tcp ");
  EXPECT_EQ(names_of(*named("")), "inproc shm ofi tcp ");
  EXPECT_EQ(names_of(*named("tcp, shm")), "shm tcp ");
  EXPECT_EQ(named("shm,carrier_pigeon").status().code(), Code::invalid_argument);
}

TEST(Transports, tcp_takes_as_many_connections_as_both_want_and_can_be) {
  const Transport& tcp = tcp_transport();
  Address few = example(), many = example();
  many.ready[1].note = "5";
  EXPECT_EQ(tcp.connections(few, many), 2);
  for (const char* nonsense : {"", "0", "-1", "many"}) {
    few.ready[1].note = nonsense;
    EXPECT_EQ(tcp.connections(few, many), 1) << nonsense;
  }
  few.ready[1].note = "2 plain";
  EXPECT_EQ(tcp.connections(few, many), 2);
  few.ready[1].note = many.ready[1].note = "1000";
  EXPECT_EQ(tcp.connections(few, many), 8);
}

TEST(Transports, tcp_says_how_many_connections_it_wants_and_whether_without_checksums) {
  Config config;
  config.streams = 3;
  EXPECT_EQ(*tcp_transport().viable(config), "3 express");
  config.tcp_checksum = false;
  EXPECT_EQ(*tcp_transport().viable(config), "3 express plain");
  config.tcp_express = false;
  EXPECT_EQ(*tcp_transport().viable(config), "3 plain");
}

TEST(Transports, tcp_has_an_express_only_where_both_sides_want_one) {
  Address wants = example(), does_not = example();
  wants.ready = {{"tcp", "2 express"}};
  does_not.ready = {{"tcp", "3"}};
  EXPECT_EQ(tcp_transport().connections(wants, wants), 3);
  EXPECT_EQ(tcp_transport().connections(wants, does_not), 2);
  EXPECT_EQ(tcp_transport().connections(does_not, does_not), 3);
}

TEST(Transports, ask_where_two_ranks_are) {
  const Address here = example();
  Address process = example(), host = example();
  process.pid = 7;
  host.host_id = "boot/4/6";
  EXPECT_TRUE(inproc_transport().can_link(here, here));
  EXPECT_FALSE(inproc_transport().can_link(here, process));
  EXPECT_FALSE(inproc_transport().can_link(here, host));  // a pid means nothing elsewhere
  EXPECT_TRUE(shm_transport().can_link(here, process));
  EXPECT_FALSE(shm_transport().can_link(here, host));
  EXPECT_TRUE(tcp_transport().can_link(here, host));
}

}  // namespace
}  // namespace tutti::transport
