// One program for all targets, so that it is linked once; TUTTI_FUZZ names the one to run.
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.hpp"

namespace {

const tutti::fuzz::Target* find_target() {
  const char* word = std::getenv("TUTTI_FUZZ");
  for (const tutti::fuzz::Target& target : tutti::fuzz::kTargets)
    if (word != nullptr && target.word == word) return &target;
  std::fputs("set TUTTI_FUZZ to one of:", stderr);
  for (const tutti::fuzz::Target& target : tutti::fuzz::kTargets)
    std::fprintf(stderr, " %s", target.word.data());
  std::fputs("\n", stderr);
  std::exit(2);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                                                     std::size_t size) {
  static const tutti::fuzz::Target* const target = find_target();
  target->run({data, size});
  return 0;
}
