// tutti/train/hand_over.hpp - new weights for whoever serves or samples beside the training.
//
// One trainer rank sends, any number of receivers take: ranks of the same job, or processes of other jobs,
// which come and go while training goes on. Weights travel in flattened buckets with a version number, to
// several receivers in CPU memory by broadcast, so that the trainer sends each bucket about once. A receiver has
// two copies and shows the last complete one, so that it never sees half an update, also when either side is killed.
// One that seldom looks skips versions and holds up nobody. One that is lost is left out and named; the
// others, and the training, go on.
//
// Weights may lie in CPU memory or on a GPU, on either side, all of a version alike. Between processes on one
// GPU, or on GPUs that reach each other, a receiver copies them out of the trainer's memory; otherwise they
// go through the hosts.
//
// Ordering       create is called by the members: trainer and receivers. Their group is needed for that call
//                only, and ends with the first one that is lost; train on one without receivers.
// Streams        on a GPU, send follows what the caller's stream holds, and what is put there later may
//                write the weights again. A version is shown when all of it is there: whatever stream
//                reads it. A receiver that says on which stream it reads is never overtaken there.
// Failure        a receiver that does not take a version within the timeout (Config::timeout) counts as lost:
//                send and flush end in about that time. docs/formats/hand_over.md.
// Threads        each side has one of its own that talks to the other. One thread of the caller's at a time
//                for each object.
//
//   auto sender = WeightSender::listen({.address = "0.0.0.0:29600", .secret_file = "job.key"});  // the trainer
//   (*sender)->send(step, weights);
//   auto receiver = WeightReceiver::attach("trainer-host:29600", "job.key");                     // anywhere else
//   if (auto newer = (*receiver)->poll(); newer.ok() && *newer) use((*receiver)->weights());
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/group.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  ConstBuffer values;
};

struct SendOptions {
  // Weights on a GPU: the caller's stream, a CUstream or cudaStream_t; null is the legacy default stream.
  void* stream = nullptr;
  // Do not copy: receivers take the weights from where they lie, which must neither change nor go until
  // flush() returns. Pays for few large tensors; each is a message of its own, or several.
  bool lend = false;
};

struct SenderOptions {
  // Of the pieces in which weights travel; 0: 16 MiB, on a GPU 128 MiB.
  std::size_t bucket_bytes = 0;
  // Where receivers of other jobs may attach, "host:port", and a file of mode 0600 with what they have to know,
  // at least 16 bytes. Empty: nowhere.
  std::string address{};
  std::string secret_file{};
  std::optional<Config> config{};  // absent: from the environment
};

// One that is there.
struct AttachedReceiver {
  int number = 0;     // its rank in the members' group; of other jobs: -1, -2, … as they came
  std::string where;  // host and pid
  std::uint64_t version = 0;  // the newest that it has; 0: none yet
};

struct ReceiverOptions {
  // Where versions lie; absent: as the trainer's do, on the GPU that this rank uses, where it has one.
  std::optional<Device> device{};
  int gpu = -1;  // which; -1: the calling thread's current one
  std::chrono::nanoseconds patience{
      0};  // attach: for a trainer that is not there yet; 0: TUTTI_JOIN_TIMEOUT
  std::optional<Config> config{};  // absent: from the environment
};

class WeightSender {
 public:
  static Result<std::unique_ptr<WeightSender>> create(Group& group, int trainer,
                                                      std::span<const int> receivers,
                                                      const SenderOptions& options = {});
  // For receivers of other jobs alone.
  static Result<std::unique_ptr<WeightSender>> listen(const SenderOptions& options);
  virtual ~WeightSender() = default;
  // Copies the weights and sends them to every living receiver, in the background. Waits for the
  // version before, if that is still on its way. Call behind DataParallel::parameters_ready().
  virtual Status send(std::uint64_t version, std::span<const NamedTensor> weights,
                      const SendOptions& options = {}) = 0;
  // Blocks until the last version has reached every living receiver.
  virtual Status flush() = 0;
  // Receivers that were lost, by number, with the reason. One that left by itself is none of them.
  virtual std::vector<std::pair<int, Status>> lost() const = 0;
  virtual std::vector<AttachedReceiver> receivers() const = 0;
  // What receivers of other jobs attach to; several, divided by commas, where it listens everywhere. Empty: nowhere.
  virtual std::string address() const = 0;
};

class WeightReceiver {
 public:
  static Result<std::unique_ptr<WeightReceiver>> create(Group& group, int trainer,
                                                        std::span<const int> receivers,
                                                        const ReceiverOptions& options = {});
  // To a trainer of another job that listens there. The newest version comes as soon as it has one to give:
  // weights that were lent are gone when it has flushed them.
  static Result<std::unique_ptr<WeightReceiver>> attach(const std::string& address,
                                                        const std::string& secret_file,
                                                        const ReceiverOptions& options = {});
  virtual ~WeightReceiver() = default;
  // Shows the newest version that is whole, and does not block. True: it is newer than before. After
  // the trainer is lost: its failure; the last version stays. `stream`: on a GPU, the one that reads the
  // weights; memory of an older version is not written before that has come to this call.
  virtual Result<bool> poll(void* stream = nullptr) = 0;
  // Blocks for a version at least this new.
  virtual Status wait_for(std::uint64_t version, std::chrono::nanoseconds timeout,
                          void* stream = nullptr) = 0;
  // 0: none yet. The tensors are valid until the next poll or wait_for that returns a newer one; on a GPU
  // for what its stream has been given until then.
  virtual std::uint64_t version() const = 0;
  virtual std::span<const NamedTensor> weights() const = 0;
};

}  // namespace v1
}  // namespace tutti::train
