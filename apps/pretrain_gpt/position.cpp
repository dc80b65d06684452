#include "position.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>
#include <string_view>

namespace pretrain {

using tutti::Code;
using tutti::Result;
using tutti::Status;
using tutti::train::CheckpointInfo;
using tutti::train::LossGuard;
using tutti::train::LossScale;

namespace {

constexpr std::string_view kDecayEnd = "lr_decay_iters";
constexpr std::string_view kGrowthEnd = "weight_decay_incr_iters";

// The words of both that mean something. Rates that stay constant have neither an end nor a smallest.
std::set<std::string> words_that_matter(const Schedule& a, const Schedule& b) {
  std::set<std::string> names;
  for (const Schedule* schedule : {&a, &b})
    for (const auto& [name, word] : to_words(*schedule)) names.insert(name);
  const auto constant = tutti::train::DecayStyle::constant;
  if (a.rate.style == constant && b.rate.style == constant)
    for (const char* name : {"min_lr", kDecayEnd.data()}) names.erase(name);
  return names;
}

std::string in_hex(std::uint64_t number) { return fmt::format("{:016x}", number); }

// What `info` says, compared with what was given here.
class Comparison {
 public:
  Comparison(const CheckpointInfo& info, const Flags& flags) : info_(info), flags_(flags) {}

  std::optional<std::string> find(const std::string& name) const {
    const auto found = info_.extra.find(name);
    return found == info_.extra.end() ? std::nullopt : std::optional(found->second);
  }

  Status same(const std::string& name, const std::string& what, const std::string& here) const {
    const auto there = find(name);
    if (there == here) return {};
    return {Code::invalid_argument,
            fmt::format("{} is {} here and was '{}' in the checkpoint of --load {}: its data "
                        "position and random state would mean something else",
                        what, here, there.value_or(""), flags_.load)};
  }

  Status same_data(const Data& data) {
    Status size = same("data_bytes", "the size of --data-path", std::to_string(data.bytes()));
    if (!size.ok()) return size;
    if (!find("data")) {
      warn("on which files it was trained, only how large they are");
      return {};
    }
    if (find("data") == in_hex(data.identity())) return {};
    return {
        Code::invalid_argument,
        fmt::format("--data-path is other data than that of the checkpoint of --load {}: names, "
                    "order or contents of the files differ",
                    flags_.load)};
  }

  Status same_schedule(Schedule& schedule) {
    const auto theirs = schedule_of(info_.extra, schedule);
    if (!theirs) warn("with which learning rates it was trained; those of the command line count");
    if (!theirs || flags_.override_schedule) return {};
    if (flags_.use_checkpoint_schedule) {
      schedule = *theirs;
      return {};
    }
    const auto here = to_words(schedule), there = to_words(*theirs);
    const auto said = [](const std::map<std::string, std::string>& words, const std::string& name) {
      const auto found = words.find(name);
      return found == words.end() ? "not given" : found->second;
    };
    for (const std::string& name : words_that_matter(schedule, *theirs)) {
      if (said(here, name) == said(there, name)) continue;
      const bool implied = (name == kDecayEnd && flags_.lr_decay_iters == 0) || name == kGrowthEnd;
      return {Code::invalid_argument,
              fmt::format("{} is {} here{} and was {} in the checkpoint of --load {}; say "
                          "--override-opt-param-scheduler to change it, or "
                          "--use-checkpoint-opt-param-scheduler to keep the checkpoint's",
                          flag_of(name), said(here, name), implied ? " (--train-iters)" : "",
                          said(there, name), flags_.load)};
    }
    return {};
  }

  Status same_guard(LossGuard& guard) {
    if (const auto state = find("loss_guard")) return guard.restore(*state);
    if (!flags_.check_for_spiky_loss) return {};
    warn("which losses it has seen: the first 100 from here on tell what is spiky");
    return {};
  }

  Status same_scale(LossScale& scale) {
    const auto state = find("loss_scale");
    if (state && flags_.fp16) return scale.restore(*state);
    if (flags_.fp16) warn("by what the loss was scaled: it begins as the command line says");
    return {};
  }

  template <class Number>
  bool number(const std::string& name, Number& value) const {
    const std::string text = find(name).value_or("");
    const char* end = text.data() + text.size();
    return !text.empty() && std::from_chars(text.data(), end, value).ptr == end;
  }

  void warn(const std::string& what) {
    warnings_.push_back(
        fmt::format("the checkpoint of --load {} is older and does not say {}", flags_.load, what));
  }
  std::vector<std::string> warnings() && { return std::move(warnings_); }

 private:
  // "lr_decay_iters" -> "--lr-decay-iters"
  static std::string flag_of(std::string name) {
    if (name == kGrowthEnd) return "the last update of --weight-decay-incr-style";
    for (char& letter : name) letter = letter == '_' ? '-' : letter;
    return "--" + name;
  }

  const CheckpointInfo& info_;
  const Flags& flags_;
  std::vector<std::string> warnings_;
};

}  // namespace

void Whereabouts::note(Stand stand) {
  // Ranks that are a step ahead, and copies of shards that are two behind.
  constexpr std::size_t kMost = 4;
  while (!stands_.empty() && stands_.back().position.steps >= stand.position.steps)
    stands_.pop_back();
  stands_.push_back(std::move(stand));
  if (stands_.size() > kMost) stands_.pop_front();
}

Result<Whereabouts::Stand> Whereabouts::share(tutti::Group& group, std::int64_t step) const {
  Stand stand;
  std::int64_t root = group.size();
  for (const Stand& one : stands_)
    if (one.position.steps == step) {
      stand = one;
      root = group.rank();
    }
  Status status = group.all_reduce(tutti::Buffer::of(&root, 1), tutti::ReduceOp::min);
  if (!status.ok()) return status;
  if (root == group.size())
    return Status(Code::internal, fmt::format("no rank knows where step {} ended", step));
  std::int64_t words[] = {stand.position.steps, stand.position.updates,
                          static_cast<std::int64_t>(stand.position.sequences),
                          static_cast<std::int64_t>(stand.guard.size()),
                          static_cast<std::int64_t>(stand.scale.size())};
  status = group.broadcast(tutti::Buffer::of(words, std::size(words)), static_cast<int>(root));
  if (!status.ok()) return status;
  stand.position = {words[0], words[1], static_cast<std::uint64_t>(words[2])};
  stand.guard.resize(static_cast<std::size_t>(words[3]));
  stand.scale.resize(static_cast<std::size_t>(words[4]));
  for (std::string* text : {&stand.guard, &stand.scale}) {
    status = group.broadcast(tutti::Buffer::of(text->data(), text->size()), static_cast<int>(root));
    if (!status.ok()) return status;
  }
  return stand;
}

CheckpointInfo to_checkpoint(const Position& position, const Flags& flags, const Schedule& schedule,
                             const Data& data, const LossGuard& guard, const LossScale& scale) {
  CheckpointInfo info;
  info.iteration = position.steps;
  info.extra = to_words(schedule);
  info.extra.merge(std::map<std::string, std::string>{
      {"consumed_sequences", std::to_string(position.sequences)},
      {"updates", std::to_string(position.updates)},
      {"seed", std::to_string(flags.seed)},
      {"seq_length", std::to_string(flags.seq_length)},
      {"global_batch_size", std::to_string(flags.global_batch_size)},
      {"data_bytes", std::to_string(data.bytes())},
      {"data", in_hex(data.identity())},
      {"loss_guard", guard.state()}});
  if (flags.fp16) info.extra["loss_scale"] = scale.state();
  return info;
}

Result<Resumed> from_checkpoint(const CheckpointInfo& info, const Flags& flags, const Data& data,
                                std::int64_t updates, LossGuard& guard, LossScale& scale) {
  Resumed resumed;
  resumed.schedule = flags.schedule();
  Comparison theirs(info, flags);
  for (const Status& status :
       {theirs.same("seed", "--seed", std::to_string(flags.seed)),
        theirs.same("seq_length", "--seq-length", std::to_string(flags.seq_length)),
        theirs.same_data(data), theirs.same_schedule(resumed.schedule), theirs.same_guard(guard),
        theirs.same_scale(scale)}) {
    if (!status.ok()) return status;
  }
  Position& position = resumed.position;
  position.steps = info.iteration;
  if (!theirs.number("consumed_sequences", position.sequences)) {
    return Status(Code::corrupt,
                  "the checkpoint of --load " + flags.load + " has no data position");
  }
  if (!theirs.number("updates", position.updates)) {
    position.updates = updates;
    theirs.warn(fmt::format("how many steps were updates; by its weights {} of {} were", updates,
                            position.steps));
  }
  resumed.warnings = std::move(theirs).warnings();
  return resumed;
}

}  // namespace pretrain
