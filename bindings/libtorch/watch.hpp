// bindings/libtorch/watch.hpp - looks at every tensor that an operator of this thread reads.
//
// For debug mode: RecordFunction callbacks see the inputs of each operator. What a callback throws
// is swallowed by torch, so the watch only remembers the first complaint.
//
// Thread-safety  start and stop in the thread that runs forward; one watch at a time there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tutti::libtorch {

class Watch {
 public:
  // What is wrong with reading this address; empty: nothing.
  using Judge = std::function<std::string(const void* address)>;

  explicit Watch(Judge judge) : judge_(std::move(judge)) {}
  ~Watch() { stop(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void start();
  void stop();
  // The first complaint since start, with the operator's name; empty: none.
  const std::string& complaint() const { return complaint_; }

  // Called for every input of every operator.
  void look(const void* address, const char* operator_name);

 private:
  Judge judge_;
  std::string complaint_;
  std::uint64_t handle_ = 0;
  bool running_ = false;
};

}  // namespace tutti::libtorch
