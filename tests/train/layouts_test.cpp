// Checkpoints of models that are cut over ranks: what any layout has saved, any other loads.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "support/worlds.hpp"
#include "train/cut_model.hpp"
#include "train/folder.hpp"
#include "train/toy_run.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

constexpr int kSavedSteps = 2;  // steps

struct Setting {
  CutLayout layout;
  int mode = 0;  // of five_modes
};
std::string to_string(const Setting& setting) {
  return fmt::format("{}, mode {}", to_string(setting.layout), setting.mode);
}

CutOptions options_of(const Setting& setting, Dtype dtype, int version = 0) {
  CutOptions options{.layout = setting.layout, .dtype = dtype};
  options.train = five_modes()[static_cast<std::size_t>(setting.mode)].options;
  options.train.bucket_bytes = 600;
  options.version = version;
  return options;
}

// "tensor kind element": bits. Ranks that keep the same keep the same bits.
using Elements = std::map<std::string, std::string>;
Elements elements_of(const std::string& folder, int ranks) {
  Elements elements;
  for (int rank = 0; rank < ranks; ++rank) {
    std::istringstream text(bytes_of(folder + "/rank" + std::to_string(rank)));
    for (std::string line; std::getline(text, line);) {
      const std::size_t blank = line.rfind(' ');
      const auto [at, fresh] = elements.emplace(line.substr(0, blank), line.substr(blank + 1));
      EXPECT_TRUE(fresh || at->second == line.substr(blank + 1)) << line;
    }
  }
  return elements;
}

void note(CutModel& model, Context& here, const std::string& folder) {
  overwrite(folder + "/rank" + std::to_string(here.rank), model.state());
  const auto hash = model.layer().weight_hash();
  ASSERT_TRUE(hash.ok()) << hash.status().to_string();
  if (here.rank == 0) overwrite(folder + "/hash", *hash);
}

void save_layout(const Setting& setting, Dtype dtype, const Folder& folder, bool beside) {
  std::filesystem::create_directory(folder / "saved");
  run(World{.kind = WorldKind::threads, .size = setting.layout.ranks()}, [&](Context& here) {
    CutModel model(here.group, options_of(setting, dtype));
    ASSERT_TRUE(model.status().ok()) << model.status().to_string();
    for (int step = 0; step < kSavedSteps; ++step) ASSERT_TRUE(model.step(step).ok());
    train::CheckpointInfo info;
    info.iteration = kSavedSteps;
    info.extra = {{"seed", "3"}};
    if (!beside) {
      const Status status = train::save_checkpoint(model.layer(), folder / "checkpoints", info);
      ASSERT_TRUE(status.ok()) << status.to_string();
      return note(model, here, folder / "saved");
    }
    auto writer = train::CheckpointWriter::create(*here.group);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    Status status = (*writer)->start(model.layer(), folder / "checkpoints", info);
    ASSERT_TRUE(status.ok()) << status.to_string();
    note(model, here, folder / "saved");
    ASSERT_TRUE(model.step(kSavedSteps).ok()) << "beside it";
    status = (*writer)->wait();
    ASSERT_TRUE(status.ok()) << status.to_string();
  });
}

void load_and_compare(const Setting& saved, const Setting& loaded, Dtype dtype,
                      const Folder& folder) {
  std::filesystem::remove_all(folder / "loaded");
  std::filesystem::create_directory(folder / "loaded");
  run(World{.kind = WorldKind::threads, .size = loaded.layout.ranks()}, [&](Context& here) {
    CutModel model(here.group, options_of(loaded, dtype, 9));
    ASSERT_TRUE(model.status().ok()) << model.status().to_string();
    const auto info = train::load_checkpoint(model.layer(), folder / "checkpoints");
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(info->ranks, saved.layout.ranks());
    EXPECT_EQ(info->extra.at("seed"), "3");
    note(model, here, folder / "loaded");
    const Status alike = model.layer().check_weights();
    EXPECT_TRUE(alike.ok()) << alike.to_string();
    ASSERT_TRUE(model.step(kSavedSteps).ok());
  });
  EXPECT_EQ(bytes_of(folder / "loaded/hash"), bytes_of(folder / "saved/hash"));
  const Elements before = elements_of(folder / "saved", saved.layout.ranks());
  EXPECT_GT(before.size(), 1000u);
  EXPECT_EQ(before, elements_of(folder / "loaded", loaded.layout.ranks()));
}

Setting random_setting(std::mt19937& random) {
  Setting setting;
  do {
    setting.layout = {1 + static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 4),
                      1 + static_cast<int>(random() % 4)};
  } while (setting.layout.ranks() > 8);
  setting.mode = static_cast<int>(random() % 5);
  return setting;
}

TEST(Layouts, what_any_has_saved_any_other_loads_to_the_bit) {
  std::mt19937 random(11);
  for (int trial = 0; trial < (reduced() ? 2 : 8); ++trial) {
    const Dtype dtype = trial % 3 == 0 ? Dtype::bf16 : Dtype::f32;
    const Setting saved = random_setting(random);
    Folder folder;
    save_layout(saved, dtype, folder, trial % 2 == 1);
    for (int other = 0; other < 2; ++other) {
      const Setting loaded = random_setting(random);
      SCOPED_TRACE(to_string(saved) + ", loaded by " + to_string(loaded));
      load_and_compare(saved, loaded, dtype, folder);
    }
  }
}

// One that was saved whole is loaded by a cut model, and the other way round.
TEST(Layouts, that_cut_nothing_save_whole_tensors_and_those_that_cut_save_boxes) {
  for (const auto& [layout, files] :
       {std::pair(CutLayout{2, 1, 1}, 2), std::pair(CutLayout{1, 1, 2}, 2),
        std::pair(CutLayout{1, 2, 1}, 0)}) {
    Folder folder;
    save_layout({layout, 4}, Dtype::f32, folder, false);
    int found = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder / "checkpoints/iter_0000002"))
      found += entry.path().filename().string().starts_with("model-");
    EXPECT_EQ(found, files) << to_string(layout);
    for (const CutLayout other : {CutLayout{1, 2, 2}, CutLayout{2, 1, 1}})
      load_and_compare({layout, 4}, {other, 2}, Dtype::f32, folder);
  }
}

// Buffers of each stage: one rank writes each, all that have it load it.
TEST(Layouts, module_buffers_of_every_stage_are_saved_and_loaded) {
  for (const int tp : {1, 2}) {
    Folder folder;
    const auto with_buffer = [&](Context& here, const CutLayout& layout, float value, auto body) {
      CutModel model(here.group, options_of({layout, 4}, Dtype::f32));
      ASSERT_TRUE(model.status().ok()) << model.status().to_string();
      const int stage = here.rank / layout.tp / layout.dp;
      std::vector<std::vector<float>> means(layout.pp == 1 ? 2 : 1, std::vector<float>(3, value));
      if (value > 0)
        for (std::size_t i = 0; i < means.size(); ++i)
          means[i][2] += static_cast<float>(stage) + static_cast<float>(i);
      model.layer().set_buffers([&] {
        std::vector<train::ModuleBuffer> list;
        for (std::size_t i = 0; i < means.size(); ++i)
          list.push_back({fmt::format("stage{}.mean", stage + static_cast<int>(i)),
                          {3},
                          Buffer::of(means[i])});
        return list;
      });
      body(model, means);
    };
    run(World{.kind = WorldKind::threads, .size = 2 * tp * 2}, [&](Context& here) {
      with_buffer(here, {2, tp, 2}, 5, [&](CutModel& model, auto&) {
        const Status status = train::save_checkpoint(model.layer(), folder.path(), {});
        ASSERT_TRUE(status.ok()) << status.to_string();
      });
    });
    run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
      with_buffer(here, {1, 2, 1}, 0, [&](CutModel& model, auto& means) {
        const auto info = train::load_checkpoint(model.layer(), folder.path());
        ASSERT_TRUE(info.ok()) << info.status().to_string();
        EXPECT_THAT(means[0], testing::ElementsAre(5, 5, 5));
        EXPECT_THAT(means[1], testing::ElementsAre(5, 5, 6));
      });
    });
  }
}

TEST(Layouts, a_tensor_that_no_rank_has_here_is_refused_by_name_on_all) {
  Folder folder;
  save_layout({{1, 2, 2}, 4}, Dtype::f32, folder, false);
  run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    CutOptions options = options_of({{1, 1, 2}, 4}, Dtype::f32);
    options.layers = 3;
    CutModel model(here.group, options);
    ASSERT_TRUE(model.status().ok()) << model.status().to_string();
    const auto info = train::load_checkpoint(model.layer(), folder / "checkpoints");
    EXPECT_EQ(info.status().code(), Code::mismatch) << info.status().to_string();
    EXPECT_THAT(info.status().message(), HasSubstr("'3.bias' is in it and not here"));
  });
}

TEST(Layouts, damage_of_boxes_is_refused_with_the_files_name) {
  Folder folder;
  save_layout({{1, 2, 2}, 4}, Dtype::f32, folder, false);
  const std::string file = folder / "checkpoints/iter_0000002/state_00003_of_00004.safetensors";
  flip_bit(file);
  run(World{.kind = WorldKind::threads, .size = 3}, [&](Context& here) {
    CutModel model(here.group, options_of({{1, 1, 3}, 4}, Dtype::f32, 9));
    const std::string before = *model.layer().weight_hash();
    const auto info = train::load_checkpoint(model.layer(), folder / "checkpoints");
    EXPECT_EQ(info.status().code(), Code::corrupt) << info.status().to_string();
    EXPECT_THAT(info.status().message(), HasSubstr("state_00003_of_00004"));
    EXPECT_EQ(*model.layer().weight_hash(), before);
  });
}

}  // namespace
}  // namespace tutti::test
