// apps/pretrain_gpt/schedule.hpp - what changes from step to step, by Megatron's flags: learning rate, weight decay,
// and the size of the global batch.
//
// Rates go by updates: a skipped step does not advance them. The batch goes by the sequences that were consumed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/train/learning_rate.hpp"

namespace CLI {
class App;
}

namespace pretrain {

struct Flags;

enum class DecayGrowth : std::uint8_t { constant, linear, cosine };
std::string_view to_string(DecayGrowth style);
std::optional<DecayGrowth> parse_decay_growth(std::string_view word);

struct WeightDecay {
  double start = 0;
  double end = 0;          // the only one, where it is constant
  std::int64_t steps = 0;  // `end` is reached there
  DecayGrowth style = DecayGrowth::constant;

  double at(std::int64_t update) const;  // 1, 2, …
};

// From `start` in equal parts of `samples` up to the whole global batch.
struct BatchRamp {
  int start = 0;  // 0: the batch is whole from the beginning
  int increment = 0;
  std::int64_t samples = 0;

  int at(std::uint64_t consumed, int whole) const;
};

struct Schedule {
  tutti::train::LearningRate rate;
  WeightDecay decay;
  BatchRamp ramp;
};

// As they stand in a checkpoint, under the names of the flags.
std::map<std::string, std::string> to_words(const Schedule& schedule);
// What older checkpoints do not say is `here`'s. Absent: they do not say the learning rates, or not in words that
// can be read.
std::optional<Schedule> schedule_of(const std::map<std::string, std::string>& words,
                                    const Schedule& here);

void add_schedule(CLI::App& app, Flags& flags);
// invalid_argument names what does not fit together.
tutti::Status check_schedule(const Flags& flags);
// `at_once`: sequences that every batch is a multiple of.
tutti::Status check_ramp(const BatchRamp& ramp, int whole, std::int64_t at_once);

}  // namespace pretrain
