// A rank that trains the toy model, saves checkpoints, and goes on from the newest whole one.
//
//   train_rank NAME=VALUE...
//     folder=DIR                of checkpoints; goes on from its newest
//     steps=100                 to train in all; absent: until the file $ENOUGH is there
//     every=5                   steps between checkpoints
//     pause=2                   milliseconds of each step in which nothing happens
//     victim=1 how=kill         who is struck, and how (strike.hpp)
//     at=saving                 when: saving (some time after it began), step
//     after=12                  steps before that
//
// The last line has the weights' hash: equal bits, however often it was interrupted.
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "rank_words.hpp"
#include "train/toy_model.hpp"
#include "tutti/train/checkpoint.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTokens = 5;  // of a toy sequence
constexpr int kKeep = 2;

class Trainer {
 public:
  Trainer(Flags flags, std::shared_ptr<Group> group)
      : flags_(std::move(flags)), group_(std::move(group)), model_({}) {
    doomed_ = flags_.names("victim", group_->rank());
    folder_ = flags_.text("folder");
  }

  Status train() {
    if (Status status = begin(); !status.ok()) return status;
    for (bool more = true; more;) {
      if (Status status = one_step(); !status.ok()) return status;
      auto decided = decide_on_more();
      if (!decided.ok()) return decided.status();
      more = *decided;
      const bool saves = step_ % static_cast<std::int64_t>(flags_.number("every", 5)) == 0;
      if (saves || !more)
        if (Status status = save(); !status.ok()) return status;
    }
    return finish();
  }

  std::int64_t step() const { return step_; }
  const std::string& doing() const { return doing_; }
  Json more() const { return {{"hash", hash_}, {"resumed_after", resumed_after_}}; }

 private:
  Status begin() {
    doing_ = "create";
    train::DataParallelOptions options;
    options.overlap_grad_reduce = options.use_distributed_optimizer = options.overlap_param_gather =
        true;
    options.groups = {{.weight_decay = 0.0}, {.weight_decay = 0.1}};
    auto layer = train::DataParallel::create({group_, group_}, model_.parameters(), options);
    if (!layer.ok()) return layer.status();
    layer_ = *std::move(layer);
    model_.attach(*layer_);
    // All ranks look at the same moment: nobody has begun to save.
    if (!fs::exists(folder_ + "/latest")) return {};
    doing_ = "load";
    const auto info = train::load_checkpoint(*layer_, folder_);
    if (!info.ok()) return info.status();
    step_ = resumed_after_ = info->iteration;
    return {};
  }

  Status one_step() {
    doing_ = "step";
    usleep(static_cast<useconds_t>(flags_.number("pause", 0) * 1000));
    const auto loss = model_.run(toy_sequence(step_ * group_->size() + group_->rank()), {});
    if (!loss.ok()) return loss.status();
    if (doomed_ && flags_.text("at") == "step" &&
        step_ == static_cast<std::int64_t>(flags_.number("after", 12)))
      strike(flags_.text("how", "kill"), group_->rank(), "in a step", 0);
    const auto report = layer_->step({.lr = 0.02, .tokens = kTokens});
    if (report.ok()) ++step_;
    return report.status();
  }

  // Rank 0 says so: clocks and files are seen at different moments.
  Result<bool> decide_on_more() {
    std::int64_t more = 1;
    if (const double steps = flags_.number("steps", 0); steps > 0)
      more = step_ < static_cast<std::int64_t>(steps);
    else if (const char* enough = std::getenv("ENOUGH"))
      more = !fs::exists(enough);
    if (Status status = group_->broadcast(Buffer::of(&more, 1), 0); !status.ok()) return status;
    return more == 1;
  }

  Status save() {
    doing_ = "save";
    if (doomed_ && flags_.text("at") == "saving" &&
        step_ >= static_cast<std::int64_t>(flags_.number("after", 12)))
      strike_while_saving();
    train::CheckpointInfo info;
    info.iteration = step_;
    info.order = layer_->order();
    return train::save_checkpoint(*layer_, folder_, info, kKeep);
  }

  // A moment of its own each time: a save takes some milliseconds.
  void strike_while_saving() {
    const auto after = static_cast<useconds_t>(now_s() * 1e6) % 5000;
    std::thread([this, after] {
      usleep(after);
      strike(flags_.text("how", "kill"), group_->rank(), "us into saving: " + std::to_string(after),
             0);
    }).detach();
  }

  Status finish() {
    doing_ = "finish";
    if (Status status = layer_->check_weights(); !status.ok()) return status;
    auto hash = layer_->weight_hash();
    if (hash.ok()) hash_ = *hash;
    return hash.status();
  }

  Flags flags_;
  std::shared_ptr<Group> group_;
  ToyModel model_;
  std::unique_ptr<train::DataParallel> layer_;
  bool doomed_ = false;
  std::string folder_, doing_, hash_;
  std::int64_t step_ = 0, resumed_after_ = 0;
};

int main_of_rank(int count, char** arguments) {
  const auto flags = Flags::read(count, arguments);
  if (!flags) return 2;
  const int rank = std::atoi(std::getenv("TUTTI_RANK"));
  auto group = Group::from_environment();
  if (!group.ok())
    return LastWords{.rank = rank, .stage = "init", .operation = "init"}.say(group.status());
  Trainer trainer(*flags, *group);
  const Status status = trainer.train();
  return LastWords{.rank = rank,
                   .stage = status.ok() ? "end" : "run",
                   .operation = trainer.doing(),
                   .done = trainer.step(),
                   .more = trainer.more()}
      .say(status);
}

}  // namespace
}  // namespace tutti::test

int main(int count, char** arguments) { return tutti::test::main_of_rank(count, arguments); }
