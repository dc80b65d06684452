#include "group/self.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <thread>
#include <vector>

#include "core/auth.hpp"
#include "core/restart.hpp"
#include "core/secret.hpp"
#include "core/words.hpp"

namespace tutti::group {
namespace {

// A number together with the variable that said it, so that errors can name their source.
struct Named {
  std::string name;
  int value = 0;
};
using MaybeNamed = std::optional<Named>;

// Which variables a launcher sets. Of several names the first that is set counts.
struct Family {
  const char* launcher;
  const char* rank;
  std::vector<const char*> size;
  std::vector<const char*> local_rank;
  std::vector<const char*> local_size;
  bool size_alone_is_a_mark;  // SLURM_NTASKS is set in every allocation, WORLD_SIZE is not
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"tutti", "TUTTI_RANK", {"TUTTI_SIZE"}, {"TUTTI_LOCAL_RANK"}, {"TUTTI_LOCAL_SIZE"}, true},
      {"torchrun", "RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, true},
      {"openmpi",
       "OMPI_COMM_WORLD_RANK",
       {"OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_LOCAL_RANK"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       true},
      {"pmix",
       "PMIX_RANK",
       {"PMIX_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
       {"PMIX_LOCAL_RANK", "SLURM_LOCALID"},
       {"PMIX_LOCAL_SIZE"},
       false},
      {"pmi",
       "PMI_RANK",
       {"PMI_SIZE"},
       {"PMI_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"},
       {"PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"},
       true},
      {"slurm",
       "SLURM_PROCID",
       {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
       {"SLURM_LOCALID"},
       {},
       false},
  };
  return kFamilies;
}

Status contradiction(std::string message) { return {Code::invalid_argument, std::move(message)}; }

bool is_set(const Environment& environment, const char* name) {
  const auto value = environment(name);
  return value && !value->empty();
}

std::optional<int> to_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The first of `names` that is set, as a number of at least `least`.
Result<MaybeNamed> read_number(const Environment& environment,
                               const std::vector<const char*>& names, int least) {
  for (const char* name : names) {
    if (!is_set(environment, name)) continue;
    const std::string text = *environment(name);
    const std::optional<int> value = to_int(text);
    if (!value || *value < least)
      return contradiction(
          fmt::format("{}='{}' is not a number of at least {}", name, text, least));
    return MaybeNamed(Named{name, *value});
  }
  return MaybeNamed();
}

// In a batch script SLURM_PROCID is 0 for everything that srun did not start.
bool outside_slurm_step(const Environment& environment) {
  return is_set(environment, "SLURM_JOB_ID") && !is_set(environment, "SLURM_STEP_ID") &&
         !is_set(environment, "SLURM_STEP_NODELIST");
}

const Family* find_family(const Environment& environment) {
  for (const Family& family : families()) {
    if (std::string_view(family.launcher) == "slurm" && outside_slurm_step(environment)) continue;
    if (is_set(environment, family.rank)) return &family;
    if (family.size_alone_is_a_mark && is_set(environment, family.size.front())) return &family;
  }
  return nullptr;
}

// Tasks of node `node` in Slurm's run-length form: "2(x3),1" is 2 2 2 1.
std::optional<int> tasks_of_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    int times = 1;
    if (const std::size_t open = item.find("(x"); open != std::string_view::npos) {
      if (item.back() != ')') return std::nullopt;
      const auto repeat = to_int(item.substr(open + 2, item.size() - open - 3));
      if (!repeat) return std::nullopt;
      times = *repeat;
      item = item.substr(0, open);
    }
    if (node < times) return to_int(item);
    node -= times;
  }
  return std::nullopt;
}

MaybeNamed slurm_local_size(const Environment& environment) {
  const char* name = "SLURM_STEP_TASKS_PER_NODE";
  if (!is_set(environment, name)) name = "SLURM_TASKS_PER_NODE";
  if (!is_set(environment, name)) return std::nullopt;
  const auto node = to_int(environment("SLURM_NODEID").value_or("0"));
  const auto tasks = tasks_of_node(*environment(name), node.value_or(0));
  if (!tasks || *tasks < 1) return std::nullopt;
  return Named{name, *tasks};
}

Status check_below(const Named& index, const Named& count) {
  if (index.value < count.value) return {};
  return contradiction(
      fmt::format("{}={} is not below {}={}", index.name, index.value, count.name, count.value));
}

// Rank and size of one family, and whether they fit together.
Status read_world(const Environment& environment, const Family& family, Self& self) {
  const auto rank = read_number(environment, {family.rank}, 0);
  if (!rank.ok()) return rank.status();
  const auto size = read_number(environment, family.size, 1);
  if (!size.ok()) return size.status();
  if (!*size)
    return contradiction(fmt::format("{} is set without {}; set both or neither", family.rank,
                                     fmt::join(family.size, " or ")));
  if (!*rank)
    return contradiction(
        fmt::format("{} is set without {}; set both or neither", (*size)->name, family.rank));
  self.rank = (*rank)->value;
  self.size = (*size)->value;
  return check_below(**rank, **size);
}

// The same inside the host. Where the launcher does not say, one host is assumed: wrong guesses end
// in meet's deadline, whose message says what to set.
Status read_local(const Environment& environment, const Family& family, Self& self) {
  const auto rank = read_number(environment, family.local_rank, 0);
  if (!rank.ok()) return rank.status();
  auto size = read_number(environment, family.local_size, 1);
  if (!size.ok()) return size.status();
  if (!*size && std::string_view(family.local_rank.back()) == "SLURM_LOCALID")
    size = slurm_local_size(environment);
  self.local_rank = *rank ? (*rank)->value : self.rank;
  self.local_size = *size ? (*size)->value : self.size;
  if (*size && self.local_size > self.size)
    return contradiction(fmt::format("{}={} is more than {}={}", (*size)->name, self.local_size,
                                     family.size.front(), self.size));
  if (*rank && *size) return check_below(**rank, **size);
  return {};
}

// tutti run sets torchrun's variables too; a difference means that somebody changed one of them.
Status check_same(const Environment& environment, const char* ours, const char* theirs) {
  if (!is_set(environment, theirs) || *environment(ours) == *environment(theirs)) return {};
  return contradiction(
      fmt::format("{}={} and {}={} contradict each other; unset the one that is wrong", ours,
                  *environment(ours), theirs, *environment(theirs)));
}

// They name torchrun's job: ranks that read a different slip of them would wait for each other.
Status check_master(const Environment& environment) {
  if (const auto host = environment("MASTER_ADDR"))
    if (host->find_first_not_of(" \t") == std::string::npos)
      return contradiction("MASTER_ADDR is set to nothing; it is the address of rank 0's host");
  const auto port = environment("MASTER_PORT");
  if (!port) return {};
  const std::optional<int> number = to_int(*port);
  if (number && *number >= 1 && *number <= 65535) return {};
  return contradiction(fmt::format("MASTER_PORT='{}' is not a port of 1 … 65535", *port));
}

// The namespace of "namespace.rank".
std::string without_rank(std::string id) {
  const std::size_t dot = id.rfind('.');
  if (dot != std::string::npos && to_int(std::string_view(id).substr(dot + 1))) id.resize(dot);
  return id;
}

// A word that all ranks of this job see alike, and other jobs do not.
std::string find_job(const Environment& environment, const std::string& launcher) {
  const auto value = [&](const char* name) { return environment(name).value_or(""); };
  if (is_set(environment, "TUTTI_JOB")) return value("TUTTI_JOB");
  if (launcher == "torchrun") {
    if (is_set(environment, "MASTER_PORT") || is_set(environment, "TORCHELASTIC_RUN_ID"))
      return fmt::format("torchrun-{}-{}:{}-{}", value("TORCHELASTIC_RUN_ID"), value("MASTER_ADDR"),
                         value("MASTER_PORT"), value("TORCHELASTIC_RESTART_COUNT"));
  } else {
    if (is_set(environment, "PMIX_NAMESPACE")) return "pmix-" + value("PMIX_NAMESPACE");
    if (is_set(environment, "PMIX_ID")) return "pmix-" + without_rank(value("PMIX_ID"));
    if (is_set(environment, "OMPI_MCA_ess_base_jobid"))
      return "openmpi-" + value("OMPI_MCA_ess_base_jobid") + value("OMPI_MCA_orte_hnp_uri");
    if (is_set(environment, "OMPI_MCA_orte_hnp_uri"))
      return "openmpi-" + value("OMPI_MCA_orte_hnp_uri");
    if (launcher != "openmpi" && is_set(environment, "SLURM_JOB_ID"))
      return fmt::format("slurm-{}.{}", value("SLURM_JOB_ID"), value("SLURM_STEP_ID"));
  }
  return fmt::format("parent-{}", ::getppid());
}

// An abstract Unix socket: no file to leave behind, and one namespace per network namespace, so
// that emulated hosts stay apart.
std::string local_address(const std::string& job) {
  return fmt::format("@tutti-{}-{}", ::geteuid(),
                     to_hex(hmac_sha256("tutti job", job)).substr(0, 24));
}

Status find_meeting_place(const Environment& environment, Self& self) {
  auto secret = find_secret(environment);
  if (!secret.ok()) return secret.status();
  self.secret = *secret;
  const char* given = is_set(environment, "TUTTI_STORE") ? "TUTTI_STORE" : "TUTTI_RENDEZVOUS";
  if (is_set(environment, given)) {
    self.store_address = *environment(given);
    self.serves_store = self.rank == 0 && std::string_view(given) == "TUTTI_RENDEZVOUS";
    // What launchers say of a job need not be the same on every host.
    if (is_set(environment, "TUTTI_JOB")) self.epoch = epoch_of_job(self.job);
    if (self.secret.empty() && self.store_address.front() != '@')
      return contradiction(fmt::format(
          "{}={} is set without TUTTI_SECRET_FD or TUTTI_SECRET_FILE; make a secret that every "
          "host has (head -c 32 /dev/urandom > secret; chmod 600 secret) and set TUTTI_SECRET_FILE",
          given, self.store_address));
    return {};
  }
  if (self.size == 1) return {};
  if (self.local_size != self.size)
    return contradiction(
        fmt::format("{} of {} ranks are on this host, so the ranks need a place to meet: set "
                    "TUTTI_RENDEZVOUS=host:port (a port on rank 0's host) and TUTTI_SECRET_FILE (a "
                    "file of mode 0600 with the same 32 random bytes on every host)",
                    self.local_size, self.size));
  self.store_address = local_address(self.job);
  self.epoch = epoch_of_job(self.job);
  self.serves_store = self.rank == 0;
  return {};
}

// Serves, unless this very name is served already: then an earlier group of this process does so.
Result<MeetingStore> serve(const Self& self, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    auto server = StoreServer::listen(self.store_address, self.secret.text(), self.epoch);
    if (server.ok()) {
      auto store = connect_store((*server)->address(), self.secret.text(), timeout, self.epoch);
      if (!store.ok()) return store.status();
      return MeetingStore{*store, *std::move(server)};
    }
    if (server.status().code() == Code::invalid_argument) return server.status();
    auto store = connect_store(self.store_address, self.secret.text(),
                               std::chrono::milliseconds(200), self.epoch);
    if (store.ok()) return MeetingStore{*store, nullptr};
    if (std::chrono::steady_clock::now() >= deadline)
      return server.status().annotate(
          fmt::format("rank 0 cannot serve the store at {}", self.store_address));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

Result<Secret> find_secret(const Environment& environment) {
  if (is_set(environment, "TUTTI_SECRET_FD")) {
    const auto descriptor = read_number(environment, {"TUTTI_SECRET_FD"}, 0);
    if (!descriptor.ok()) return descriptor.status();
    auto secret = read_secret_descriptor((*descriptor)->value);
    if (secret.ok()) return secret;
    // Closed on the way here; a file is as good.
    if (!is_set(environment, "TUTTI_SECRET_FILE"))
      return secret.status().annotate(fmt::format(
          "TUTTI_SECRET_FD={} (was it closed by a program between the launcher and "
          "this one? pass it on, or set TUTTI_SECRET_FILE; a program that is no rank of "
          "that job unsets TUTTI_SECRET_FD)",
          (*descriptor)->value));
  }
  if (is_set(environment, "TUTTI_SECRET_FILE"))
    return read_secret_file(*environment("TUTTI_SECRET_FILE"));
  return Secret();
}

Result<Self> find_self(const Environment& environment) {
  Self self;
  if (const Family* family = find_family(environment)) {
    self.launcher = family->launcher;
    if (Status status = read_world(environment, *family, self); !status.ok()) return status;
    if (Status status = read_local(environment, *family, self); !status.ok()) return status;
    if (self.launcher == "torchrun")
      if (Status status = check_master(environment); !status.ok()) return status;
    if (self.launcher == "tutti") {
      if (Status status = check_same(environment, "TUTTI_RANK", "RANK"); !status.ok())
        return status;
      if (Status status = check_same(environment, "TUTTI_SIZE", "WORLD_SIZE"); !status.ok())
        return status;
    }
  } else if (is_set(environment, "TUTTI_STORE")) {
    return contradiction("TUTTI_STORE is set without TUTTI_RANK and TUTTI_SIZE; set all or none");
  }
  if (self.launcher == "tutti") {
    const auto restart = read_number(environment, {"TUTTI_RESTART"}, 0);
    if (!restart.ok()) return restart.status();
    if (*restart) self.restart = (*restart)->value;
  }
  self.job = find_job(environment, self.launcher);
  if (Status status = find_meeting_place(environment, self); !status.ok()) return status;
  return self;
}

Result<MeetingStore> meet(const Self& self, std::chrono::milliseconds timeout) {
  if (self.store_address.empty()) return MeetingStore{make_memory_store(), nullptr};
  if (self.serves_store) return serve(self, timeout);
  auto store = connect_store(self.store_address, self.secret.text(), timeout, self.epoch);
  if (store.ok() && self.restart > 0)
    return MeetingStore{make_prefix_store(restart_prefix(self.restart), *store), nullptr};
  if (store.ok()) return MeetingStore{*store, nullptr};
  return store.status().annotate(
      fmt::format("rank {} of {} (started by {}) found no store at {}{}", self.rank, self.size,
                  self.launcher, self.store_address,
                  self.store_address.front() == '@'
                      ? "; if rank 0 is on another host, set TUTTI_RENDEZVOUS and TUTTI_SECRET_FILE"
                      : ""));
}

}  // namespace tutti::group
