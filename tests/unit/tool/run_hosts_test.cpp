// Lists of hosts as people write them, and orders to other hosts as they arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/run/hosts.hpp"
#include "tool/run/order.hpp"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;

std::string text(const Result<std::vector<Host>>& hosts) {
  if (!hosts.ok()) return hosts.status().message();
  std::string line;
  for (const Host& host : *hosts) line += host.name + "*" + std::to_string(host.ranks) + " ";
  return line;
}

TEST(RunHosts, a_list_names_hosts_and_their_ranks) {
  EXPECT_EQ(text(parse_hosts("a:4,b:2")), "a*4 b*2 ");
  EXPECT_EQ(text(parse_hosts("a, me@b:3,a:2")), "a*3 me@b*3 ");
  EXPECT_EQ(text(parse_hosts("10.0.0.1:2,[::1]:3")), "10.0.0.1*2 [::1]*3 ");
}

TEST(RunHosts, the_remote_shell_and_other_hosts_call_them_as_each_takes_it) {
  const Host host{"me@[fe80::1]", 1};
  EXPECT_EQ(shell_name_of(host), "me@fe80::1");
  EXPECT_EQ(address_of(host), "[fe80::1]");
}

TEST(RunHosts, a_file_is_what_mpirun_takes) {
  EXPECT_EQ(text(parse_hostfile("# all of them\na slots=4\n\nb:2 # two\nc\n\td  slots=1\r\n")),
            "a*4 b*2 c*1 d*1 ");
}

TEST(RunHosts, what_cannot_be_read_is_quoted) {
  for (const char* list :
       {"a:0", "a:-1", "a:x", "a:99999999999", ":4", "-oProxyCommand=x:1", "a;b", ""})
    EXPECT_EQ(parse_hosts(list).status().code(), Code::invalid_argument) << list;
  EXPECT_THAT(parse_hosts("a:x").status().message(), HasSubstr("'a:x'"));
  EXPECT_THAT(text(parse_hostfile("a slots=4\nb slot=4\n")), HasSubstr("line 2"));
  EXPECT_EQ(parse_hostfile("# none\n").status().code(), Code::invalid_argument);
}

TEST(RunHosts, places_are_taken_host_by_host) {
  const std::vector<Host> hosts = {{"a", 4}, {"b", 4}, {"c", 4}};
  EXPECT_EQ(text(take_places(hosts, 6)), "a*4 b*2 ");
  EXPECT_EQ(text(take_places(hosts, 12)), "a*4 b*4 c*4 ");
  EXPECT_THAT(text(take_places(hosts, 13)), HasSubstr("12 places"));
}

TEST(RunOrder, arrives_as_it_was_given) {
  NodeOrder order;
  order.options.program = {"prog", "a b", "'\"$x\n", "ü"};
  order.options.ranks = 3;
  order.options.nodes = 2;
  order.options.node_rank = 1;
  order.options.rendezvous = "a:29400";
  order.options.grace = std::chrono::milliseconds(300);
  order.secret = std::string("\x00\xff\x7f", 3);
  order.folder = "/some where";
  order.environment = {"A=b=c", "EMPTY="};
  order.mark = "abc";
  const auto line = to_line(order);
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->find('\n'), std::string::npos);
  const auto read = read_order(*line);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->options.program, order.options.program);
  EXPECT_EQ(read->options.ranks, 3);
  EXPECT_EQ(read->options.node_rank, 1);
  EXPECT_EQ(read->options.rendezvous, "a:29400");
  EXPECT_EQ(read->options.grace, order.options.grace);
  EXPECT_EQ(read->secret.text(), order.secret.text());
  EXPECT_EQ(read->folder, order.folder);
  EXPECT_EQ(read->environment, order.environment);
  order.options.program = {"\xff"};
  EXPECT_EQ(to_line(order).status().code(), Code::invalid_argument);
  EXPECT_EQ(read_order("{}").status().code(), Code::mismatch);
}

TEST(RunOrder, lines_of_a_node_are_told_from_those_of_ranks) {
  EXPECT_EQ(read_node_line("abc", "tutti-abc ready 77\n")->rest, "77\n");
  EXPECT_EQ(read_node_line("abc", ended_line("abc", "{}"))->word, "ended");
  EXPECT_FALSE(read_node_line("abc", "tutti-abd ready 77\n"));
  EXPECT_EQ(read_node_line("abc", taken_line("abc"))->word, "taken");
  EXPECT_FALSE(read_node_line("abc", "hello\n"));
}

}  // namespace
}  // namespace tutti::tool
