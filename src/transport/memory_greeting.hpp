// transport/memory_greeting.hpp - two ranks of one host show each other their windows.
//
// Both send an offer, a number within one process, descriptors between two, and then a verdict:
// whether the other's window could be used. docs/formats/wire.md has the bytes.
#pragma once

#include "transport/transport.hpp"

namespace tutti::transport {

class MemoryGreeting final : public Greeting {
 public:
  MemoryGreeting(const Party& party, const NewPeer& peer, bool same_process);

  Result<bool> step(ByteStreamRef stream) override;
  // When they have agreed.
  std::shared_ptr<Window> take_window() { return std::move(theirs_); }
  pid_t process() const { return peer_.process; }

 private:
  enum class GreetingStage : std::uint8_t { begin, offer, verdict, over };
  // Each goes on to the next stage (true), or waits for more (false).
  Result<bool> send_offer(int socket);
  Result<bool> take_offer(int socket);
  Result<bool> take_verdict(int socket);

  const Party& party_;
  NewPeer peer_;
  bool same_process_;
  bool offers_ = false;  // there is a window that this peer could use
  GreetingStage stage_ = GreetingStage::begin;
  std::shared_ptr<Window> theirs_;
  Status failure_;  // why the peer's window could not be used
};

}  // namespace tutti::transport
