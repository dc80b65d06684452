/* Every kind of store, its server, and a group whose ranks meet in one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

void check_store(void) {
  tutti_store *store = NULL, *inner = NULL;
  char value[8] = "";
  size_t bytes = 0;
  int64_t sum = 0;
  int yes = 0;
  CHECK_OK(tutti_store_memory(&inner));
  CHECK_OK(tutti_store_prefix("c/", inner, &store));
  CHECK_OK(tutti_store_set(store, "greeting", "hello", 5));
  CHECK_OK(tutti_store_wait(inner, "c/greeting", 1000));
  CHECK_OK(tutti_store_get(store, "greeting", 1000, value, sizeof value, &bytes));
  CHECK(bytes == 5 && memcmp(value, "hello", 5) == 0);
  CHECK_CODE(tutti_store_get(store, "greeting", 1000, value, 2, &bytes), TUTTI_INVALID_ARGUMENT);
  CHECK(bytes == 5);
  CHECK_CODE(tutti_store_wait(store, "nobody sets this", 10), TUTTI_TIMED_OUT);
  CHECK_OK(tutti_store_add(store, "count", 40, &sum));
  CHECK_OK(tutti_store_add(store, "count", 2, &sum));
  CHECK(sum == 42);
  CHECK_OK(tutti_store_compare_set(store, "greeting", "hello", "bye", &yes));
  CHECK(yes == 1);
  CHECK_OK(tutti_store_compare_set(store, "greeting", "hello", "again", &yes));
  CHECK(yes == 0);
  CHECK_OK(tutti_store_remove(store, "greeting", &yes));
  CHECK(yes == 1);
  tutti_store_free(inner);
  CHECK_OK(tutti_store_set(store, "still", "there", 5)); /* the prefix store holds its inner one */
  tutti_store_free(store);
}

/* Of this process alone, and gone with it. */
void check_file_store(void) {
  char path[64];
  char value[8] = "";
  size_t bytes = 0;
  tutti_store *store = NULL, *again = NULL;
  snprintf(path, sizeof path, "/tmp/tutti_capi_%ld", (long)getpid());
  CHECK_OK(tutti_store_file(path, &store));
  CHECK_OK(tutti_store_set(store, "greeting", "hello", 5));
  CHECK_OK(tutti_store_file(path, &again));
  CHECK_OK(tutti_store_get(again, "greeting", 1000, value, sizeof value, &bytes));
  CHECK(bytes == 5 && memcmp(value, "hello", 5) == 0);
  tutti_store_free(again);
  tutti_store_free(store);
  CHECK(unlink(path) == 0);
}

/* The ranks of `group` meet once more, in a store that rank 0 serves, and make a group of their own. */
void check_meeting(tutti_group* group) {
  static const char kSecret[] = "known to the ranks";
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  char address[64] = "";
  int sum = rank;
  tutti_store_server* server = NULL;
  tutti_store *store = NULL, *stranger = NULL;
  tutti_status* refusal;
  tutti_group* met = NULL;
  tutti_group_options options = TUTTI_GROUP_OPTIONS_INIT;
  if (rank == 0) {
    CHECK_OK(tutti_store_server_listen("127.0.0.1:0", kSecret, sizeof kSecret, &server));
    snprintf(address, sizeof address, "%s", tutti_store_server_address(server));
  }
  CHECK_OK(tutti_broadcast(group, address, sizeof address, TUTTI_I8, 0, NULL));
  CHECK(strncmp(address, "127.0.0.1:", 10) == 0 && strlen(address) > 10);
  CHECK_OK(tutti_store_connect(address, kSecret, sizeof kSecret, 10000, &store));
  refusal = tutti_store_connect(address, "a long and wrong guess", 22, 500, &stranger);
  CHECK(refusal != NULL && stranger == NULL);
  tutti_status_free(refusal);

  options.rank = rank;
  options.ranks = ranks;
  options.name = "met";
  options.secret = kSecret;
  options.secret_bytes = sizeof kSecret;
  CHECK_OK(tutti_group_create(store, &options, &met));
  CHECK(tutti_group_rank(met) == rank && tutti_group_size(met) == ranks);
  CHECK(strcmp(tutti_group_name(met), "met") == 0);
  CHECK_OK(tutti_all_reduce(met, &sum, &sum, 1, TUTTI_I32, TUTTI_SUM, NULL));
  CHECK(sum == ranks * (ranks - 1) / 2);
  tutti_group_destroy(met);
  tutti_store_free(store);
  CHECK_OK(tutti_barrier(group, NULL));
  tutti_store_server_free(server);
}
