// Checkpoints of the real training layer: a run that was saved and loaded goes on as if nothing had
// been, on as many ranks and in whatever mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "support/worlds.hpp"
#include "train/folder.hpp"
#include "train/training.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::test {
namespace {

constexpr int kSavedAfter = 3;

// ---- the whole state, gathered past the code under test: a plain file for each rank

void write_down(Training& training, Context& here, const std::string& folder) {
  std::ofstream file(folder + "/rank" + std::to_string(here.rank));
  for (const train::StatePiece& piece : training.layer().state()) {
    const auto* bits = static_cast<const std::uint32_t*>(piece.values.data);
    for (std::size_t i = 0; i < piece.values.count; ++i)
      file << piece.parameter << ' ' << piece.name << ' ' << piece.first + i << ' ' << bits[i]
           << '\n';
  }
  const auto counts = training.layer().step_counts();
  for (std::size_t i = 0; i < counts.size(); ++i) file << i << " steps 0 " << counts[i] << '\n';
}

using State = std::map<std::string, std::string>;  // "parameter name element" -> bits
State gathered(const std::string& folder, int ranks) {
  State state;
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream file(folder + "/rank" + std::to_string(rank));
    std::string parameter, name, element, bits;
    while (file >> parameter >> name >> element >> bits) {
      const auto [at, fresh] = state.emplace(parameter + " " + name + " " + element, bits);
      EXPECT_TRUE(fresh || at->second == bits) << "replicas differ in " << at->first;
    }
  }
  return state;
}

// Trains and saves; writes down the state, and the hash of the weights.
void train_and_save(const Plan& plan, const Folder& folder) {
  std::filesystem::create_directory(folder / "saved");
  run(World{.kind = WorldKind::threads, .size = plan.ranks}, [&](Context& here) {
    Training training(here.group, plan);
    (void)training.advance(0, kSavedAfter);
    train::CheckpointInfo info;
    info.iteration = kSavedAfter;
    const Status status = train::save_checkpoint(training.layer(), folder / "checkpoints", info);
    ASSERT_TRUE(status.ok()) << status.to_string();
    write_down(training, here, folder / "saved");
    const std::string hash = training.hash();
    if (here.rank == 0) overwrite(folder / "hash", hash);
  });
}

// Loads into a model that began elsewhere and goes on.
void load_and_go_on(const Plan& plan, const Folder& folder, int until,
                    const std::function<void(Training&, const std::vector<double>&)>& then) {
  std::filesystem::remove_all(folder / "loaded");
  std::filesystem::create_directory(folder / "loaded");
  run(World{.kind = WorldKind::threads, .size = plan.ranks}, [&](Context& here) {
    Training training(here.group, plan);
    const auto info = train::load_checkpoint(training.layer(), folder / "checkpoints");
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(info->iteration, kSavedAfter);
    EXPECT_EQ(training.hash(), bytes_of(folder / "hash"));
    write_down(training, here, folder / "loaded");
    then(training, training.advance(kSavedAfter, until));
  });
}

std::vector<double> undisturbed_losses(int steps) {
  Folder folder;
  run(World{.kind = WorldKind::threads, .size = 1}, [&](Context& here) {
    Training training(here.group, {});
    std::ofstream file(folder / "losses");
    file.precision(17);
    for (double loss : training.advance(0, steps)) file << loss << ' ';
  });
  std::istringstream text(bytes_of(folder / "losses"));
  return {std::istream_iterator<double>(text), {}};
}

TEST(Resume, from_n_to_m_ranks_gathers_the_same_state_to_the_byte_and_the_same_losses) {
  const std::vector<double> expected = undisturbed_losses(kSavedAfter + 20);
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSavedAfter) + 20);
  std::vector<std::pair<int, int>> cases{{8, 3}};
  for (int n = 1; n <= 4; ++n)
    for (int m = 1; m <= 4; ++m) cases.emplace_back(n, m);
  int turn = 0;
  for (const auto& [n, m] : cases) {
    // Plain and sharded, either way round.
    const Plan saved{.ranks = n, .mode = turn % kModes};
    const Plan loaded{.ranks = m, .mode = (turn / kModes + turn + 3) % kModes, .seed = 7};
    SCOPED_TRACE(testing::Message() << n << " ranks in mode " << saved.mode << " to " << m
                                    << " in mode " << loaded.mode);
    ++turn;
    Folder folder;
    train_and_save(saved, folder);
    load_and_go_on(loaded, folder, kSavedAfter + 20,
                   [&](Training&, const std::vector<double>& losses) {
                     for (std::size_t i = 0; i < losses.size(); ++i)
                       EXPECT_NEAR(losses[i] / expected[kSavedAfter + i], 1, 1e-5) << "step " << i;
                   });
    const State before = gathered(folder / "saved", n);
    EXPECT_GT(before.size(), 1000u);
    EXPECT_EQ(before, gathered(folder / "loaded", m));
  }
}

TEST(Resume, in_bf16_and_with_momentum_keeps_main_weights_and_moments_to_the_byte) {
  for (const train::Optimizer& optimizer :
       {train::Optimizer(train::AdamW{}), train::Optimizer(train::Sgd{})})
    for (const auto& [saved_mode, loaded_mode] :
         {std::pair(0, 4), std::pair(4, 0), std::pair(3, kModes - 1), std::pair(kModes - 1, 2)}) {
      SCOPED_TRACE(testing::Message() << "mode " << saved_mode << " to " << loaded_mode);
      Folder folder;
      train_and_save({.ranks = 3, .mode = saved_mode, .dtype = Dtype::bf16, .optimizer = optimizer},
                     folder);
      load_and_go_on({.ranks = 2,
                      .mode = loaded_mode,
                      .dtype = Dtype::bf16,
                      .optimizer = optimizer,
                      .seed = 9},
                     folder, kSavedAfter + 1, [](Training&, const std::vector<double>&) {});
      EXPECT_EQ(gathered(folder / "saved", 3), gathered(folder / "loaded", 2));
    }
}

TEST(Resume, at_the_same_size_ends_with_the_same_bits_as_an_undisturbed_run) {
  for (int mode = 0; mode < kModes; ++mode)
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      SCOPED_TRACE(testing::Message() << "mode " << mode << ", " << to_string(dtype));
      const Plan plan{.ranks = 3, .mode = mode, .dtype = dtype};
      Folder folder;
      run(World{.kind = WorldKind::threads, .size = 3}, [&](Context& here) {
        Training training(here.group, plan);
        (void)training.advance(0, kSavedAfter + 4);
        const std::string hash = training.hash();
        if (here.rank == 0) overwrite(folder / "undisturbed", hash);
      });
      train_and_save(plan, folder);
      Plan again = plan;
      again.seed = 5;
      if (mode % 2 == 1)
        again.order_hint = train::inspect_checkpoint(folder / "checkpoints")->order;
      load_and_go_on(again, folder, kSavedAfter + 4,
                     [&](Training& training, const std::vector<double>&) {
                       EXPECT_EQ(training.hash(), bytes_of(folder / "undisturbed"));
                     });
    }
}

TEST(Resume, with_another_optimizer_is_refused_naming_the_state) {
  Folder folder;
  train_and_save({.ranks = 2, .mode = 4}, folder);
  run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    Training training(here.group, {.ranks = 2, .mode = 4, .optimizer = train::Sgd{}});
    const auto info = train::load_checkpoint(training.layer(), folder / "checkpoints");
    EXPECT_EQ(info.status().code(), Code::mismatch) << info.status().to_string();
    EXPECT_THAT(info.status().message(), testing::HasSubstr("momentum"));
  });
}

TEST(Resume, of_a_model_that_was_saved_twice_goes_on_from_the_later) {
  Folder folder;
  run(World{.kind = WorldKind::shm, .size = 2}, [&](Context& here) {
    Training training(here.group, {.ranks = 2, .mode = 4});
    train::CheckpointInfo info;
    std::string hash;
    for (int step = 0; step < 4; ++step) {
      (void)training.advance(step, step + 1);
      info.iteration = step + 1;
      // Right behind the step: gathers are still under way.
      const Status status =
          train::save_checkpoint(training.layer(), folder / "checkpoints", info, 2);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    hash = training.hash();
    (void)training.advance(4, 6);
    EXPECT_NE(training.hash(), hash);
    const auto loaded = train::load_checkpoint(training.layer(), folder / "checkpoints");
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(loaded->iteration, 4);
    EXPECT_EQ(training.hash(), hash);
  });
}

}  // namespace
}  // namespace tutti::test
