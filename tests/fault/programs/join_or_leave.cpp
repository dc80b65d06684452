// Ranks that make the world's group, but for one that leaves before:
//   join_or_leave RANK_THAT_LEAVES EXIT_CODE
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tutti/tutti.hpp>

int main(int count, char** arguments) {
  if (count != 3) return 2;
  if (std::strcmp(std::getenv("TUTTI_RANK"), arguments[1]) == 0) return std::atoi(arguments[2]);
  auto group = tutti::Group::from_environment();
  if (group.ok()) return 0;
  std::fprintf(stderr, "%s\n", group.status().to_string().c_str());
  return 9;
}
