/* Groups made from groups, symmetric memory, predictions, a deadline and an abort. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"

static int sum_of_ones(tutti_group* group) {
  int one = 1;
  CHECK_OK(tutti_all_reduce(group, &one, &one, 1, TUTTI_I32, TUTTI_SUM, NULL));
  return one;
}

/* Lasts until the next call. */
static const tutti_group_spec* called(const char* name) {
  static tutti_group_spec spec = TUTTI_GROUP_SPEC_INIT;
  spec.name = name;
  return &spec;
}

static void check_specs(tutti_group* group) {
  tutti_group* copy = NULL;
  tutti_group_spec spec = TUTTI_GROUP_SPEC_INIT;
  spec.reduction_order = TUTTI_ORDER_RANK;
  spec.urgency = TUTTI_URGENT;
  CHECK_OK(tutti_group_duplicate(group, &spec, &copy));
  CHECK(sum_of_ones(copy) == tutti_group_size(group));
  tutti_group_destroy(copy);
  spec.reduction_order = TUTTI_ORDER_TREE;
  CHECK_OK(tutti_group_duplicate(group, &spec, &copy));
  CHECK(sum_of_ones(copy) == tutti_group_size(group));
  tutti_group_destroy(copy);
  spec.reduction_order = TUTTI_ORDER_TREE + 1;
  CHECK_CODE(tutti_group_duplicate(group, &spec, &copy), TUTTI_INVALID_ARGUMENT);
  spec.reduction_order = 99;
  CHECK_CODE(tutti_group_duplicate(group, &spec, &copy), TUTTI_INVALID_ARGUMENT);
  spec.reduction_order = -1;
  spec.urgency = (tutti_urgency)7;
  CHECK_CODE(tutti_group_duplicate(group, &spec, &copy), TUTTI_INVALID_ARGUMENT);
}

void check_groups(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  const int in_half = rank % 2 == 0 ? (ranks + 1) / 2 : ranks / 2;
  int last = ranks - 1;
  char text[8];
  tutti_group *half = NULL, *most = NULL, *alone = NULL, *copy = NULL;

  CHECK(strcmp(tutti_group_name(group), "world") == 0);
  CHECK(tutti_group_describe(group, text, sizeof text) > 0 && strlen(text) < sizeof text);
  CHECK_OK(tutti_group_health(group));
  check_specs(group);

  CHECK_OK(
      tutti_group_split(group, rank % 2, -rank, called("half"), &half)); /* highest rank first */
  CHECK(tutti_group_size(half) == in_half);
  CHECK(tutti_group_rank(half) == in_half - 1 - rank / 2);
  CHECK(sum_of_ones(half) == in_half);

  CHECK_OK(tutti_group_split(group, rank == last && ranks > 1 ? -1 : 0, 0, NULL, &most));
  CHECK((most == NULL) == (rank == last && ranks > 1));
  if (most != NULL) CHECK(sum_of_ones(most) == (ranks > 1 ? ranks - 1 : 1));

  if (rank == last) {
    CHECK_OK(tutti_group_subgroup(group, &last, 1, 3, called("last"), &alone));
    CHECK(tutti_group_size(alone) == 1 && sum_of_ones(alone) == 1);
  }
  CHECK_OK(tutti_group_duplicate(group, called("copy"), &copy));
  CHECK(strcmp(tutti_group_name(copy), "copy") == 0 && sum_of_ones(copy) == ranks);

  tutti_group_destroy(copy);
  tutti_group_destroy(alone);
  tutti_group_destroy(most);
  tutti_group_destroy(half);
}

void check_memory(tutti_group* group) {
  const size_t count = 1000;
  const int ranks = tutti_group_size(group);
  tutti_memory* memory = NULL;
  tutti_prediction prediction = TUTTI_PREDICTION_INIT;
  float* x;
  size_t i;
  int wrong = 0;

  CHECK_OK(tutti_group_allocate(group, count * sizeof(float), &memory));
  CHECK(tutti_memory_bytes(memory) >= count * sizeof(float));
  x = tutti_memory_data(memory);
  for (i = 0; i < count; ++i) {
    wrong += x[i] != 0.0f;
    x[i] = (float)i;
  }
  CHECK(wrong == 0);
  CHECK_OK(tutti_all_reduce(group, x, x, count, TUTTI_F32, TUTTI_SUM, NULL));
  for (i = 0; i < count; ++i) wrong += x[i] != (float)i * (float)ranks;
  CHECK(wrong == 0);
  tutti_memory_free(memory);

  CHECK_OK(tutti_group_predict(group, TUTTI_ALL_REDUCE, 1 << 20, &prediction));
  CHECK(prediction.time_ns >= 0);
  CHECK_CODE(tutti_group_predict(group, (tutti_collective)99, 1, &prediction),
             TUTTI_INVALID_ARGUMENT);
}

/* Ranks take pieces of different sizes: theirs lie elsewhere in the pool than the others'. */
void check_pool(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  const size_t count = 40000, before = 1000 * (size_t)(rank + 1);
  tutti_pool* pool = NULL;
  tutti_memory *first = NULL, *second = NULL, *none = NULL;
  float* x;
  size_t i;
  int wrong = 0;

  CHECK_CODE(tutti_pool_create(NULL, 1 << 20, TUTTI_CPU, &pool), TUTTI_INVALID_ARGUMENT);
  CHECK_OK(tutti_pool_create(group, 1 << 20, TUTTI_CPU, &pool));
  CHECK(tutti_pool_bytes(pool) == 1 << 20 && tutti_pool_bytes_free(pool) == 1 << 20);
  CHECK_OK(tutti_pool_take(pool, before, &first));
  CHECK_OK(tutti_pool_take(pool, count * sizeof(float), &second));
  CHECK(tutti_pool_largest_free(pool) == tutti_pool_bytes_free(pool));
  CHECK_CODE(tutti_pool_take(pool, 1 << 20, &none), TUTTI_OUT_OF_MEMORY);
  CHECK(none == NULL);
  tutti_memory_free(first);
  tutti_pool_free(pool); /* the piece keeps the memory */
  CHECK(tutti_pool_bytes(NULL) == 0 && tutti_pool_peak_bytes(NULL) == 0);
  x = tutti_memory_data(second);
  for (i = 0; i < count; ++i) x[i] = (float)(i % 100);
  CHECK_OK(tutti_all_reduce(group, x, x, count, TUTTI_F32, TUTTI_SUM, NULL));
  for (i = 0; i < count; ++i) wrong += x[i] != (float)(i % 100) * (float)ranks;
  CHECK(wrong == 0);
  CHECK_OK(tutti_barrier(group, NULL)); /* nobody lets go while another is in the call */
  tutti_memory_free(second);
}

/* An abort ends this group alone: the one it was duplicated from goes on. */
void check_abort(tutti_group* group) {
  tutti_group *doomed = NULL, *rest = NULL, *again = NULL;
  tutti_status* health;
  CHECK_OK(tutti_group_duplicate(group, called("doomed"), &doomed));
  CHECK_OK(tutti_barrier(group, NULL));
  tutti_group_abort(doomed, "enough for today");
  CHECK_CODE(tutti_barrier(doomed, NULL), TUTTI_ABORTED);
  health = tutti_group_health(doomed);
  CHECK(strstr(tutti_status_message(health), "enough for today") != NULL);
  CHECK_CODE(health, TUTTI_ABORTED);
  /* Nobody is lost: all go on, in a new group. */
  CHECK_OK(tutti_group_shrink(doomed, "rest", 0, &rest));
  CHECK(strcmp(tutti_group_name(rest), "rest") == 0);
  CHECK(sum_of_ones(rest) == tutti_group_size(group));
  CHECK_CODE(tutti_group_shrink(doomed, NULL, 0, &again), TUTTI_INVALID_ARGUMENT);
  tutti_group_destroy(rest);
  tutti_group_destroy(doomed);
  CHECK(sum_of_ones(group) == tutti_group_size(group));
}

/* The last rank does not come: all that a status holds says so. */
void check_late_rank(tutti_group* group) {
  const int rank = tutti_group_rank(group), last = tutti_group_size(group) - 1;
  tutti_group* copy = NULL;
  tutti_call_options hurried = TUTTI_CALL_OPTIONS_INIT;
  tutti_status* status;
  hurried.timeout_ns = 300000000;
  CHECK_OK(tutti_group_duplicate(group, called("hurried"), &copy));
  if (rank != last) {
    status = tutti_barrier(copy, &hurried);
    /* Whoever noticed first told the others. */
    CHECK(tutti_status_rank(status) >= 0 && tutti_status_rank(status) < last);
    CHECK(tutti_status_peer(status) == last);
    CHECK(tutti_status_sequence(status) > 0);
    CHECK_CODE(status, TUTTI_TIMED_OUT);
  }
  CHECK_OK(tutti_barrier(group, NULL));
  tutti_group_destroy(copy);
  CHECK(tutti_status_rank(NULL) == -1 && tutti_status_peer(NULL) == -1);
  CHECK(tutti_status_sequence(NULL) == 0);
}
