// hand_over.hpp - tutti::train's WeightSender and WeightReceiver for tensors.
//
// Streams        on tensors of a GPU, send follows the current stream; poll and wait_for say that the current
//                stream is the one that reads.
// Thread-safety  one thread at a time for each object.
// Failure        thrown as Failure.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "tensors.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti_torch {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

class TensorSender {
 public:
  // Ranks are those of the group. Blocks until the receivers do the same. Null: for receivers of other jobs alone.
  TensorSender(Backend* group, const std::vector<int>& receivers, int trainer,
               const tutti::train::SenderOptions& options);
  // With `lend` the tensors are kept until the version is through.
  void send(std::uint64_t version, const NamedTensors& weights, bool lend);
  void flush();
  std::vector<std::pair<int, tutti::Status>> lost() const;
  std::vector<tutti::train::AttachedReceiver> receivers() const;
  std::string address() const { return sender().address(); }
  void close();

 private:
  tutti::train::WeightSender& sender() const;

  std::unique_ptr<tutti::train::WeightSender> sender_;  // null: closed
  Loan loan_;                                           // what is lent to receivers
};

class TensorReceiver {
 public:
  enum class Where { as_sent, cpu, cuda };
  TensorReceiver(Backend& group, int trainer, Where where, int gpu);
  // To a trainer of another job.
  TensorReceiver(const std::string& address, const std::string& secret_file,
                 std::chrono::nanoseconds patience, Where where, int gpu);
  bool poll();
  void wait_for(std::uint64_t version, std::chrono::nanoseconds timeout);
  std::uint64_t version() const { return version_; }
  // Views of the version's memory, which lives as long as one of them.
  const NamedTensors& weights() const { return weights_; }
  // Views that are still held keep their memory, and the trainer's link with it.
  void close();

 private:
  tutti::train::WeightReceiver& receiver() const;
  void* reading_stream() const;
  void show();

  std::shared_ptr<tutti::train::WeightReceiver> receiver_;  // shared with the views; null: closed
  std::uint64_t version_ = 0;
  NamedTensors weights_;
};

}  // namespace tutti_torch
