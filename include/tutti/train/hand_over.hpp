// tutti/train/hand_over.hpp - new weights for whoever serves or samples beside the training.
//
// One trainer rank sends, any number of receiver ranks of the same job receive: flattened buckets
// with a version number. A receiver has two copies and shows the last complete one, so that it never
// sees half an update, also when either side is killed. A receiver that is lost is dropped and named;
// the others, and the training, go on.
//
// Ordering       create is called by the members: trainer and receivers.
// Thread-safety  one thread at a time for each object.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

class WeightSender {
 public:
  static Result<std::unique_ptr<WeightSender>> create(Group& group, int trainer,
                                                      std::span<const int> receivers,
                                                      std::size_t bucket_bytes = 16 << 20);
  virtual ~WeightSender() = default;
  // Copies the weights and sends them to every living receiver, in the background. Waits for the
  // version before, if that is still on its way. Call behind DataParallel::parameters_ready().
  virtual Status send(std::uint64_t version, std::span<const NamedTensor> weights) = 0;
  // Until the last version has reached every living receiver.
  virtual Status flush() = 0;
  // Ranks that were lost, with the reason.
  virtual std::vector<std::pair<int, Status>> lost() const = 0;
};

class WeightReceiver {
 public:
  static Result<std::unique_ptr<WeightReceiver>> create(Group& group, int trainer,
                                                        std::span<const int> receivers);
  virtual ~WeightReceiver() = default;
  // Takes in what has come and does not block. True: there is a newer version than before. After
  // the trainer is lost: its failure; the last version stays.
  virtual Result<bool> poll() = 0;
  // Blocks for a version at least this new.
  virtual Status wait_for(std::uint64_t version, std::chrono::nanoseconds timeout) = 0;
  // 0: none yet. The tensors are valid until the next poll or wait_for that returns a newer one.
  virtual std::uint64_t version() const = 0;
  virtual std::span<const NamedTensor> weights() const = 0;
};

}  // namespace v1
}  // namespace tutti::train
