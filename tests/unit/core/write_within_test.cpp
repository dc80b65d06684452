#include "core/write_within.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "core/sockets.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  Descriptor out, in;
};

TEST(write_within, a_reader_that_has_stopped_is_left_after_the_patience) {
  const Pipe pipe;
  const std::string much(1 << 20, 'x');  // more than any pipe holds
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(write_within(pipe.in.get(), much, milliseconds(50)), EAGAIN);
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, milliseconds(45));
  EXPECT_LT(took, std::chrono::seconds(10));
  // The next one finds it full.
  EXPECT_EQ(write_within(pipe.in.get(), "line\n", milliseconds(0)), EAGAIN);
}

TEST(write_within, a_reader_that_is_only_slow_gets_everything) {
  const Pipe pipe;
  const std::string much(1 << 20, 'x');
  std::size_t got = 0;
  std::thread reader([&] {
    std::string piece(10000, '\0');
    while (got < much.size()) {
      const ssize_t bytes = ::read(pipe.out.get(), piece.data(), piece.size());
      if (bytes <= 0) return;
      got += static_cast<std::size_t>(bytes);
    }
  });
  EXPECT_EQ(write_within(pipe.in.get(), much, std::chrono::seconds(60)), 0);
  reader.join();
  EXPECT_EQ(got, much.size());
}

TEST(write_within, a_full_disk_is_said) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(write_within(full.get(), "line\n", milliseconds(0)), ENOSPC);
}

}  // namespace
}  // namespace tutti
