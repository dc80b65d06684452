// What hierarchical schedules promise of the links between hosts: how many bytes leave and reach a host of k
// ranks, and in how many messages, for every H x k up to 64 ranks.
#include <gtest/gtest.h>

#include <algorithm>

#include "worlds.hpp"

namespace tutti::schedule {
namespace {

// Over the links of one host, in parts of which `whole` are the array.
struct Traffic {
  std::uint64_t out = 0, in = 0, messages_out = 0;
};
struct Measured {
  std::vector<Traffic> hosts;
  std::uint64_t whole = 1;
};

std::vector<int> equal_hosts(int hosts, int each) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * each; ++rank) host_of.push_back(rank / each);
  return host_of;
}

Measured traffic_of(Collective collective, const std::vector<int>& host_of, int root = 0,
                    Algorithm algorithm = Algorithm::hierarchical) {
  Request request{.collective = collective, .size = static_cast<int>(host_of.size()), .root = root};
  request.host_of = host_of;
  const auto programs = build_all(algorithm, request);
  EXPECT_TRUE(programs.ok()) << programs.status().to_string();
  Measured found;
  if (!programs.ok()) return found;
  found.whole = part_count(programs->front());
  found.hosts.resize(
      static_cast<std::size_t>(1 + *std::max_element(host_of.begin(), host_of.end())));
  for (const Program& program : *programs)
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::send) continue;
      const auto from = static_cast<std::size_t>(host_of[static_cast<std::size_t>(program.rank)]);
      const auto to = static_cast<std::size_t>(host_of[static_cast<std::size_t>(op.peer)]);
      if (from == to) continue;
      found.hosts[from].out += op.src.count;
      found.hosts[from].messages_out += 1;
      found.hosts[to].in += op.src.count;
    }
  return found;
}

template <class Visit>
void each_shape(Visit visit) {
  for (int hosts = 2; hosts <= most_ranks(); ++hosts)
    for (int each = 1; hosts * each <= most_ranks(); ++each) {
      SCOPED_TRACE(std::to_string(hosts) + " hosts of " + std::to_string(each));
      visit(hosts, each);
      if (testing::Test::HasFailure()) return;
    }
}

// Each host sends, and receives, `share`/H of the array.
void expect_share(const Measured& found, int hosts, int share) {
  const auto h = static_cast<std::uint64_t>(hosts);
  for (const Traffic& host : found.hosts) {
    EXPECT_EQ(host.out * h, static_cast<std::uint64_t>(share) * found.whole);
    EXPECT_EQ(host.in * h, static_cast<std::uint64_t>(share) * found.whole);
  }
}

TEST(Hierarchy, all_reduce_crosses_a_host_link_with_2_times_h_minus_1_over_h) {
  each_shape([](int hosts, int each) {
    expect_share(traffic_of(Collective::all_reduce, equal_hosts(hosts, each)), hosts,
                 2 * (hosts - 1));
  });
}

TEST(Hierarchy, reduce_scatter_and_all_gather_cross_a_host_link_with_h_minus_1_over_h) {
  each_shape([](int hosts, int each) {
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather})
      expect_share(traffic_of(collective, equal_hosts(hosts, each)), hosts, hosts - 1);
  });
}

TEST(Hierarchy, broadcast_and_reduce_cross_every_host_link_once) {
  each_shape([](int hosts, int each) {
    for (const int root : {0, hosts * each / 2, hosts * each - 1})
      for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
        const Measured found = traffic_of(collective, equal_hosts(hosts, each), root);
        std::uint64_t crossings = 0;
        for (const Traffic& host : found.hosts) {
          EXPECT_LE(host.out, found.whole);
          EXPECT_LE(host.in, found.whole);
          crossings += host.out;
        }
        EXPECT_EQ(crossings, found.whole * static_cast<std::uint64_t>(hosts - 1));
      }
  });
}

TEST(Hierarchy, all_to_all_needs_one_message_for_each_pair_of_hosts_and_no_more_bytes) {
  each_shape([](int hosts, int each) {
    const auto host_of = equal_hosts(hosts, each);
    const Measured bundles = traffic_of(Collective::all_to_all, host_of);
    const Measured pairs = traffic_of(Collective::all_to_all, host_of, 0, Algorithm::pairwise);
    for (std::size_t h = 0; h < bundles.hosts.size(); ++h) {
      EXPECT_EQ(bundles.hosts[h].out, pairs.hosts[h].out);
      EXPECT_EQ(bundles.hosts[h].in, pairs.hosts[h].in);
      EXPECT_EQ(bundles.hosts[h].messages_out, static_cast<std::uint64_t>(hosts - 1));
      EXPECT_EQ(pairs.hosts[h].messages_out,
                bundles.hosts[h].messages_out * static_cast<std::uint64_t>(each * each));
    }
  });
}

// Hosts of different sizes, dealt out in any order: nothing crosses twice either.
TEST(Hierarchy, unequal_hosts_send_no_more_than_equal_ones) {
  for (const auto& host_of : host_layouts(21)) {
    const int hosts = 1 + *std::max_element(host_of.begin(), host_of.end());
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::broadcast})
      for (const Traffic& host : traffic_of(collective, host_of).hosts) {
        const Measured found = traffic_of(collective, host_of);
        const auto factor = collective == Collective::all_reduce ? 2u : 1u;
        EXPECT_LE(host.out, factor * found.whole) << to_string(collective) << " " << hosts;
        EXPECT_LE(host.in, factor * found.whole) << to_string(collective) << " " << hosts;
      }
  }
}

// Messages that leave a host when ranks are dealt out to the hosts in turn.
std::uint64_t crossings(Algorithm algorithm, Collective collective, int hosts, int each,
                        bool along) {
  std::vector<int> host_of, walk;
  for (int rank = 0; rank < hosts * each; ++rank) host_of.push_back(rank % hosts);
  for (int host = 0; host < hosts; ++host)
    for (int i = 0; i < each; ++i) walk.push_back(i * hosts + host);
  Request request{.collective = collective, .size = hosts * each};
  request.host_of = host_of;
  if (along) request.walk = walk;
  const auto programs = build_all(algorithm, request);
  EXPECT_TRUE(programs.ok()) << programs.status().to_string();
  std::uint64_t messages = 0;
  for (const Program& program : *programs)
    for (const Op& op : program.ops)
      messages += op.kind == OpKind::send && host_of[static_cast<std::size_t>(program.rank)] !=
                                                 host_of[static_cast<std::size_t>(op.peer)];
  return messages;
}

TEST(Walk, a_ring_leaves_each_host_once_a_round) {
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    EXPECT_EQ(crossings(Algorithm::ring, collective, 4, 8, true), 4u * 31);
    EXPECT_EQ(crossings(Algorithm::ring, collective, 4, 8, false), 32u * 31);
  }
}

TEST(Walk, trees_reach_each_host_once) {
  EXPECT_EQ(crossings(Algorithm::binomial_tree, Collective::broadcast, 4, 8, true), 3u);
  EXPECT_EQ(crossings(Algorithm::binomial_tree, Collective::broadcast, 4, 8, false), 24u);
  EXPECT_LT(crossings(Algorithm::double_binary_tree, Collective::all_reduce, 4, 8, true),
            crossings(Algorithm::double_binary_tree, Collective::all_reduce, 4, 8, false) / 2);
}

TEST(Walk, orders_of_reduction_are_kept_by_number) {
  Request request{.collective = Collective::all_reduce, .size = 8};
  const std::vector<int> walk = odd_walk(8);
  request.order = ReductionOrder::tree;
  const auto plain = build_all(Algorithm::binomial_tree, request);
  request.walk = walk;
  const auto along = build_all(Algorithm::binomial_tree, request);
  ASSERT_TRUE(plain.ok() && along.ok());
  EXPECT_EQ(*plain, *along);
}

}  // namespace
}  // namespace tutti::schedule
