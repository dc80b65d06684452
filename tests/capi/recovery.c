/* A rank is killed, the others go on, and another one takes its place: on processes of its own. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

enum { kRanks = 3, kVictim = 1, kNewcomer = kRanks };

/* Members keep their order and newcomers follow, each with the number it began with. */
static void check_whole(tutti_group* whole, int self) {
  int numbers[kRanks] = {-1, -1, -1};
  CHECK(tutti_group_size(whole) == kRanks);
  CHECK((tutti_group_rank(whole) == kRanks - 1) == (self == kNewcomer));
  CHECK_OK(tutti_all_gather(whole, &self, numbers, 1, TUTTI_I32, NULL));
  CHECK(numbers[0] == 0 && numbers[1] == 2 && numbers[2] == kNewcomer);
}

static void be_newcomer(tutti_store* store) {
  tutti_group* whole = NULL;
  CHECK_OK(tutti_group_join(store, NULL, &whole));
  check_whole(whole, kNewcomer);
  tutti_group_destroy(whole);
}

static void be_member(tutti_store* store, int rank) {
  tutti_group_options options = TUTTI_GROUP_OPTIONS_INIT;
  tutti_group *group = NULL, *smaller = NULL, *whole = NULL;
  options.rank = rank;
  options.ranks = kRanks;
  CHECK_OK(tutti_group_create(store, &options, &group));
  CHECK_OK(tutti_group_grow(group, store, kRanks + 1, NULL, &whole));
  CHECK(whole == NULL); /* nobody waits */
  CHECK_CODE(tutti_group_grow(group, NULL, kRanks + 1, NULL, &whole), TUTTI_INVALID_ARGUMENT);
  CHECK_OK(tutti_barrier(group, NULL));
  if (rank == kVictim) raise(SIGKILL);
  CHECK_CODE(tutti_barrier(group, NULL), TUTTI_PEER_LOST);
  CHECK_OK(tutti_group_shrink(group, NULL, 0, &smaller));
  CHECK(tutti_group_size(smaller) == kRanks - 1);
  while (whole == NULL && failures == 0) {
    CHECK_OK(tutti_barrier(smaller, NULL));
    CHECK_OK(tutti_group_grow(smaller, store, kRanks, NULL, &whole));
  }
  check_whole(whole, rank);
  tutti_group_destroy(whole);
  tutti_group_destroy(smaller);
  tutti_group_destroy(group);
}

static pid_t start(const char* path, int self) {
  const pid_t child = fork();
  tutti_store* store = NULL;
  if (child != 0) return child;
  alarm(60); /* only against hangs */
  CHECK_OK(tutti_store_file(path, &store));
  if (self == kNewcomer)
    be_newcomer(store);
  else
    be_member(store, self);
  tutti_store_free(store);
  _exit(failures == 0 ? 0 : 1);
}

static void check_mistakes_of_growing(void) {
  tutti_store* store = NULL;
  tutti_group* group = NULL;
  CHECK_OK(tutti_store_memory(&store));
  CHECK_CODE(tutti_group_join(NULL, NULL, &group), TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_group_join(store, NULL, NULL), TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_group_grow(NULL, store, 2, NULL, &group), TUTTI_INVALID_ARGUMENT);
  tutti_store_free(store);
}

void check_recovery(void) {
  char path[64];
  pid_t members[kRanks];
  int rank, status = 0;
  check_mistakes_of_growing();
  snprintf(path, sizeof path, "/tmp/tutti_capi_recovery_%ld", (long)getpid());
  for (rank = 0; rank < kRanks; ++rank) members[rank] = start(path, rank);
  CHECK(waitpid(members[kVictim], &status, 0) == members[kVictim]);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  members[kVictim] = start(path, kNewcomer);
  for (rank = 0; rank < kRanks; ++rank) {
    CHECK(waitpid(members[rank], &status, 0) == members[rank]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  CHECK(unlink(path) == 0);
}
