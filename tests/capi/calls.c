/* tutti_call in full, point to point, and works. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"

static tutti_buffer buffer_of(void* data, size_t count, tutti_dtype dtype) {
  tutti_buffer buffer = TUTTI_BUFFER_INIT;
  buffer.data = data;
  buffer.count = count;
  buffer.dtype = dtype;
  return buffer;
}

/* The operand of the lower rank in front: x then y becomes 10 x + y, which is not commutative. */
static void append_digit(const void* in, void* inout, size_t count, tutti_dtype dtype,
                         void* context) {
  const int* low = in;
  int* high = inout;
  size_t i;
  for (i = 0; i < count; ++i) {
    int places = 10;
    while (places <= high[i]) places *= 10;
    high[i] = low[i] * places + high[i];
  }
  if (dtype == TUTTI_I32) *(int*)context = 1;
}

static void check_user_reduction(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  int digit = rank + 1, digits = 0, was_called = 0, expected = 0, r;
  tutti_user_reduction* append = NULL;
  tutti_call call = TUTTI_CALL_INIT;
  tutti_buffer in = buffer_of(&digit, 1, TUTTI_I32), out = buffer_of(&digits, 1, TUTTI_I32);
  for (r = 0; r < ranks; ++r) expected = 10 * expected + r + 1;

  CHECK_OK(tutti_user_reduction_create("append_digit", append_digit, &was_called, 0, &append));
  call.collective = TUTTI_ALL_REDUCE;
  call.input = &in;
  call.input_buffers = 1;
  call.output = &out;
  call.output_buffers = 1;
  call.op = TUTTI_USER;
  call.user = append;
  CHECK_OK(tutti_run(group, &call));
  CHECK(digits == expected);
  tutti_user_reduction_free(append);
}

/* Several buffers as one call, multiplied beforehand, under a name and a forced algorithm. */
static void check_coalesced(tutti_group* group) {
  const int ranks = tutti_group_size(group);
  double x[2] = {1, 2}, y = 3;
  tutti_buffer both[2];
  tutti_call call = TUTTI_CALL_INIT;
  tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
  both[0] = buffer_of(x, 2, TUTTI_F64);
  both[1] = buffer_of(&y, 1, TUTTI_F64);
  options.name = "coalesced";
  options.algorithm = TUTTI_RING;
  options.timeout_ns = INT64_C(60000000000);
  call.collective = TUTTI_ALL_REDUCE;
  call.input = call.output = both;
  call.input_buffers = call.output_buffers = 2;
  call.op = TUTTI_PREMUL_SUM;
  call.scalar = 0.5;
  call.options = &options;
  CHECK_WORK(tutti_start(group, &call));
  CHECK(x[0] == 0.5 * ranks && x[1] == ranks && y == 1.5 * ranks);
}

/* One buffer per rank instead of a contiguous one. */
static void check_lists(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  short mine = (short)(rank + 7);
  short* each = calloc((size_t)ranks, sizeof(short));
  tutti_buffer in = buffer_of(&mine, 1, TUTTI_I16);
  tutti_buffer* out = malloc(sizeof(tutti_buffer) * (size_t)ranks);
  tutti_call call = TUTTI_CALL_INIT;
  int r;
  /* Backwards in memory, so that the list's order is what counts. */
  for (r = 0; r < ranks; ++r) out[r] = buffer_of(&each[ranks - 1 - r], 1, TUTTI_I16);
  call.collective = TUTTI_ALL_GATHER;
  call.input = &in;
  call.input_buffers = 1;
  call.output = out;
  call.output_buffers = (size_t)ranks;
  CHECK_OK(tutti_run(group, &call));
  for (r = 0; r < ranks; ++r) CHECK(each[ranks - 1 - r] == r + 7);
  free(out);
  free(each);
}

/* bf16 on its way, f32 as a result: each buffer says its own type, and a rank that gets none says it too. */
static void check_wider_result(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  uint16_t x = (uint16_t)(rank == 0 ? 0x3f80 : 0x3b80); /* 1, and elsewhere 1/256 */
  float sum = -1;
  tutti_buffer in = buffer_of(&x, 1, TUTTI_BF16), out = buffer_of(&sum, 1, TUTTI_F32);
  tutti_call call = TUTTI_CALL_INIT;
  call.collective = TUTTI_ALL_REDUCE;
  call.input = &in;
  call.output = &out;
  call.input_buffers = call.output_buffers = 1;
  CHECK_OK(tutti_run(group, &call));
  CHECK(sum == 1 + (float)(ranks - 1) / 256);
  sum = -1;
  if (rank != 0) out.data = NULL;
  call.collective = TUTTI_REDUCE;
  CHECK_OK(tutti_run(group, &call));
  CHECK(sum == (rank == 0 ? 1 + (float)(ranks - 1) / 256 : -1));
}

void check_calls(tutti_group* group) {
  check_user_reduction(group);
  check_coalesced(group);
  check_lists(group);
  check_wider_result(group);
}

void check_transfers(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  int64_t mine = rank, theirs = -1, spare[2] = {-1, -1};
  tutti_received received = TUTTI_RECEIVED_INIT;
  tutti_transfer_part parts[2] = {TUTTI_TRANSFER_PART_INIT, TUTTI_TRANSFER_PART_INIT};
  tutti_work* work;

  parts[0].buffer = buffer_of(&mine, 1, TUTTI_I64);
  parts[0].peer = next;
  parts[1].kind = TUTTI_RECV;
  parts[1].buffer = buffer_of(&theirs, 1, TUTTI_I64);
  parts[1].peer = previous;
  CHECK_WORK(tutti_transfer(group, parts, 2, NULL));
  CHECK(theirs == previous);

  work = tutti_isend(group, &mine, 1, TUTTI_I64, next, 5, NULL);
  CHECK_OK(tutti_recv(group, spare, 2, TUTTI_I64, TUTTI_ANY_SOURCE, 5, &received, NULL));
  CHECK(received.source == previous && received.tag == 5 && received.bytes == sizeof(int64_t));
  CHECK(spare[0] == previous && spare[1] == -1);
  CHECK_WORK(work);

  work = tutti_irecv(group, &theirs, 1, TUTTI_I64, previous, 6, NULL);
  CHECK_OK(tutti_send(group, &mine, 1, TUTTI_I64, next, 6, NULL));
  CHECK_OK(tutti_work_wait(work, -1));
  CHECK_OK(tutti_work_received(work, &received));
  CHECK(received.source == previous && received.tag == 6);
  tutti_work_free(work);
}

/* Structs as programs knew them before buffers had `ready` and options had `device`. */
typedef struct {
  size_t size;
  void* data;
  size_t count;
  tutti_dtype dtype;
  tutti_device device;
} older_buffer;
typedef struct {
  size_t size;
  tutti_transfer_kind kind;
  older_buffer buffer;
  int peer;
  uint32_t tag;
} older_part;

static older_part older(tutti_transfer_kind kind, int64_t* data, int peer) {
  older_part part = {
      sizeof(older_part), TUTTI_SEND, {sizeof(older_buffer), NULL, 1, TUTTI_I64, TUTTI_CPU}, 0, 11};
  part.kind = kind;
  part.buffer.data = data;
  part.peer = peer;
  return part;
}

void check_older_programs(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  int64_t mine = rank, theirs = -1;
  older_part parts[2];
  older_buffer buffer;
  tutti_call call = TUTTI_CALL_INIT;
  tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
  tutti_work* work;

  options.size = offsetof(tutti_call_options, device);
  options.device = (tutti_device)99; /* behind what such a program has */
  parts[0] = older(TUTTI_SEND, &mine, next);
  parts[1] = older(TUTTI_RECV, &theirs, previous);
  CHECK_WORK(tutti_transfer(group, (const tutti_transfer_part*)(const void*)parts, 2, &options));
  CHECK(theirs == previous);

  buffer = parts[0].buffer;
  call.collective = TUTTI_ALL_REDUCE;
  call.input = call.output = (const tutti_buffer*)(const void*)&buffer;
  call.input_buffers = call.output_buffers = 1;
  call.options = &options;
  CHECK_OK(tutti_run(group, &call));
  CHECK(mine == ranks * (ranks - 1) / 2);

  parts[0].size = sizeof(size_t) + 1; /* too short to hold a buffer */
  work = tutti_transfer(group, (const tutti_transfer_part*)(const void*)parts, 1, NULL);
  CHECK_CODE(tutti_work_wait(work, -1), TUTTI_INVALID_ARGUMENT);
  tutti_work_free(work);
}

static void remember(const tutti_status* status, void* context) {
  *(tutti_code*)context = tutti_status_code(status);
}

/* What comes round on one group is added up on another; nobody waits in between. */
static void check_after(tutti_group* group) {
  const int rank = tutti_group_rank(group), ranks = tutti_group_size(group);
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  int sent = rank + 1, come = 0;
  tutti_group* sums = NULL;
  const tutti_work* works[3] = {NULL, NULL, NULL};
  tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
  tutti_work *receive, *send;
  CHECK_OK(tutti_group_duplicate(group, NULL, &sums));
  works[0] = receive = tutti_irecv(group, &come, 1, TUTTI_I32, previous, 78, NULL);
  works[1] = send = tutti_isend(group, &sent, 1, TUTTI_I32, next, 78, NULL);
  options.after = works;
  options.after_count = 3;
  CHECK_CODE(tutti_all_reduce(sums, &come, &come, 1, TUTTI_I32, TUTTI_SUM, &options),
             TUTTI_INVALID_ARGUMENT);
  options.after_count = 2;
  CHECK_OK(tutti_all_reduce(sums, &come, &come, 1, TUTTI_I32, TUTTI_SUM, &options));
  CHECK(come == ranks * (ranks + 1) / 2);
  options.after = NULL;
  CHECK_CODE(tutti_barrier(sums, &options), TUTTI_INVALID_ARGUMENT);
  tutti_work_free(receive);
  tutti_work_free(send);
  tutti_group_destroy(sums);
}

void check_works(tutti_group* group) {
  const int64_t a_moment_ns = 1000000;
  int never = 0;
  tutti_code outcome = TUTTI_INTERNAL;
  tutti_call_options hurried = TUTTI_CALL_OPTIONS_INIT;
  tutti_work* work = tutti_barrier_async(group, NULL);
  CHECK_OK(tutti_work_wait(work, -1));
  CHECK_OK(tutti_work_on_complete(work, remember, &outcome));
  CHECK(outcome == TUTTI_OK); /* it was done, so that the callback ran at once */
  CHECK_OK(tutti_work_status(work));
  tutti_work_free(work);

  /* Nobody ever sends with this tag. Giving up the wait leaves the receive under way; its own
   * deadline ends it. */
  hurried.timeout_ns = 200 * a_moment_ns;
  work = tutti_irecv(group, &never, 1, TUTTI_I32, tutti_group_rank(group), 77, &hurried);
  CHECK_CODE(tutti_work_wait(work, a_moment_ns), TUTTI_TIMED_OUT);
  CHECK_CODE(tutti_work_wait(work, -1), TUTTI_TIMED_OUT);
  CHECK_CODE(tutti_work_status(work), TUTTI_TIMED_OUT);
  tutti_work_free(work);
  check_after(group);
}
