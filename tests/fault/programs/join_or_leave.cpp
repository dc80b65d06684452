// Ranks that make the world's group, but for one that leaves before:
//   join_or_leave RANK_THAT_LEAVES EXIT_CODE         without a word
//   join_or_leave RANK_THAT_LEAVES EXIT_CODE linked  after it said where it is, when others link
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/secret.hpp"
#include "transport/endpoint.hpp"
#include "tutti/tutti.hpp"

namespace {

// What group/bootstrap.cpp says in its first two rounds.
void say_address(int rank, int size) {
  const auto secret = tutti::read_secret_descriptor(std::atoi(std::getenv("TUTTI_SECRET_FD")));
  auto store =
      tutti::connect_store(std::getenv("TUTTI_STORE"), secret->text(), std::chrono::seconds(10));
  tutti::transport::OpeningOptions options;
  options.rank = rank;
  options.size = size;
  options.secret = secret->text();
  auto open = tutti::transport::Opening::open(std::move(options));
  if (!store.ok() || !open.ok()) std::abort();
  const auto say = [&](const char* key, const std::string& value) {
    if (!(*store)->set(fmt::format("tutti/world/1/{}/{}", key, rank), value).ok()) std::abort();
  };
  say("size", fmt::format("create(size {}, reduction order any)", size));
  say("address", (*open)->address());
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const char* rank = std::getenv("TUTTI_RANK");
  if (std::strcmp(rank, arguments[1]) == 0) {
    if (count == 4) say_address(std::atoi(rank), std::atoi(std::getenv("TUTTI_SIZE")));
    return std::atoi(arguments[2]);
  }
  auto group = tutti::Group::from_environment();
  if (group.ok()) return 0;
  std::fprintf(stderr, "%s\n", group.status().to_string().c_str());
  return 9;
}
