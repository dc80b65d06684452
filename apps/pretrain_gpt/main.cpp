// pretrain_gpt: trains a GPT or a Llama, alone or as one rank of a job.
//
//   tutti run -n 4 pretrain_gpt --data-path /usr/share/common-licenses/GPL-3 --train-iters 200
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
#include "trainer.hpp"
#include "tutti/group.hpp"

namespace {

// A mistake on the command line is the same on every rank: one of them says it.
int refuse(const std::string& text, int exit_code) {
  const char* rank = std::getenv("TUTTI_RANK");
  if (rank == nullptr || std::string(rank) == "0") {
    if (exit_code == 0)
      std::printf("%s", text.c_str());
    else
      std::fprintf(stderr, "pretrain_gpt: %s\n", text.c_str());
  }
  return exit_code;
}

// By `tutti run --max-restarts`, all of the job or this rank of it.
bool is_restarted() {
  const char* restart = std::getenv("TUTTI_RESTART");
  return pretrain::has_returned() || (restart != nullptr && std::string(restart) != "0");
}

// Of the job when no rank is missing.
int full_size(int ranks_now) {
  const char* size = std::getenv("TUTTI_SIZE");
  return size != nullptr ? std::max(std::atoi(size), ranks_now) : ranks_now;
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = pretrain::parse_flags(argc, argv);
  if (parsed.exit_code) return refuse(parsed.text, *parsed.exit_code);
  pretrain::Flags& flags = parsed.flags;
  if (auto status = pretrain::choose_device(flags); !status.ok())
    return refuse(status.message(), 2);
  if (is_restarted()) flags.die.reset();  // once is enough
  const bool trains = flags.train_iters > 0;
  auto data = trains ? pretrain::Data::open(flags) : pretrain::Data();
  if (!data.ok()) return refuse(data.status().message(), 2);
  if (trains) flags.vocab_size = data->vocabulary();
  for (const auto& status : {pretrain::check_outputs(flags), pretrain::check_hf_folders(flags)})
    if (!status.ok()) return refuse(status.message(), 2);
  tutti::GroupOptions options;
  options.survives_losses = options.takes_back = flags.on_failure == pretrain::kShrink;
  if (!flags.trace.empty()) {
    auto config = tutti::Config::from_environment();
    if (!config.ok()) return refuse(config.status().message(), 2);
    config->trace_dir = flags.trace;
    options.config = *std::move(config);
  }
  const bool returned = pretrain::has_returned();
  auto group = returned ? pretrain::come_back(options) : tutti::Group::from_environment(options);
  if (!group.ok()) {
    std::fprintf(stderr, "pretrain_gpt: %s%s\n", returned ? "came back and was not taken in: " : "",
                 group.status().to_string().c_str());
    return 1;
  }
  const int rank = (*group)->rank();
  const auto sizes = pretrain::split_sizes(flags, (*group)->size());
  if (!sizes.ok()) return refuse(sizes.status().message(), 2);
  if (auto status = pretrain::check_batches(flags, sizes->dp); !status.ok())
    return refuse(status.message(), 2);
  pretrain::Returns returns(std::move(options), full_size((*group)->size()));
  const auto ending =
      pretrain::train(*std::move(group), flags, *std::move(data), std::move(returns));
  if (ending.status.ok()) return 0;
  std::fprintf(stderr, "pretrain_gpt: rank %d: %s\n", rank, ending.status.to_string().c_str());
  return ending.before_training ? 2 : 1;
}
