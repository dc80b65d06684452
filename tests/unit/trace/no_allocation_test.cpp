// A dump runs in signal handlers, where whoever was interrupted may hold malloc's lock: every way to
// malloc is counted here, that of operator new in libstdc++ too. A sanitizer has its own malloc, and
// its builds leave this out.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>

#include "support/parsed_json.hpp"
#include "trace/recorder.hpp"
#include "tutti/types.hpp"

namespace {
std::atomic<int> allocations{0};
}

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(memory, bytes);
}
}

namespace tutti::trace {
namespace {

Recorder& filled(Recorder& recorder) {
  Record record;
  record.event = Event::started;
  std::fill(std::begin(record.label), std::end(record.label), '\xe2');  // cut off amid a letter
  for (int i = 0; i < 500; ++i) recorder.note(record);
  recorder.note_group(1, "wörld\n\"", std::string(200, '7'));
  return recorder;
}

TEST(recorder, dump_to_a_descriptor_never_allocates) {
  VirtualClock clock;
  Recorder recorder(512, clock);
  filled(recorder);
  const int file = ::memfd_create("dump", MFD_CLOEXEC);
  int before = allocations;
  recorder.dump_to(file, 5);
  EXPECT_EQ(allocations - before, 0);

  before = allocations;
  const auto text = std::make_unique<std::string>(recorder.dump_json(5, "signal"));
  EXPECT_GT(allocations - before, 2) << "allocations are not counted";
  const Json dump = parsed(*text);
  EXPECT_EQ(dump["records"].size(), 501U);
  EXPECT_EQ(dump["records"][0]["label"].string(), std::string(sizeof Record::label, '?'));
  EXPECT_EQ(dump["groups"][0]["name"].string(), "w??rld\n\"");
  EXPECT_EQ(::lseek(file, 0, SEEK_END), static_cast<off_t>(text->size()));
  ::close(file);
}

}  // namespace
}  // namespace tutti::trace
#endif
