/* Buffers on a GPU, streams, symmetric memory there; or, where there is no GPU, that the API says so. The
 * driver is found at run time: the program also runs where there is none, or an emulated one. */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

enum { kCount = 1000 };

/* ---- the driver, as far as it is needed here ---- */

typedef unsigned long long address; /* of the device */
typedef void* stream;
typedef void* event;

static struct {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*retain_context)(void**, int);
  int (*push_context)(void*);
  int (*allocate)(address*, size_t);
  int (*release)(address);
  int (*allocate_host)(void**, size_t, unsigned);
  int (*release_host)(void*);
  int (*create_stream)(stream*, unsigned, int);
  int (*destroy_stream)(stream);
  int (*synchronize)(stream);
  int (*copy)(address, address, size_t, stream);
  int (*operate)(stream, unsigned, uint64_t*, unsigned);
  int (*create_event)(event*, unsigned);
  int (*destroy_event)(event);
  int (*record)(event, stream);
} cuda;

/* C has no cast from what dlsym returns to a function. */
static int find(void* library, const char* name, void* function) {
  void* const symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static int find_all(void* library) {
  return find(library, "cuInit", &cuda.init) &&
         find(library, "cuDeviceGetCount", &cuda.device_count) &&
         find(library, "cuDevicePrimaryCtxRetain", &cuda.retain_context) &&
         find(library, "cuCtxPushCurrent_v2", &cuda.push_context) &&
         find(library, "cuMemAlloc_v2", &cuda.allocate) &&
         find(library, "cuMemFree_v2", &cuda.release) &&
         find(library, "cuMemHostAlloc", &cuda.allocate_host) &&
         find(library, "cuMemFreeHost", &cuda.release_host) &&
         find(library, "cuStreamCreateWithPriority", &cuda.create_stream) &&
         find(library, "cuStreamDestroy_v2", &cuda.destroy_stream) &&
         find(library, "cuStreamSynchronize", &cuda.synchronize) &&
         find(library, "cuMemcpyAsync", &cuda.copy) &&
         find(library, "cuStreamBatchMemOp_v2", &cuda.operate) &&
         find(library, "cuEventCreate", &cuda.create_event) &&
         find(library, "cuEventDestroy_v2", &cuda.destroy_event) &&
         find(library, "cuEventRecord", &cuda.record);
}

/* Whether there is a GPU; the first one is this thread's from then on. */
static int open_gpu(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
  int count = 0;
  if (library == NULL || !find_all(library)) return 0;
  if (cuda.init(0) != 0 || cuda.device_count(&count) != 0 || count == 0) return 0;
  return cuda.retain_context(&context, 0) == 0 && cuda.push_context(context) == 0;
}

/* ---- what the checks share ---- */

typedef struct {
  tutti_group* group;
  stream mine, other; /* streams that wait for nobody else */
  float* host;        /* kCount, pinned */
  address device;     /* kCount */
  volatile uint64_t* gate;
} bench;

static void* pointer(address where) { return (void*)(uintptr_t)where; }
static address number(const volatile void* where) { return (address)(uintptr_t)where; }

static void* pinned(size_t bytes) {
  void* data = NULL;
  CHECK(cuda.allocate_host(&data, bytes, 0) == 0);
  memset(data, 0, bytes);
  return data;
}

static void write_to(const bench* b, address to, float value, stream in) {
  int i;
  for (i = 0; i < kCount; ++i) b->host[i] = value + (float)i;
  CHECK(cuda.copy(to, number(b->host), kCount * sizeof(float), in) == 0);
}

/* Whether `from` holds ranks' values v, v + 1 … summed up: `sum` and `ranks` times i. */
static int holds(const bench* b, address from, float sum, int ranks, stream in) {
  int i, right = 1;
  CHECK(cuda.copy(number(b->host), from, kCount * sizeof(float), in) == 0);
  CHECK(cuda.synchronize(in) == 0);
  for (i = 0; i < kCount; ++i) right = right && b->host[i] == sum + (float)(ranks * i);
  return right;
}

static float sum_of_ranks(const tutti_group* group) {
  const int ranks = tutti_group_size(group);
  return (float)(ranks * (ranks - 1) / 2);
}

static tutti_call_options options_in(stream in) {
  tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
  options.device = TUTTI_CUDA;
  options.stream = in;
  return options;
}

/* What is put into `in` next waits until the gate is opened. Not beside memory that was freed just now: ranks
   that close it wait for all of their streams. */
static void close_gate(bench* b, stream in) {
  uint64_t wait[6] = {4 /* until a word of 64 bits is at least */, 0, 1, 0, 0, 0};
  CHECK_OK(tutti_barrier(b->group, NULL));
  poll(NULL, 0, 300 /* ms */);
  *b->gate = 0;
  wait[1] = number(b->gate);
  CHECK(cuda.operate(in, 1, wait, 0) == 0);
}
static void open_gate(bench* b) { *b->gate = 1; }

/* ---- the checks ---- */

static void check_blocking_calls(bench* b) {
  const int rank = tutti_group_rank(b->group), ranks = tutti_group_size(b->group);
  tutti_call_options options = options_in(b->mine);
  tutti_received received = TUTTI_RECEIVED_INIT;
  void* data = pointer(b->device);
  tutti_work* work;

  /* Between what is in the stream and what comes there next. */
  write_to(b, b->device, (float)rank, b->mine);
  CHECK_OK(tutti_all_reduce(b->group, data, data, kCount, TUTTI_F32, TUTTI_SUM, &options));
  CHECK(holds(b, b->device, sum_of_ranks(b->group), ranks, b->mine));

  write_to(b, b->device, (float)rank, b->mine);
  CHECK_OK(tutti_broadcast(b->group, data, kCount, TUTTI_F32, ranks - 1, &options));
  CHECK(holds(b, b->device, (float)(ranks - 1), 1, b->mine));

  /* A side that only the root has is not looked at elsewhere. */
  write_to(b, b->device, (float)rank, b->mine);
  CHECK_OK(tutti_reduce(b->group, data, rank == 0 ? data : NULL, kCount, TUTTI_F32, TUTTI_SUM, 0,
                        &options));
  CHECK(holds(b, b->device, rank == 0 ? sum_of_ranks(b->group) : (float)rank, rank == 0 ? ranks : 1,
              b->mine));

  /* Round the ring, with room for what is sent and what comes. */
  write_to(b, b->device, (float)rank, b->mine);
  {
    address inbox = 0;
    CHECK(cuda.allocate(&inbox, kCount * sizeof(float)) == 0);
    work = tutti_isend(b->group, data, kCount, TUTTI_F32, (rank + 1) % ranks, 9, &options);
    CHECK_OK(tutti_recv(b->group, pointer(inbox), kCount, TUTTI_F32, TUTTI_ANY_SOURCE, 9, &received,
                        &options));
    CHECK(received.source == (rank + ranks - 1) % ranks && received.tag == 9);
    CHECK(received.bytes == kCount * sizeof(float));
    CHECK(holds(b, inbox, (float)received.source, 1, b->other));
    CHECK_WORK(work);
    tutti_group_forget(b->group, pointer(inbox));
    CHECK(cuda.release(inbox) == 0);
  }
}

/* The gate holds back what the call has to wait for: it cannot end before, and what waits for it comes after. */
static void check_streams(bench* b) {
  const int rank = tutti_group_rank(b->group), ranks = tutti_group_size(b->group);
  tutti_call_options options = options_in(b->mine);
  void* data = pointer(b->device);
  tutti_work* work;

  close_gate(b, b->mine);
  write_to(b, b->device, (float)rank, b->mine);
  work = tutti_all_reduce_async(b->group, data, data, kCount, TUTTI_F32, TUTTI_SUM, &options);
  CHECK_OK(tutti_work_wait_on(work, b->other));
  CHECK_CODE(tutti_work_wait(work, 20000000), TUTTI_TIMED_OUT);
  CHECK(!tutti_work_done(work));
  open_gate(b);
  CHECK(holds(b, b->device, sum_of_ranks(b->group), ranks, b->other));
  CHECK_WORK(work);
}

/* In full: buffers that say themselves where they are, and after which event their contents are there. */
static void check_ready(bench* b) {
  const int rank = tutti_group_rank(b->group), ranks = tutti_group_size(b->group);
  tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
  tutti_buffer buffer = TUTTI_BUFFER_INIT;
  tutti_call call = TUTTI_CALL_INIT;
  tutti_transfer_part part = TUTTI_TRANSFER_PART_INIT;
  tutti_work* work;
  event written = NULL;

  CHECK(cuda.create_event(&written, 2 /* without times */) == 0);
  close_gate(b, b->other);
  write_to(b, b->device, (float)rank, b->other);
  CHECK(cuda.record(written, b->other) == 0);
  buffer.data = pointer(b->device);
  buffer.count = kCount;
  buffer.dtype = TUTTI_F32;
  buffer.device = TUTTI_CUDA;
  buffer.ready = written;
  options.stream = b->mine;
  call.collective = TUTTI_ALL_REDUCE;
  call.input = call.output = &buffer;
  call.input_buffers = call.output_buffers = 1;
  call.options = &options;
  work = tutti_start(b->group, &call);
  CHECK_CODE(tutti_work_wait(work, 20000000), TUTTI_TIMED_OUT);
  open_gate(b);
  CHECK_WORK(work);
  CHECK(holds(b, b->device, sum_of_ranks(b->group), ranks, b->mine));
  CHECK(cuda.destroy_event(written) == 0);

  part.buffer = buffer;
  part.peer = rank;
  work =
      tutti_transfer(b->group, &part, 1, &options); /* messages wait for streams, not for events */
  CHECK_CODE(tutti_work_wait(work, -1), TUTTI_UNSUPPORTED);
  tutti_work_free(work);
}

static void check_symmetric(bench* b) {
  const int rank = tutti_group_rank(b->group), ranks = tutti_group_size(b->group);
  tutti_call_options options = options_in(b->mine);
  tutti_memory* memory = NULL;
  void* data;
  CHECK_OK(tutti_group_allocate_on(b->group, kCount * sizeof(float), TUTTI_CUDA, &memory));
  CHECK(tutti_memory_bytes(memory) >= kCount * sizeof(float));
  data = tutti_memory_data(memory);
  CHECK(holds(b, number(data), 0, 0, b->mine));
  write_to(b, number(data), (float)rank, b->mine);
  CHECK_OK(tutti_all_reduce(b->group, data, data, kCount, TUTTI_F32, TUTTI_SUM, &options));
  CHECK(holds(b, number(data), sum_of_ranks(b->group), ranks, b->mine));
  tutti_memory_free(memory);
}

/* The caller's mistakes end nothing. */
static void check_device_mistakes(bench* b) {
  float here = 0;
  tutti_call_options options = options_in(b->mine);
  CHECK_CODE(tutti_all_reduce(b->group, &here, &here, 1, TUTTI_F32, TUTTI_SUM, &options),
             TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_send(b->group, &here, 1, TUTTI_F32, 0, 0, &options), TUTTI_INVALID_ARGUMENT);
  CHECK_OK(tutti_group_health(b->group));
}

static void check_gpu(tutti_group* group) {
  bench b;
  memset(&b, 0, sizeof b);
  b.group = group;
  b.host = pinned(kCount * sizeof(float));
  b.gate = pinned(sizeof(uint64_t));
  CHECK(cuda.create_stream(&b.mine, 1, 0) == 0 && cuda.create_stream(&b.other, 1, 0) == 0);
  CHECK(cuda.allocate(&b.device, kCount * sizeof(float)) == 0);
  check_blocking_calls(&b);
  check_streams(&b);
  check_ready(&b);
  check_symmetric(&b);
  check_device_mistakes(&b);
  CHECK_OK(tutti_barrier(group, NULL));
  tutti_group_forget(group, pointer(b.device));
  CHECK(cuda.release(b.device) == 0);
  CHECK(cuda.destroy_stream(b.mine) == 0 && cuda.destroy_stream(b.other) == 0);
  CHECK(cuda.release_host(b.host) == 0 && cuda.release_host((void*)b.gate) == 0);
}

/* Whether tutti was built with CUDA: there may be a GPU, and no way to it. */
static int has_cuda(tutti_group* group) {
  tutti_memory* memory = NULL;
  tutti_status* status = tutti_group_allocate_on(group, 8, TUTTI_CUDA, &memory);
  const int lacks_it = strstr(tutti_status_message(status), "this build has no CUDA") != NULL;
  tutti_status_free(status);
  tutti_memory_free(memory);
  return !lacks_it;
}

/* Without a GPU every way to ask for one is answered alike, and the group goes on. */
static void check_no_gpu(tutti_group* group) {
  float x = 1;
  tutti_call_options options = options_in(NULL);
  tutti_memory* memory = NULL;
  tutti_work* work;
  tutti_status* status = tutti_all_reduce(group, &x, &x, 1, TUTTI_F32, TUTTI_SUM, &options);
  CHECK(strstr(tutti_status_message(status), "all_reduce") != NULL);
  CHECK(strstr(tutti_status_message(status), "CUDA") != NULL);
  CHECK_CODE(status, TUTTI_UNSUPPORTED);
  CHECK_CODE(tutti_send(group, &x, 1, TUTTI_F32, 0, 0, &options), TUTTI_UNSUPPORTED);
  work = tutti_broadcast_async(group, &x, 1, TUTTI_F32, 0, &options);
  CHECK_CODE(tutti_work_wait_on(work, NULL), TUTTI_UNSUPPORTED);
  tutti_work_free(work);
  CHECK_CODE(tutti_group_allocate_on(group, 8, TUTTI_CUDA, &memory), TUTTI_UNSUPPORTED);
  CHECK(memory == NULL && x == 1);
  CHECK_OK(tutti_group_health(group));
}

void check_devices(tutti_group* group) {
  float x = 1;
  tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
  tutti_memory* memory = NULL;
  tutti_work* work = tutti_barrier_async(group, NULL);
  CHECK_OK(tutti_work_wait_on(work, NULL)); /* on CPU memory: until it is done */
  CHECK(tutti_work_done(work));
  tutti_work_free(work);
  CHECK_CODE(tutti_work_wait_on(NULL, NULL), TUTTI_INVALID_ARGUMENT);
  tutti_group_forget(group, &x);
  tutti_group_forget(NULL, &x);

  options.stream = &x; /* CPU memory has no streams */
  CHECK_CODE(tutti_all_reduce(group, &x, &x, 1, TUTTI_F32, TUTTI_SUM, &options), TUTTI_UNSUPPORTED);
  options.stream = NULL;
  options.device = (tutti_device)7;
  CHECK_CODE(tutti_all_reduce(group, &x, &x, 1, TUTTI_F32, TUTTI_SUM, &options),
             TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_recv(group, &x, 1, TUTTI_F32, 0, 0, NULL, &options), TUTTI_INVALID_ARGUMENT);
  CHECK_CODE(tutti_group_allocate_on(group, 8, (tutti_device)7, &memory), TUTTI_INVALID_ARGUMENT);

  if (open_gpu() && has_cuda(group))
    check_gpu(group);
  else
    check_no_gpu(group);
}
