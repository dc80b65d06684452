/* Uses the whole C API from C99: alone, as a group of one, and on several ranks under tutti run.
 * Says one line per rank and exits 0 when every promise held. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"

int failures = 0;

void check_code(tutti_status* status, tutti_code expected, const char* file, int line) {
  if (tutti_status_code(status) != expected) {
    fprintf(stderr, "%s:%d: %s where %s was expected: %s\n", file, line,
            tutti_code_name(tutti_status_code(status)), tutti_code_name(expected),
            tutti_status_message(status));
    ++failures;
  }
  tutti_status_free(status);
}

void check_work(tutti_work* work, const char* file, int line) {
  check_code(tutti_work_wait(work, -1), TUTTI_OK, file, line);
  if (!tutti_work_done(work)) {
    fprintf(stderr, "%s:%d: not done after its wait\n", file, line);
    ++failures;
  }
  tutti_work_free(work);
}

void check_vocabulary(void) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
           TUTTI_VERSION_PATCH);
  CHECK(strcmp(tutti_version(), version) == 0);
  CHECK(strcmp(tutti_version(), EXPECTED_VERSION) == 0);
  CHECK(strcmp(tutti_code_name(TUTTI_PEER_LOST), "peer_lost") == 0);
  CHECK(strcmp(tutti_dtype_name(TUTTI_BOOL), "bool") == 0);
  CHECK(strcmp(tutti_dtype_name(TUTTI_F8E5M2), "f8e5m2") == 0);
  CHECK(strcmp(tutti_reduce_op_name(TUTTI_PREMUL_SUM), "premul_sum") == 0);
  CHECK(strcmp(tutti_collective_name(TUTTI_EXCLUSIVE_SCAN), "exclusive_scan") == 0);
  CHECK(strcmp(tutti_algorithm_name(TUTTI_DOUBLE_BINARY_TREE), "double_binary_tree") == 0);
  CHECK(strcmp(tutti_algorithm_name((tutti_algorithm)99), "unknown") == 0);
  CHECK(tutti_dtype_size(TUTTI_BF16) == 2 && tutti_dtype_size(TUTTI_U64) == 8);
  CHECK(tutti_dtype_size((tutti_dtype)99) == 0);
}

/* The caller's mistakes come back as a status or inside the work; nothing crashes or is thrown. */
void check_mistakes(tutti_group* group) {
  float x[4] = {0, 0, 0, 0};
  tutti_call unsized = TUTTI_CALL_INIT;
  tutti_call_options unsized_options = TUTTI_CALL_OPTIONS_INIT;
  tutti_work* work = NULL;

  CHECK_CODE(tutti_all_reduce(NULL, x, x, 4, TUTTI_F32, TUTTI_SUM, NULL), TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_all_reduce(group, x, x, 4, (tutti_dtype)99, TUTTI_SUM, NULL),
             TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_all_reduce(group, x, x, 4, TUTTI_F32, (tutti_reduce_op)99, NULL),
             TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_all_reduce(group, x, x, 4, TUTTI_F32, TUTTI_BXOR, NULL), TUTTI_INVALID_ARGUMENT);
  unsized.size = 0;
  CHECK_CODE(tutti_run(group, &unsized), TUTTI_INVALID_ARGUMENT);
  unsized_options.size = 0;
  CHECK_CODE(tutti_barrier(group, &unsized_options), TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_run(group, NULL), TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_group_from_environment(NULL, NULL), TUTTI_INVALID_ARGUMENT);

  work = tutti_broadcast_async(NULL, x, 4, TUTTI_F32, 0, NULL);
  CHECK(tutti_work_done(work));
  CHECK_CODE(tutti_work_wait(work, -1), TUTTI_INVALID_ARGUMENT);
  tutti_work_free(work);

  tutti_status_free(NULL);
  tutti_work_free(NULL);
  tutti_group_destroy(NULL);
  tutti_store_free(NULL);
  CHECK(tutti_group_rank(NULL) == -1 && tutti_group_size(NULL) == 0);
}

/* The checks of main but for those that need no group, or make their own. */
static void check_group(tutti_group* group) {
  check_mistakes(group);
  check_collectives(group);
  check_async_collectives(group);
  check_uneven_collectives(group);
  check_async_uneven_collectives(group);
  check_calls(group);
  check_transfers(group);
  check_older_programs(group);
  check_works(group);
  check_memory(group);
  check_pool(group);
  check_groups(group);
  check_meeting(group);
  check_late_rank(group);
  check_abort(group);
}

/* With "devices" as argument: only what has to do with GPUs. */
int main(int count, char** words) {
  const int only_devices = count > 1 && strcmp(words[1], "devices") == 0;
  tutti_group* group = NULL;
  if (!only_devices) {
    check_vocabulary();
    if (getenv("TUTTI_RANK") == NULL)
      check_recovery(); /* starts ranks of its own: once is enough */
    check_store();
    check_file_store();
  }
  CHECK_OK(tutti_group_from_environment(NULL, &group));
  if (group == NULL) return 1;
  if (!only_devices) check_group(group);
  check_devices(group);
  CHECK_OK(tutti_barrier(group, NULL));
  printf("rank %d of %d: %d failures\n", tutti_group_rank(group), tutti_group_size(group),
         failures);
  tutti_group_destroy(group);
  return failures == 0 ? 0 : 1;
}
