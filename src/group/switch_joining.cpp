// How a switch comes to its ranks: by the job's store, as the rank behind the last.
#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "core/clock.hpp"
#include "core/exhausted.hpp"
#include "core/log.hpp"
#include "engine/switch_server.hpp"
#include "group/bootstrap.hpp"
#include "group/link_secret.hpp"
#include "group/self.hpp"
#include "group/store_rounds.hpp"
#include "tutti/switch.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;

// How often it looks whether it is to stop, while it waits for the ranks.
constexpr milliseconds kSwitchLook{100};

class SwitchJoining {
 public:
  SwitchJoining(Store& store, const SwitchOptions& options, const Config& config, const Log& log)
      : store_(store), options_(options), config_(config), log_(log) {}

  // Nothing: it was told to stop.
  Result<std::unique_ptr<transport::Endpoint>> join() {
    auto prefix = join_round(store_, options_.name, options_.size);
    if (!prefix.ok()) return prefix.status();
    prefix_ = *std::move(prefix);
    if (Status status = store_.set(switch_key(prefix_), "here"); !status.ok()) return status;
    auto key = learn_secret();
    if (!key.ok()) return key.status();
    if (stopped_ || !is_awaited_) return std::unique_ptr<transport::Endpoint>();
    return link_up(*std::move(key));
  }
  // Whether the ranks count on it.
  bool is_awaited() const { return is_awaited_; }

 private:
  // Waits for what the ranks say, however long they take to come.
  Result<std::string> hear(const std::string& key) {
    for (;;) {
      auto said = store_.get(key, kSwitchLook);
      if (said.ok() || said.status().code() != Code::timed_out) return said;
      if (options_.stop && options_.stop()) {
        stopped_ = true;
        return std::string();
      }
    }
  }

  Result<Secret> learn_secret() {
    GroupOptions as_rank;
    as_rank.rank = options_.size;
    as_rank.size = options_.size + 1;
    as_rank.name = options_.name;
    as_rank.secret = options_.secret;
    auto secret = LinkSecret::find(store_, as_rank, process_environment(), log_);
    if (!secret.ok()) return secret.status();
    auto word = hear(prefix_ + "/secret");
    if (!word.ok() || stopped_) return word.ok() ? Result<Secret>(Secret()) : word.status();
    auto epoch = hear(prefix_ + "/epoch");
    if (!epoch.ok() || stopped_) return epoch.ok() ? Result<Secret>(Secret()) : epoch.status();
    is_awaited_ = take_switch_mark(*epoch);
    if (!is_awaited_) return Secret();
    if (epoch->size() != sizeof epoch_)
      return Status(Code::corrupt, "the store holds an epoch of a wrong size");
    std::memcpy(&epoch_, epoch->data(), sizeof epoch_);
    return secret->key(*word, as_rank, *epoch);
  }

  Result<std::unique_ptr<transport::Endpoint>> link_up(Secret key) {
    transport::OpeningOptions opening;
    opening.rank = options_.size;
    opening.size = options_.size + 1;
    opening.secret = std::move(key);
    opening.epoch = epoch_;
    opening.config = config_;
    opening.config.links = "eager";
    opening.log = log_;
    auto open = transport::Opening::open(std::move(opening));
    if (!open.ok()) return open.status();
    const std::string own = (*open)->address();
    if (Status status = store_.set(said_key(prefix_, "address", options_.size), own); !status.ok())
      return status;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < options_.size; ++rank) {
      auto address = store_.get(said_key(prefix_, "address", rank),
                                std::chrono::duration_cast<milliseconds>(config_.join_timeout));
      if (!address.ok())
        return address.status().annotate(fmt::format("rank {} did not come", rank));
      addresses.push_back(*std::move(address));
    }
    addresses.push_back(own);
    return (*open)->connect(addresses, config_.join_timeout);
  }

  Store& store_;
  const SwitchOptions& options_;
  const Config& config_;
  const Log& log_;
  std::string prefix_;
  std::uint64_t epoch_ = 0;
  bool is_awaited_ = true;
  bool stopped_ = false;
};

Status serve_job(std::shared_ptr<Store> store, const SwitchOptions& options) {
  if (options.size < 2)
    return {Code::invalid_argument,
            fmt::format("a switch for {} ranks has nothing to fold", options.size)};
  if (options.size > engine::kMostSwitchedRanks)
    return {Code::unsupported, fmt::format("a switch serves {} ranks at most, not {}",
                                           engine::kMostSwitchedRanks, options.size)};
  auto found = options.config ? Result<Config>(*options.config) : Config::from_environment();
  if (!found.ok()) return found.status();
  auto log = Log::open(*found);
  if (!log.ok()) return log.status();
  const Log own = log->for_rank(options.size);
  SwitchJoining joining(*store, options, *found, own);
  auto endpoint = joining.join();
  if (!endpoint.ok()) return endpoint.status().annotate("the switch cannot join the job");
  if (!joining.is_awaited())
    return {Code::aborted,
            fmt::format("the ranks of group '{}' went on without a switch: set TUTTI_SWITCH=1 on "
                        "rank 0, and start the switch with them",
                        options.name)};
  if (!*endpoint) return {};
  store.reset();  // nobody needs it any more
  own.info(Subsystem::init, "serves {} ranks", options.size);
  engine::SwitchServer(*std::move(endpoint), *found, own).serve(options.stop);
  return {};
}

// A switch is none of the ranks; where they meet it finds as one of them.
Status serve_from_environment(SwitchOptions options) {
  const Environment real = process_environment();
  const Environment as_rank = [&](const std::string& name) {
    return name == "TUTTI_RANK" ? std::optional<std::string>("0") : real(name);
  };
  auto self = find_self(as_rank);
  if (!self.ok()) return self.status();
  if (options.size < 0) options.size = self->size;
  if (self->store_address.empty())
    return {Code::invalid_argument,
            "there is no job to join: set TUTTI_SIZE, and TUTTI_STORE or TUTTI_RENDEZVOUS with "
            "TUTTI_SECRET_FILE, as for its ranks"};
  self->serves_store = false;
  if (!options.config) {
    auto config = Config::from_environment();
    if (!config.ok()) return config.status();
    options.config = *std::move(config);
  }
  auto meeting =
      meet(*self, std::chrono::duration_cast<milliseconds>(options.config->join_timeout));
  if (!meeting.ok()) return meeting.status();
  if (options.secret.empty()) options.secret = self->secret.text();
  return serve_job(std::move(meeting->store), options);
}

}  // namespace
}  // namespace tutti::group

namespace tutti {
inline namespace v1 {

Status run_switch(std::shared_ptr<Store> store, SwitchOptions options) {
  if (!store) return {Code::invalid_argument, "a switch cannot join a job without a store"};
  Status status;
  const Status exhausted =
      or_exhausted([&] { status = group::serve_job(std::move(store), options); });
  return exhausted.ok() ? status : exhausted;
}

Status run_switch_from_environment(SwitchOptions options) {
  Status status;
  const Status exhausted =
      or_exhausted([&] { status = group::serve_from_environment(std::move(options)); });
  return exhausted.ok() ? status : exhausted;
}

}  // namespace v1
}  // namespace tutti
