// transport/tcp/frame_reader.hpp - frames from a socket to the sink.
//
// Small frames are taken out of a staging buffer, many per system call; large payloads are read
// straight to where Sink::place wants them.
//
// Thread-safety  one thread at a time: whoever polls.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "transport/link.hpp"
#include "transport/buffer_pool.hpp"

namespace tutti::transport {

// The largest payload of one frame. Senders stay within their segment size, which may differ by
// rank.
inline constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{64} << 20;

// Whether a header can be what it claims.
bool is_sane(const Header& header) noexcept;

class FrameReader {
 public:
  enum class End : std::uint8_t {
    drained,  // the socket has no more
    more,     // enough for one poll; there may be more
    closed,   // the peer has closed
    failed,   // errno says why
    corrupt,  // bad_header() cannot be one
  };
  FrameReader(int peer, BufferPool& pool);

  End read(int socket, Sink& sink);
  // Moves a payload that is being placed for `channel` into memory of our own.
  void forget(std::uint32_t channel);
  const Header& bad_header() const { return header_; }

 private:
  std::size_t staged() const { return end_ - begin_; }
  bool parse(Sink& sink);
  bool parse_small(Sink& sink);
  void start_payload(Sink& sink);
  void finish_payload(Sink& sink);
  ssize_t fill(int socket);

  int peer_;
  BufferPool& pool_;
  std::unique_ptr<std::byte[]> staging_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  bool has_header_ = false;
  bool corrupt_ = false;
  Header header_;
  std::byte* target_ = nullptr;  // of a large payload
  std::size_t got_ = 0;
  std::uint64_t lease_ = 0;  // 0: placed
};

}  // namespace tutti::transport
