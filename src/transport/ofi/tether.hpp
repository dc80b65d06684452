// transport/ofi/tether.hpp - the connection over which two ranks have met. It stays: fabrics do not say who has
// died, and a rank that leaves has to know that its last frames have come.
//
//   'b'            I live
//   'e' number     I leave, and have sent so many frames
//   'd'            I have them all
//
// Thread-safety  beat and heard by the pulse, the rest by whoever polls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/byte_stream.hpp"
#include "transport/reactor.hpp"

namespace tutti::transport::ofi {

class Tether final : public EventSource {
 public:
  explicit Tether(ByteStream connection, Nanoseconds dead_after);

  Status watch(Reactor& reactor) { return reactor.add(connection_.get(), *this); }
  void on_ready(std::uint32_t) override { readable_ = true; }
  bool readable() const { return readable_; }
  // Takes what has come. True if anything had. `anyway`: nobody has been asked whether it is readable.
  bool read(bool anyway = false);

  void beat();
  bool heard();
  void say_end(std::uint64_t frames);
  void confirm();

  // How many frames the peer has sent in all: it leaves.
  const std::optional<std::uint64_t>& end() const { return end_; }
  bool confirmed() const { return confirmed_; }
  bool closed() const { return closed_; }
  bool is_cut() const;
  // The peer hears that this is over.
  void shut() const;
  void close() noexcept { connection_.reset(); }

 private:
  void say(const void* bytes, std::size_t count);

  ByteStream connection_;
  bool readable_ = true;
  bool closed_ = false;
  bool confirmed_ = false;  // by the peer
  bool has_confirmed_ = false;
  std::optional<std::uint64_t> end_;
  std::string inbox_;           // of a word that is not whole
  std::uint64_t received_ = 0;  // bytes, when the pulse looked last
};

}  // namespace tutti::transport::ofi
