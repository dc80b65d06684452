// The parts of a checkpoint that need no group: safe files, the manifest, ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/safe_file.hpp"
#include "checkpoint/state_ranges.hpp"
#include "checkpoint/stored_pieces.hpp"

namespace tutti::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class InFolder : public testing::Test {
 protected:
  InFolder() : folder_(testing::TempDir() + "/tutti_parts_XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~InFolder() override { std::filesystem::remove_all(folder_); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string folder_;
};

// ---- files

TEST_F(InFolder, a_safe_file_has_its_name_only_when_it_is_whole) {
  {
    auto file = SafeFile::create(folder_ + "/x");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("ab", 2).ok());
    EXPECT_THAT(names(), IsEmpty()) << "killed now it leaves nothing";
  }
  EXPECT_THAT(names(), IsEmpty()) << "not committed: nothing is left";
  auto file = SafeFile::create(folder_ + "/x");
  ASSERT_TRUE(file->write("ab", 2).ok());
  ASSERT_TRUE(file->write("c", 1).ok());
  EXPECT_EQ(file->bytes(), 3u);
  EXPECT_EQ(file->sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_THAT(names(), ElementsAre("x"));
  EXPECT_EQ(*read_bounded(folder_ + "/x", 10), "abc");
  EXPECT_EQ(*sha256_of_file(folder_ + "/x"), sha256_of("abc"));
}

TEST_F(InFolder, a_safe_file_replaces_one_of_its_name_and_what_a_killed_run_left) {
  ASSERT_TRUE(write_text(folder_ + "/x", "old").ok());
  std::ofstream(folder_ + "/.tmp_x") << "torn";
  ASSERT_TRUE(write_text(folder_ + "/x", "new").ok());
  EXPECT_THAT(names(), ElementsAre("x"));
  EXPECT_EQ(*read_bounded(folder_ + "/x", 10), "new");
}

TEST_F(InFolder, a_file_that_cannot_be_made_or_read_is_named) {
  EXPECT_THAT(SafeFile::create(folder_ + "/no/x").status().message(), HasSubstr(folder_ + "/no/x"));
  EXPECT_EQ(read_bounded(folder_ + "/x", 10).status().code(), Code::io);
  ASSERT_TRUE(write_text(folder_ + "/x", "eleven bytes").ok());
  EXPECT_EQ(read_bounded(folder_ + "/x", 10).status().code(), Code::corrupt);
}

TEST_F(InFolder, two_runs_do_not_save_into_one_folder_at_once) {
  auto first = Publication::begin(folder_, 1);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const auto second = Publication::begin(folder_, 2);
  EXPECT_EQ(second.status().code(), Code::io);
  EXPECT_THAT(second.status().message(), HasSubstr("another run"));
}

TEST(FolderName, has_at_least_seven_digits_and_leads_back) {
  EXPECT_EQ(folder_name(20), "iter_0000020");
  EXPECT_EQ(folder_name(123456789), "iter_123456789");
  EXPECT_EQ(iteration_of("iter_0000020"), 20);
  EXPECT_EQ(iteration_of("iter_123456789"), 123456789);
  for (const char* other : {"iter_20", "iter_", "iter_-000001", "iter_0000020x", "iter_00000020",
                            "latest", ".tmp_iter_0000020", "../iter_0000020"})
    EXPECT_FALSE(iteration_of(other)) << other;
}

// ---- the manifest

Manifest example() {
  Manifest manifest;
  manifest.iteration = 20;
  manifest.ranks = 2;
  manifest.files = {{"model.safetensors", 10, std::string(64, 'a')},
                    {"state_00000_of_00002.safetensors", 11, std::string(64, 'b')},
                    {"state_00001_of_00002.safetensors", 12, std::string(64, 'c')}};
  manifest.step_counts = {{"a \"b\"", 20}, {"c", 0}};
  manifest.order = {"c", "a \"b\""};
  manifest.extra = {{"seed", "1"}, {"text", "with\nlines"}};
  manifest.tensors = {{"a \"b\"", Dtype::f32, {3, 0, 4}, {"tied", "odd \"name\""}, false},
                      {"c", Dtype::bf16, {}, {}, false},
                      {"norm.running_mean", Dtype::i64, {7}, {}, true}};
  return manifest;
}

// The same text with something replaced, and sealed again.
std::string with(std::string text, const std::string& from, const std::string& to) {
  text.erase(text.rfind("  \"sha256\""));
  text.replace(text.find(from), from.size(), to);
  return text + "  \"sha256\": \"" + sha256_of(text) + "\"\n}\n";
}

TEST(ManifestText, reads_back_as_it_was_written) {
  const auto manifest = parse_manifest(to_json(example()));
  ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
  EXPECT_EQ(*manifest, example());
  Manifest bare = example();
  bare.step_counts.clear();
  bare.order.clear();
  bare.extra.clear();
  bare.tensors.clear();
  EXPECT_EQ(*parse_manifest(to_json(bare)), bare);
  // The model in the states, or in several files and what lists them.
  bare.files.erase(bare.files.begin());
  EXPECT_EQ(*parse_manifest(to_json(bare)), bare);
  for (const char* name : {"model.safetensors.index.json", "model-00002-of-00002.safetensors",
                           "model-00001-of-00002.safetensors"})
    bare.files.insert(bare.files.begin(), {name, 13, std::string(64, 'd')});
  EXPECT_EQ(*parse_manifest(to_json(bare)), bare);
  EXPECT_EQ(bare.model_files(), 2);
}

// What the builds before wrote: no tensors, and the second version buffers instead.
TEST(ManifestText, of_older_versions_is_read) {
  Manifest older = example();
  older.tensors.clear();
  const std::string none = "  \"tensors\": [\n  ],\n";
  for (const int version : {1, 2}) {
    const std::string buffers = version == 1 ? "" : "  \"buffers\": [\n    \"mean\"\n  ],\n";
    const auto manifest = parse_manifest(
        with(with(to_json(older), "\"version\": 3", "\"version\": " + std::to_string(version)),
             none, buffers));
    ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
    older.version = version;
    older.buffers.assign(static_cast<std::size_t>(version - 1), "mean");
    EXPECT_EQ(*manifest, older);
  }
}

TEST(ManifestText, of_another_version_is_refused_with_its_number) {
  for (const std::string other : {"0", "4", "-1", "2.5", "\"3\""}) {
    const auto manifest =
        parse_manifest(with(to_json(example()), "\"version\": 3", "\"version\": " + other));
    EXPECT_EQ(manifest.status().code(), Code::corrupt);
    EXPECT_THAT(manifest.status().message(), HasSubstr("this build reads 1 to 3"));
  }
  for (const char* damage : {"\"others\"", "\"tensors\": 3, \"x\""})
    EXPECT_THAT(parse_manifest(with(to_json(example()), "\"tensors\"", damage)).status().message(),
                HasSubstr("'tensors'"));
  for (const char* damage : {"[-1]", "[7.5]", "7", "[9223372036854775807, 2]"})
    EXPECT_THAT(parse_manifest(with(to_json(example()), "[7]", damage)).status().message(),
                HasSubstr("'tensors'"))
        << damage;
}

TEST(ManifestText, is_refused_when_any_bit_has_flipped_or_any_end_is_missing) {
  const std::string good = to_json(example());
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    EXPECT_EQ(parse_manifest(bad).status().code(), Code::corrupt) << "byte " << i;
    EXPECT_EQ(parse_manifest(good.substr(0, i)).status().code(), Code::corrupt) << i << " bytes";
  }
}

TEST(ManifestText, lists_exactly_the_files_of_its_ranks) {
  Manifest manifest = example();
  manifest.files.pop_back();
  EXPECT_THAT(parse_manifest(to_json(manifest)).status().message(),
              HasSubstr("state_00001_of_00002"));
  manifest = example();
  manifest.files.push_back({"/etc/passwd", 1, std::string(64, 'd')});
  EXPECT_THAT(parse_manifest(to_json(manifest)).status().message(), HasSubstr("/etc/passwd"));
  manifest = example();
  manifest.files[1].name = "../state";
  EXPECT_EQ(parse_manifest(to_json(manifest)).status().code(), Code::corrupt);
  for (const char* name : {"model-00001-of-00002.safetensors", "model.safetensors/../x"}) {
    manifest = example();
    manifest.files[0].name = name;
    EXPECT_EQ(parse_manifest(to_json(manifest)).status().code(), Code::corrupt) << name;
  }
}

// ---- ranges

TEST(PieceNameText, leads_back_also_with_odd_letters_and_boxes) {
  const PieceName whole{"a|b:c|", "exp_avg", {}, 10, 20};
  EXPECT_EQ(to_text(whole), "a|b:c||exp_avg|10:20");
  EXPECT_EQ(parse_piece_name(to_text(whole)), whole);
  const PieceName box{"a|[1]|", "weight", {{3, 120}, {0, 60}, {3, 60}}, 90, 90};
  EXPECT_EQ(to_text(box), "a|[1]||weight|[3,120][0,60][3,60]|90:90");
  EXPECT_EQ(parse_piece_name(to_text(box)), box);
  for (const char* bad : {"",
                          "a",
                          "a|b",
                          "a|b|",
                          "a|b|1",
                          "a|b|1:",
                          "a|b|:1",
                          "a|b|1:-1",
                          "a|b|01:1",
                          "a|b|1:2x",
                          "|b|1:2",
                          "a||1:2",
                          "a|b|18446744073709551615:2",
                          "a|b|99999999999999999999:2",
                          "a|b|[3][0][4]|0:1",
                          "a|b|[3][1][3]|0:1",
                          "a|b|[3][0][2]|1:2",
                          "a|b|[3][0]|0:1",
                          "a|b|[3,3][0][2]|0:1",
                          "a|b|[3][0][2]x|0:1",
                          "a|b|[3,][0,][2,]|0:1",
                          "a|b|[][][]|0:1",
                          "a|b|[0][0][0]|0:0",
                          "a|[3][0][2]|0:1",
                          "a|b|[9223372036854775807,9][0,0][1,1]|0:1"})
    EXPECT_FALSE(parse_piece_name(bad)) << bad;
}

TEST(Ranges, as_text_read_back) {
  const std::vector<StateRange> ranges{{0, "exp_avg", 0, 10}, {3, "main", 5, 7}};
  EXPECT_EQ(*parse_ranges(to_text(ranges)), ranges);
  EXPECT_TRUE(parse_ranges("")->empty());
  EXPECT_FALSE(parse_ranges("1 x").ok());
  EXPECT_FALSE(parse_ranges("1 x y 3\n").ok());
}

TEST(Sharing, gives_each_element_to_exactly_one_rank_that_keeps_it) {
  const std::vector<std::size_t> counts{10, 7};
  // Rank 0 keeps all of parameter 0, ranks 1 and 2 half each; parameter 1 is kept by all three.
  const std::vector<std::vector<StateRange>> kept{{{0, "m", 0, 10}, {1, "m", 0, 7}},
                                                  {{0, "m", 0, 5}, {1, "m", 0, 7}},
                                                  {{0, "m", 5, 5}, {1, "m", 0, 7}}};
  const auto shares = share_out(kept, counts);
  ASSERT_TRUE(shares.ok()) << shares.status().to_string();
  for (std::size_t parameter = 0; parameter < counts.size(); ++parameter)
    for (std::size_t element = 0; element < counts[parameter]; ++element) {
      int stored = 0;
      for (std::size_t rank = 0; rank < 3; ++rank)
        for (const StateRange& share : (*shares)[rank]) {
          if (share.parameter != parameter || element < share.first || element >= share.end())
            continue;
          ++stored;
          const bool keeps =
              std::any_of(kept[rank].begin(), kept[rank].end(), [&](const StateRange& k) {
                return k.parameter == parameter && k.first <= share.first && share.end() <= k.end();
              });
          EXPECT_TRUE(keeps) << "rank " << rank;
        }
      EXPECT_EQ(stored, 1) << parameter << ", " << element;
    }
  EXPECT_EQ((*shares)[0].size(), 3u) << "shared evenly: a part of each half, and a third";
}

TEST(Sharing, notices_elements_that_nobody_keeps) {
  const std::vector<std::size_t> counts{10};
  const std::vector<std::vector<StateRange>> hole{{{0, "m", 0, 4}}, {{0, "m", 5, 5}}};
  EXPECT_THAT(share_out(hole, counts).status().message(), HasSubstr("elements 4 to 5"));
  const std::vector<std::vector<StateRange>> beyond{{{0, "m", 0, 11}}};
  EXPECT_EQ(share_out(beyond, counts).status().code(), Code::internal);
  const std::vector<std::vector<StateRange>> nothing{{}, {}};
  EXPECT_TRUE(share_out(nothing, counts).ok()) << "a frozen parameter has no state";
}

// A tensor that is stored in boxes of one cut and wanted in those of another: what is copied piece by piece
// is what the tensor has there.
TEST(StoredPieces, are_found_by_overlap_however_either_side_is_cut) {
  constexpr std::int64_t kRows = 6, kColumns = 10;
  std::vector<std::size_t> tensor(kRows * kColumns);
  std::iota(tensor.begin(), tensor.end(), std::size_t{0});
  const auto values_of = [&](const train::TensorBox& box, std::size_t first, std::size_t count) {
    std::vector<std::size_t> values;
    for (const auto& run : train::runs_of(box, first, count))
      for (std::size_t i = 0; i < run.count; ++i) values.push_back(run.tensor + i);
    return values;
  };
  // By columns, 4 and 6 of them, each in three ranges; stored and wanted in other shapes.
  const std::vector<train::TensorBox> by_columns{{{kRows, kColumns}, {0, 0}, {kRows, 4}},
                                                 {{kRows, kColumns}, {0, 4}, {kRows, 6}}};
  const std::vector<train::TensorBox> by_thirds{{{3, 2 * kColumns}, {0, 0}, {1, 2 * kColumns}},
                                                {{3, 2 * kColumns}, {1, 0}, {2, 7}},
                                                {{3, 2 * kColumns}, {1, 7}, {2, 13}},
                                                {{60}, {0}, {60}}};
  StoredPieces stored;
  std::vector<std::vector<std::size_t>> contents;
  for (const train::TensorBox& box : by_columns) {
    const std::size_t count = train::count_of(box.extent);
    for (const auto& [first, end] :
         {std::pair(count / 2, count), std::pair(std::size_t{0}, count / 3),
          std::pair(count / 3, count / 2)}) {
      contents.push_back(values_of(box, first, end - first));
      stored.add({box, first, end - first, contents.size(), 0});
    }
  }
  for (const train::TensorBox& box : by_thirds)
    for (const std::size_t first : {0, 1, 5}) {
      const std::size_t count = train::count_of(box.extent) - first - 2;
      const auto overlaps = stored.overlaps(box, first, count);
      EXPECT_EQ(coverage_of(overlaps, count), Coverage::complete);
      EXPECT_EQ(coverage_of(overlaps, count + 1), Coverage::missing);
      std::vector<std::size_t> found(count);
      for (const PieceOverlap& overlap : overlaps)
        std::copy_n(contents[overlap.piece].begin() + static_cast<std::ptrdiff_t>(overlap.from),
                    overlap.count, found.begin() + static_cast<std::ptrdiff_t>(overlap.into));
      EXPECT_EQ(found, values_of(box, first, count));
    }
  stored.add({{{60}, {0}, {60}}, 30, 1, 7, 0});
  EXPECT_EQ(coverage_of(stored.overlaps({{60}, {0}, {60}}, 0, 60), 60), Coverage::twice);
  EXPECT_EQ(coverage_of(stored.overlaps({{60}, {0}, {60}}, 0, 30), 30), Coverage::complete);
}

TEST(StoredPieces, with_a_hole_are_noticed_also_where_another_element_is_there_twice) {
  StoredPieces stored;
  const train::TensorBox whole{{10}, {0}, {10}};
  stored.add({whole, 0, 6, 0, 0});
  stored.add({whole, 5, 4, 0, 0});
  EXPECT_EQ(coverage_of(stored.overlaps(whole, 0, 10), 10), Coverage::twice);
  EXPECT_EQ(coverage_of(stored.overlaps(whole, 6, 4), 4), Coverage::missing);
  EXPECT_EQ(coverage_of(stored.overlaps(whole, 6, 3), 3), Coverage::complete);
}

}  // namespace
}  // namespace tutti::checkpoint
