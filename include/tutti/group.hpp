// tutti/group.hpp - a fixed set of ranks that run collectives together.
//
// Ordering       all ranks start the same collectives in the same order; a difference
//                ends in Code::mismatch on every rank, never in a hang.
// Buffers        are lent to the library from the call until its Work is done.
// Thread-safety  starts on one group must not overlap in time; any thread may wait or abort.
// Failure        the first failure ends all pending and later Works with the same
//                Status, which names the rank and the collective at fault.
//
//   auto group = tutti::Group::create(store, {.rank = rank, .size = 4});
//   if (!group.ok()) return group.status();
//   tutti::Work sum = (*group)->all_reduce_async(gradients, tutti::ReduceOp::sum);
//   compute_something_else();
//   if (auto status = sum.wait(); !status.ok()) return status;
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/collectives.hpp"
#include "tutti/config.hpp"
#include "tutti/status.hpp"
#include "tutti/store.hpp"
#include "tutti/trace.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

// Defined in the source tree, not in the installed headers.
struct Extensions;

struct GroupOptions {
  int rank = -1;
  int size = -1;
  std::string name = "world";
  ReductionOrder reduction_order = ReductionOrder::any;
  std::optional<Config> config{};  // absent: from the environment
  // Of the job, at least 16 bytes. Empty: the store's, or the launcher's or a file's (TUTTI_SECRET_FD,
  // TUTTI_SECRET_FILE); where there is none, rank 0 makes one and puts it into the store.
  std::string secret{};
  // This rank goes on where another one is lost (Group::health tells): `tutti run` then does not end
  // the job, if every rank that is left says so.
  bool survives_losses = false;
  // This rank and its like take a lost one back (grow, in launcher_store). On one host `tutti run
  // --max-restarts` then starts it again while the others go on, with TUTTI_RETURNED in its
  // environment, to join them.
  bool takes_back = false;
  // Algorithms and transports that the program brings along (docs/extending.md); null: none.
  std::shared_ptr<const Extensions> extensions{};
};

// How a group that is made from another one differs from it. All its ranks say the same.
struct GroupSpec {
  std::string name{};                               // empty: made up from the other's
  std::optional<ReductionOrder> reduction_order{};  // absent: as there
  Urgency urgency = Urgency::normal;
};

// What the library expects an operation to cost.
struct Prediction {
  std::chrono::nanoseconds time{0};            // on memory of any kind
  std::chrono::nanoseconds symmetric_time{0};  // on symmetric memory
  Algorithm algorithm = Algorithm::automatic;
};

// Memory that every rank of the group on this host has mapped: collectives on it copy nothing. On a GPU
// `data` is an address of the device.
// It lives until the last handle and the group are gone.
struct SymmetricMemory {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;
};

class Group : public Collectives {
 public:
  // Meets the other ranks in `store` and links up with them. Blocks, at most config.join_timeout;
  // the error names the ranks that did not come.
  static Result<std::shared_ptr<Group>> create(std::shared_ptr<Store> store, GroupOptions options);
  // The same for a program started by tutti run, torchrun, mpirun or srun. Without any of them: a
  // group of one.
  static Result<std::shared_ptr<Group>> from_environment(GroupOptions options = {});

  // A rank that comes later, or comes back: waits in `store` until a group takes it in by grow, at most
  // config.join_timeout. Rank and size are the group's to say.
  static Result<std::shared_ptr<Group>> join(std::shared_ptr<Store> store,
                                             GroupOptions options = {});

  // How many have come to `store` to join a group of that name, and were not looked at yet. Cheap, and
  // not collective: one rank asks, before all of them grow.
  static Result<int> waiting(const std::shared_ptr<Store>& store,
                             const std::string& name = "world");

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  virtual ReductionOrder reduction_order() const = 0;
  virtual Urgency urgency() const = 0;
  // The host of each rank: those that share one have the same number; they are counted from 0 in
  // the order of ranks.
  virtual std::vector<int> hosts() const = 0;
  // What the program calls each rank, such as its place in a mesh: "dp 1, tp 0". Errors, logs, `tutti
  // run`, `tutti show job` and dumps print it beside host and pid, in every group of these ranks, until
  // they get other ones. Local; all ranks say the same. A label has up to 80 printable letters and no
  // parentheses; empty: none.
  virtual Status label_ranks(std::span<const std::string> labels) = 0;

  // New groups on the same links. `split` is called by all ranks: a negative color gets none (a
  // null group), others are ordered by key, ties by old rank. `subgroup` is called by its members
  // only, with the same list and tag on each, and waits for the others for `timeout` (0: this
  // group's). `duplicate` is called by all ranks.
  virtual Result<std::shared_ptr<Group>> split(int color, int key, GroupSpec spec = {}) = 0;
  virtual Result<std::shared_ptr<Group>> subgroup(std::span<const int> ranks, std::uint32_t tag,
                                                  GroupSpec spec = {},
                                                  std::chrono::nanoseconds timeout = {}) = 0;
  virtual Result<std::shared_ptr<Group>> duplicate(GroupSpec spec = {}) = 0;

  // The survivors of this group's failure go on in a new, smaller one on the same links; `name`
  // empty: under the same name. All that are left call it, and agree on who they are, also when more
  // die meanwhile; they keep their order. A group that has not failed is ended first, as by abort.
  // Ranks that do not call it within `timeout` (0: this group's) count as lost: they are cut off for
  // good, from every group, and find out by Code::peer_lost with themselves as the peer. This
  // group's symmetric memory is this rank's alone afterwards. Once per group.
  virtual Result<std::shared_ptr<Group>> shrink(std::string name = "",
                                                std::chrono::nanoseconds timeout = {}) = 0;

  // Takes in ranks that wait in `store` (join), up to `most` in all: a new group, in which members keep
  // their ranks and newcomers follow in the order in which they came; this one stays as it is. Null: nobody
  // waits. Collective. Of `options`, name, config, secret and extensions count, and must be those
  // of the newcomers; blocks like create.
  virtual Result<std::shared_ptr<Group>> grow(std::shared_ptr<Store> store, int most,
                                              GroupOptions options = {}) = 0;

  // Collective. Contents are zero at first. On a GPU: the one that this rank's groups use already, else the
  // calling thread's current one.
  virtual Result<SymmetricMemory> allocate(std::size_t bytes, Device device = Device::cpu) = 0;
  // Memory of a GPU that this rank is about to free, by the address where its allocation begins: ranks
  // that have mapped it let go of it, for which they get a tenth of a second. What no group has seen is
  // no error. Any thread. Without it a freed allocation stays mapped until another takes its address.
  virtual void forget(const void* allocation) = 0;
  // `bytes` is the whole array, as nccl-tests count it.
  virtual Result<Prediction> predict(Collective collective, std::size_t bytes) = 0;
  // The same in a group of these ranks, which need not exist. Every rank gets the same answer.
  virtual Result<Prediction> predict(Collective collective, std::size_t bytes,
                                     std::span<const int> ranks) = 0;
  // Ends all pending and later operations on every rank with Code::aborted and this reason.
  virtual void abort(const std::string& reason) = 0;
  // ok, or the failure that ended this group.
  virtual Status health() const = 0;
  // A few lines on who is linked to whom, and how.
  virtual std::string describe() const = 0;
  // This rank's trace, for what the library does not know of; null unless TUTTI_TRACE_DIR is set.
  virtual trace::Sink* trace() const { return nullptr; }
};

// The store of the job that `tutti run` started this process in; it outlives every rank. unsupported
// under other launchers: theirs is rank 0's, if they have one.
Result<std::shared_ptr<Store>> launcher_store(std::chrono::milliseconds timeout);

}  // namespace v1
}  // namespace tutti
