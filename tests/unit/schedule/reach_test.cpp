// Which host form runs: by what carries the chunks, and by what ranks find of each other's memory.
#include <gtest/gtest.h>

#include "schedule/host/forms.hpp"

namespace tutti::schedule {
namespace {

HostForms forms_of(Collective collective, Algorithm algorithm) {
  const auto forms = host_forms(algorithm, {.collective = collective, .size = 4});
  EXPECT_TRUE(forms.ok() && *forms);
  return **forms;
}

struct ReachCase {
  Carrier carrier;
  bool may_read, may_hope;
  FoundMemory found;
  Reach expected;
};

void expect_reaches(const HostForms& forms, const std::vector<ReachCase>& cases) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const ReachCase& one = cases[i];
    HostWay way;
    way.carrier = one.carrier;
    way.may_read = one.may_read;
    way.may_hope = one.may_hope;
    EXPECT_EQ(reach_of(forms, way, one.found), one.expected) << "case " << i;
  }
}

constexpr FoundMemory kNothing{};
constexpr FoundMemory kBoth{.source_mapped = true, .target_mapped = true};
constexpr FoundMemory kSource{.source_mapped = true};
constexpr FoundMemory kTarget{.target_mapped = true};
constexpr FoundMemory kReadable{.source_readable = true};
constexpr FoundMemory kAliased{
    .source_mapped = true, .target_mapped = true, .source_readable = true, .unaliased = false};

TEST(Reaches, of_an_all_gather_the_source_alone_is_enough) {
  const HostForms forms = forms_of(Collective::all_gather, Algorithm::direct);
  ASSERT_TRUE(forms.readable && forms.mapped_source);
  using enum Carrier;
  expect_reaches(forms, {{pieces, false, false, kNothing, Reach::window},
                         {pieces, false, false, kBoth, Reach::mapped},
                         {pieces, false, false, kSource, Reach::mapped_source},
                         {pieces, false, false, kTarget, Reach::window},
                         // Allowed, but it does not pay.
                         {pieces, false, false, kReadable, Reach::window},
                         {pieces, true, false, kReadable, Reach::readable},
                         // Mapped memory is nearer than the kernel.
                         {pieces, true, false, kBoth, Reach::mapped},
                         {pieces, true, false, kAliased, Reach::window}});
}

TEST(Reaches, short_messages_stay_in_lines_and_windows_unless_ranks_hope) {
  const HostForms forms = forms_of(Collective::all_gather, Algorithm::direct);
  using enum Carrier;
  expect_reaches(forms, {{line, false, false, kBoth, Reach::window},
                         {window, false, false, kBoth, Reach::window},
                         {window, false, true, kBoth, Reach::mapped},
                         {window, false, true, kNothing, Reach::window}});
}

TEST(Reaches, a_fold_that_is_put_elsewhere_needs_the_target_too) {
  const HostForms forms = forms_of(Collective::all_reduce, Algorithm::direct);
  ASSERT_FALSE(forms.readable || forms.mapped_source);
  using enum Carrier;
  expect_reaches(forms, {{pieces, false, false, kBoth, Reach::mapped},
                         {pieces, false, false, kSource, Reach::window}});
}

TEST(Reaches, the_kernel_reads_only_where_it_may_and_chunks_are_long_enough) {
  const HostForms forms = forms_of(Collective::all_gather, Algorithm::direct);
  const auto way = [&](std::size_t bytes, bool readable) {
    const auto sizes = sizes_of(forms.window, [&](std::uint64_t) { return bytes; });
    return way_of(forms, sizes, {.crowded = false, .readable = readable});
  };
  EXPECT_FALSE(way(64, true).may_read);
  EXPECT_TRUE(way(1 << 20, true).may_read);
  EXPECT_FALSE(way(1 << 20, false).may_read);
  EXPECT_EQ(way(64, true).carrier, Carrier::line);
  EXPECT_EQ(way(4096, false).carrier, Carrier::window);
  EXPECT_EQ(way(1 << 20, true).carrier, Carrier::pieces);
}

}  // namespace
}  // namespace tutti::schedule
