// A dump runs in signal handlers, where whoever was interrupted may hold malloc's lock.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "support/allocations.hpp"
#include "support/parsed_json.hpp"
#include "trace/recorder.hpp"
#include "tutti/types.hpp"

namespace tutti::trace {
namespace {

using test::allocations;

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
  (void)recorder.dump_to(file, 5, "signal");
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
