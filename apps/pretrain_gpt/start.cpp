// The whole program (tutti/libtorch/trainer.hpp): from the command line to the exit code.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "data.hpp"
#include "device.hpp"
#include "flags.hpp"
#include "hf_folder.hpp"
#include "outputs.hpp"
#include "returns.hpp"
#include "split.hpp"
#include "subject.hpp"
#include "trainer.hpp"
#include "tutti/group.hpp"

namespace pretrain {
namespace {

// A mistake on the command line is the same on every rank: one of them says it.
int refuse(const std::string& program, const std::string& text, int exit_code) {
  const char* rank = std::getenv("TUTTI_RANK");
  if (rank == nullptr || std::string(rank) == "0") {
    if (exit_code == 0)
      std::printf("%s", text.c_str());
    else
      std::fprintf(stderr, "%s: %s\n", program.c_str(), text.c_str());
  }
  return exit_code;
}

// By `tutti run --max-restarts`, all of the job or this rank of it.
bool is_restarted() {
  const char* restart = std::getenv("TUTTI_RESTART");
  return has_returned() || (restart != nullptr && std::string(restart) != "0");
}

// Of the job when no rank is missing.
int full_size(int ranks_now) {
  const char* size = std::getenv("TUTTI_SIZE");
  return size != nullptr ? std::max(std::atoi(size), ranks_now) : ranks_now;
}

int run(Subject& subject, Parsed parsed) {
  Flags& flags = parsed.flags;
  const auto refuse = [&](const std::string& text, int exit_code) {
    return pretrain::refuse(flags.program, text, exit_code);
  };
  if (parsed.exit_code) return refuse(parsed.text, *parsed.exit_code);
  if (auto status = choose_device(flags); !status.ok()) return refuse(status.message(), 2);
  if (is_restarted()) flags.die.reset();  // once is enough
  const bool reads = flags.train_iters > 0 && !flags.has_own_model;
  auto data = reads ? Data::open(flags) : Data();
  if (!data.ok()) return refuse(data.status().message(), 2);
  if (reads) flags.vocab_size = data->vocabulary();
  for (const auto& status : {check_outputs(flags), check_hf_folders(flags)})
    if (!status.ok()) return refuse(status.message(), 2);
  tutti::GroupOptions options;
  options.survives_losses = options.takes_back = flags.on_failure == kShrink;
  if (!flags.trace.empty()) {
    auto config = tutti::Config::from_environment();
    if (!config.ok()) return refuse(config.status().message(), 2);
    config->trace_dir = flags.trace;
    options.config = *std::move(config);
  }
  const bool returned = has_returned();
  auto group = returned ? come_back(options) : tutti::Group::from_environment(options);
  if (!group.ok()) {
    std::fprintf(stderr, "%s: %s%s\n", flags.program.c_str(),
                 returned ? "came back and was not taken in: " : "",
                 group.status().to_string().c_str());
    return 1;
  }
  const int rank = (*group)->rank();
  const auto sizes = split_sizes(flags, (*group)->size());
  if (!sizes.ok()) return refuse(sizes.status().message(), 2);
  if (auto status = check_batches(flags, sizes->dp); !status.ok())
    return refuse(status.message(), 2);
  Returns returns(std::move(options), full_size((*group)->size()));
  const auto ending =
      pretrain::train(*std::move(group), subject, flags, *std::move(data), std::move(returns));
  if (ending.status.ok()) return 0;
  std::fprintf(stderr, "%s: rank %d: %s\n", flags.program.c_str(), rank,
               ending.status.to_string().c_str());
  return ending.before_training ? 2 : 1;
}

}  // namespace
}  // namespace pretrain

namespace tutti::libtorch {

int train(int argc, const char* const* argv, TrainingTask& task) {
  const auto subject = pretrain::task_subject(task);
  return pretrain::run(*subject, pretrain::parse_flags(argc, argv, pretrain::WhoseModel::own));
}

int pretrain_gpt(int argc, const char* const* argv, const TokenLoss& loss) {
  const auto subject = pretrain::gpt_subject(loss);
  return pretrain::run(*subject, pretrain::parse_flags(argc, argv));
}

}  // namespace tutti::libtorch
