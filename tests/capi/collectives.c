/* Every collective by name, blocking and async, even and uneven parts. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"

enum { kPart = 3 };

/* Element i of what rank `rank` brings. */
static int value(int rank, int i) { return 10 * rank + i; }

static int* filled(int rank, int count) {
  int* data = malloc(sizeof(int) * (size_t)(count > 0 ? count : 1));
  int i;
  for (i = 0; i < count; ++i) data[i] = value(rank, i);
  return data;
}

/* Sum over all ranks of value(rank, i). */
static int total(int ranks, int i) { return 10 * ranks * (ranks - 1) / 2 + ranks * i; }

void check_collectives(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group), root = ranks - 1;
  int* mine = filled(rank, kPart * ranks);
  int* whole = calloc((size_t)(kPart * ranks), sizeof(int));
  int part[kPart] = {-1, -1, -1};
  int r, i;

  memcpy(part, mine, sizeof part);
  CHECK_OK(tutti_broadcast(group, part, kPart, TUTTI_I32, root, NULL));
  for (i = 0; i < kPart; ++i) CHECK(part[i] == value(root, i));

  CHECK_OK(tutti_reduce(group, mine, part, kPart, TUTTI_I32, TUTTI_SUM, root, NULL));
  for (i = 0; i < kPart; ++i) CHECK(part[i] == (rank == root ? total(ranks, i) : value(root, i)));

  CHECK_OK(tutti_all_reduce(group, mine, part, kPart, TUTTI_I32, TUTTI_MAX, NULL));
  for (i = 0; i < kPart; ++i) CHECK(part[i] == value(ranks - 1, i));

  CHECK_OK(tutti_all_gather(group, mine, whole, kPart, TUTTI_I32, NULL));
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < kPart; ++i) CHECK(whole[r * kPart + i] == value(r, i));

  memset(whole, 0, sizeof(int) * (size_t)(kPart * ranks));
  CHECK_OK(tutti_gather(group, mine, whole, kPart, TUTTI_I32, root, NULL));
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < kPart; ++i) CHECK(whole[r * kPart + i] == (rank == root ? value(r, i) : 0));

  CHECK_OK(tutti_scatter(group, mine, part, kPart, TUTTI_I32, root, NULL));
  for (i = 0; i < kPart; ++i) CHECK(part[i] == value(root, rank * kPart + i));

  CHECK_OK(tutti_reduce_scatter(group, mine, part, kPart, TUTTI_I32, TUTTI_SUM, NULL));
  for (i = 0; i < kPart; ++i) CHECK(part[i] == total(ranks, rank * kPart + i));

  CHECK_OK(tutti_all_to_all(group, mine, whole, kPart, TUTTI_I32, NULL));
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < kPart; ++i) CHECK(whole[r * kPart + i] == value(r, rank * kPart + i));

  CHECK_OK(tutti_scan(group, mine, part, kPart, TUTTI_I32, TUTTI_SUM, NULL));
  for (i = 0; i < kPart; ++i) CHECK(part[i] == total(rank + 1, i));

  for (i = 0; i < kPart; ++i) part[i] = -1;
  CHECK_OK(tutti_exclusive_scan(group, mine, part, kPart, TUTTI_I32, TUTTI_SUM, NULL));
  for (i = 0; i < kPart; ++i) CHECK(part[i] == (rank == 0 ? -1 : total(rank, i)));

  CHECK_OK(tutti_barrier(group, NULL));
  free(whole);
  free(mine);
}

/* The same calls through their async forms, several under way at once. */
void check_async_collectives(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  int* mine = filled(rank, kPart * ranks);
  int* gathered = calloc((size_t)(kPart * ranks), sizeof(int));
  int* exchanged = calloc((size_t)(kPart * ranks), sizeof(int));
  int summed[kPart], scattered[kPart], prefix[kPart], from_root[kPart], rooted[kPart];
  int r, i;
  tutti_work* works[8];
  size_t w;

  memcpy(from_root, mine, sizeof from_root);
  works[0] = tutti_all_reduce_async(group, mine, summed, kPart, TUTTI_I32, TUTTI_SUM, NULL);
  works[1] = tutti_all_gather_async(group, mine, gathered, kPart, TUTTI_I32, NULL);
  works[2] = tutti_reduce_scatter_async(group, mine, scattered, kPart, TUTTI_I32, TUTTI_SUM, NULL);
  works[3] = tutti_all_to_all_async(group, mine, exchanged, kPart, TUTTI_I32, NULL);
  works[4] = tutti_scan_async(group, mine, prefix, kPart, TUTTI_I32, TUTTI_SUM, NULL);
  works[5] = tutti_broadcast_async(group, from_root, kPart, TUTTI_I32, 0, NULL);
  works[6] = tutti_reduce_async(group, mine, rooted, kPart, TUTTI_I32, TUTTI_SUM, 0, NULL);
  works[7] = tutti_barrier_async(group, NULL);
  for (w = 8; w-- > 0;) CHECK_WORK(works[w]);

  for (i = 0; i < kPart; ++i) {
    CHECK(summed[i] == total(ranks, i));
    CHECK(scattered[i] == total(ranks, rank * kPart + i));
    CHECK(prefix[i] == total(rank + 1, i));
    CHECK(from_root[i] == value(0, i));
    if (rank == 0) CHECK(rooted[i] == total(ranks, i));
    for (r = 0; r < ranks; ++r) {
      CHECK(gathered[r * kPart + i] == value(r, i));
      CHECK(exchanged[r * kPart + i] == value(r, rank * kPart + i));
    }
  }
  memset(gathered, 0, sizeof(int) * (size_t)(kPart * ranks));
  for (i = 0; i < kPart; ++i) prefix[i] = -1;
  CHECK_WORK(tutti_gather_async(group, mine, gathered, kPart, TUTTI_I32, 0, NULL));
  CHECK_WORK(tutti_scatter_async(group, mine, summed, kPart, TUTTI_I32, 0, NULL));
  CHECK_WORK(tutti_exclusive_scan_async(group, mine, prefix, kPart, TUTTI_I32, TUTTI_SUM, NULL));
  for (i = 0; i < kPart; ++i) {
    CHECK(summed[i] == value(0, rank * kPart + i));
    CHECK(prefix[i] == (rank == 0 ? -1 : total(rank, i)));
    for (r = 0; r < ranks; ++r) CHECK(gathered[r * kPart + i] == (rank == 0 ? value(r, i) : 0));
  }
  free(exchanged);
  free(gathered);
  free(mine);
}

/* Part r has r elements, so that rank 0's is empty. */
void check_uneven_collectives(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group), root = 0;
  const int all = ranks * (ranks - 1) / 2;
  size_t* counts = malloc(sizeof(size_t) * (size_t)ranks);
  size_t* own_counts = malloc(sizeof(size_t) * (size_t)ranks);
  int* mine = filled(rank, ranks * ranks + 1);
  int* whole = calloc((size_t)(ranks * ranks + 1), sizeof(int));
  int r, i, at;
  for (r = 0; r < ranks; ++r) {
    counts[r] = (size_t)r;
    own_counts[r] = (size_t)rank;
  }

  CHECK_OK(tutti_all_gather_v(group, mine, whole, counts, TUTTI_I32, NULL));
  for (r = 0, at = 0; r < ranks; ++r)
    for (i = 0; i < r; ++i, ++at) CHECK(whole[at] == value(r, i));

  memset(whole, 0, sizeof(int) * (size_t)(ranks * ranks + 1));
  CHECK_OK(tutti_gather_v(group, mine, (size_t)rank, whole, rank == root ? counts : NULL, TUTTI_I32,
                          root, NULL));
  for (r = 0, at = 0; r < ranks && rank == root; ++r)
    for (i = 0; i < r; ++i, ++at) CHECK(whole[at] == value(r, i));

  CHECK_OK(tutti_scatter_v(group, rank == root ? mine : NULL, rank == root ? counts : NULL, whole,
                           (size_t)rank, TUTTI_I32, root, NULL));
  for (i = 0, at = rank * (rank - 1) / 2; i < rank; ++i) CHECK(whole[i] == value(root, at + i));

  CHECK_OK(tutti_reduce_scatter_v(group, mine, counts, whole, TUTTI_I32, TUTTI_SUM, NULL));
  for (i = 0, at = rank * (rank - 1) / 2; i < rank; ++i) CHECK(whole[i] == total(ranks, at + i));

  /* Rank s sends s elements to everybody and gets r from rank r. */
  CHECK_OK(tutti_all_to_all_v(group, mine, own_counts, whole, counts, TUTTI_I32, NULL));
  for (r = 0, at = 0; r < ranks; ++r)
    for (i = 0; i < r; ++i, ++at) CHECK(whole[at] == value(r, rank * r + i));
  CHECK(at == all);

  free(whole);
  free(mine);
  free(own_counts);
  free(counts);
}

/* Each into memory that holds none of what it brings: a call that did nothing is seen. */
void check_async_uneven_collectives(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group), root = ranks - 1;
  const int first = rank * (rank - 1) / 2; /* of this rank's part */
  size_t* counts = malloc(sizeof(size_t) * (size_t)ranks);
  size_t* own_counts = malloc(sizeof(size_t) * (size_t)ranks);
  int* mine = filled(rank, ranks * ranks + 1);
  int* results[5];
  int r, i, at;
  tutti_work* works[5];
  size_t w;
  for (r = 0; r < ranks; ++r) {
    counts[r] = (size_t)r;
    own_counts[r] = (size_t)rank;
  }
  for (w = 0; w < 5; ++w) {
    results[w] = malloc(sizeof(int) * (size_t)(ranks * ranks + 1));
    for (i = 0; i < ranks * ranks + 1; ++i) results[w][i] = -1;
  }
  works[0] = tutti_all_gather_v_async(group, mine, results[0], counts, TUTTI_I32, NULL);
  works[1] = tutti_all_to_all_v_async(group, mine, own_counts, results[1], counts, TUTTI_I32, NULL);
  works[2] = tutti_gather_v_async(group, mine, (size_t)rank, results[2],
                                  rank == root ? counts : NULL, TUTTI_I32, root, NULL);
  works[3] = tutti_scatter_v_async(group, mine, rank == root ? counts : NULL, results[3],
                                   (size_t)rank, TUTTI_I32, root, NULL);
  works[4] =
      tutti_reduce_scatter_v_async(group, mine, counts, results[4], TUTTI_I32, TUTTI_SUM, NULL);
  for (w = 5; w-- > 0;) CHECK_WORK(works[w]);

  for (r = 0, at = 0; r < ranks; ++r)
    for (i = 0; i < r; ++i, ++at) {
      CHECK(results[0][at] == value(r, i));
      CHECK(results[1][at] == value(r, rank * r + i));
      CHECK(results[2][at] == (rank == root ? value(r, i) : -1));
    }
  for (i = 0; i < rank; ++i) {
    CHECK(results[3][i] == value(root, first + i));
    CHECK(results[4][i] == total(ranks, first + i));
  }
  for (w = 0; w < 5; ++w) free(results[w]);
  free(mine);
  free(own_counts);
  free(counts);
}
