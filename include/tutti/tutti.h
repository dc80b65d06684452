/* tutti/tutti.h - the C API, plain C99: what the C++ headers offer, in one file because C has no
 * namespaces to spread it over.
 *
 * Status         every function that can fail returns a tutti_status*: NULL means ok. A failure is
 *                read with tutti_status_code / _message and given back with tutti_status_free.
 * Handles        tutti_group, _work, _store, _memory, _pool, _user_reduction are opaque; each has a
 *                function that ends it, which takes NULL too.
 * Structs        begin with their size (start from the TUTTI_..._INIT macros), so that programs
 *                built against another version's header go on working.
 * Buffers        are lent from the call until it returns, or until its work is done. On a GPU a call that
 *                returns has only been put behind what is in its stream (collectives.hpp): the buffers
 *                are lent until that stream has come to what follows it.
 * Thread-safety  as in C++: starts on one group must not overlap in time; any thread may wait.
 * Failure        no exception crosses this border.
 *
 *   tutti_group* group = NULL;
 *   tutti_status* status = tutti_group_from_environment(NULL, &group);
 *   if (!status) status = tutti_all_reduce(group, x, x, n, TUTTI_F32, TUTTI_SUM, NULL);
 *   if (status) fprintf(stderr, "%s\n", tutti_status_message(status));
 *   tutti_status_free(status);
 *   tutti_group_destroy(group);
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/version.h"

#define TUTTI_API __attribute__((visibility("default")))
#define TUTTI_NODISCARD __attribute__((warn_unused_result))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- vocabulary: the same words, in the same order, as tutti/types.hpp and status.hpp ----
 *
 * The last word of each list only makes it as wide as an int, so that a value that is none of them can
 * be passed, and refused. */

typedef enum tutti_code {
  TUTTI_OK,
  TUTTI_INVALID_ARGUMENT,
  TUTTI_MISMATCH,
  TUTTI_UNSUPPORTED,
  TUTTI_TIMED_OUT,
  TUTTI_PEER_LOST,
  TUTTI_ABORTED,
  TUTTI_IO,
  TUTTI_OUT_OF_MEMORY,
  TUTTI_CORRUPT,
  TUTTI_INTERNAL,
  TUTTI_CODE_WIDTH = 0x7fffffff
} tutti_code;

/* TUTTI_I8, TUTTI_U8 … TUTTI_F32, TUTTI_BOOL …: every row of that file, in its order. */
typedef enum tutti_dtype {
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, safetensors, numpy, dlpack) \
  TUTTI_##NAME,
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
  TUTTI_DTYPE_WIDTH = 0x7fffffff
} tutti_dtype;

typedef enum tutti_reduce_op {
  TUTTI_SUM,
  TUTTI_PROD,
  TUTTI_MIN,
  TUTTI_MAX,
  TUTTI_AVG,
  TUTTI_BAND,
  TUTTI_BOR,
  TUTTI_BXOR,
  TUTTI_PREMUL_SUM, /* needs a scalar: through tutti_call */
  TUTTI_USER,       /* needs a function: through tutti_call */
  TUTTI_REDUCE_OP_WIDTH = 0x7fffffff
} tutti_reduce_op;

/* TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE …: every row of that file, in its order. */
typedef enum tutti_collective {
#define TUTTI_SHAPE(word, WORD, root, input, output, fold, traffic) TUTTI_##WORD,
#include "tutti/collectives.def"
#undef TUTTI_SHAPE
  TUTTI_COLLECTIVE_WIDTH = 0x7fffffff
} tutti_collective;

/* TUTTI_DIRECT, TUTTI_LINEAR, TUTTI_RING …: every row of that file, in its order. */
typedef enum tutti_algorithm {
  TUTTI_AUTOMATIC,
#define TUTTI_ALGORITHM(word, WORD) TUTTI_##WORD,
#include "tutti/algorithms.def"
#undef TUTTI_ALGORITHM
  TUTTI_CUSTOM, /* brought along by a C++ program */
  TUTTI_ALGORITHM_WIDTH = 0x7fffffff
} tutti_algorithm;

typedef enum tutti_reduction_order {
  TUTTI_ORDER_ANY,
  TUTTI_ORDER_RANK,
  TUTTI_ORDER_TREE,
  TUTTI_ORDER_WIDTH = 0x7fffffff
} tutti_reduction_order;
typedef enum tutti_urgency {
  TUTTI_BULK,
  TUTTI_NORMAL,
  TUTTI_URGENT,
  TUTTI_URGENCY_WIDTH = 0x7fffffff
} tutti_urgency;
typedef enum tutti_device { TUTTI_CPU, TUTTI_CUDA, TUTTI_DEVICE_WIDTH = 0x7fffffff } tutti_device;

/* The printed word, or "unknown". */
TUTTI_API const char* tutti_code_name(tutti_code code);
TUTTI_API const char* tutti_dtype_name(tutti_dtype dtype);
TUTTI_API const char* tutti_reduce_op_name(tutti_reduce_op op);
TUTTI_API const char* tutti_collective_name(tutti_collective collective);
TUTTI_API const char* tutti_algorithm_name(tutti_algorithm algorithm);
/* Bytes of one element; 0 for a value that is no dtype. */
TUTTI_API size_t tutti_dtype_size(tutti_dtype dtype);
/* Of the library that runs, where TUTTI_VERSION tells the one that the caller was built against. */
TUTTI_API const char* tutti_version(void);

/* ---- status ---- */

typedef struct tutti_status tutti_status;

/* NULL is ok to all of them: TUTTI_OK, "", -1, -1, 0. rank is the one that reports: whoever
 * noticed first tells the others. peer is the one at fault, sequence the collective's number. */
TUTTI_API tutti_code tutti_status_code(const tutti_status* status);
TUTTI_API const char* tutti_status_message(const tutti_status* status);
TUTTI_API int tutti_status_rank(const tutti_status* status);
TUTTI_API int tutti_status_peer(const tutti_status* status);
TUTTI_API uint64_t tutti_status_sequence(const tutti_status* status);
TUTTI_API void tutti_status_free(tutti_status* status);

/* ---- store: where ranks meet before they have links ---- */

typedef struct tutti_store tutti_store;
typedef struct tutti_store_server tutti_store_server;

TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_memory(tutti_store** store);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_file(const char* path, tutti_store** store);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_connect(const char* address, const void* secret,
                                                            size_t secret_bytes, int64_t timeout_ms,
                                                            tutti_store** store);
/* `inner` may be freed before the store that was made from it. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_prefix(const char* prefix, tutti_store* inner,
                                                           tutti_store** store);
TUTTI_API void tutti_store_free(tutti_store* store);

TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_set(tutti_store* store, const char* key,
                                                        const void* value, size_t bytes);
/* Waits until the key is there. `*bytes` is the length of the value; one that does not fit into
 * `capacity` is TUTTI_INVALID_ARGUMENT, with the length it needs in `*bytes`. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_get(tutti_store* store, const char* key,
                                                        int64_t timeout_ms, void* value,
                                                        size_t capacity, size_t* bytes);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_wait(tutti_store* store, const char* key,
                                                         int64_t timeout_ms);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_add(tutti_store* store, const char* key,
                                                        int64_t amount, int64_t* sum);
/* `*swapped` is 1 when the key held `expected` (absent counts as "") and holds `desired` now. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_compare_set(tutti_store* store, const char* key,
                                                                const char* expected,
                                                                const char* desired, int* swapped);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_remove(tutti_store* store, const char* key,
                                                           int* was_there);

TUTTI_API TUTTI_NODISCARD tutti_status* tutti_store_server_listen(const char* address,
                                                                  const void* secret,
                                                                  size_t secret_bytes,
                                                                  tutti_store_server** server);
/* What tutti_store_connect takes; lives as long as the server. */
TUTTI_API const char* tutti_store_server_address(const tutti_store_server* server);
TUTTI_API void tutti_store_server_free(tutti_store_server* server);

/* ---- groups ---- */

typedef struct tutti_group tutti_group;
typedef struct tutti_memory tutti_memory;

typedef struct tutti_group_options {
  size_t size;
  int rank;         /* -1: from the environment */
  int ranks;        /* how many; -1: from the environment */
  const char* name; /* NULL: "world" */
  tutti_reduction_order reduction_order;
  const void* secret; /* of the job, at least 16 bytes; NULL: see GroupOptions in group.hpp */
  size_t secret_bytes;
  int survives_losses; /* 1: this rank goes on where another is lost; `tutti run` lets it */
} tutti_group_options;
#define TUTTI_GROUP_OPTIONS_INIT \
  { sizeof(tutti_group_options), -1, -1, NULL, TUTTI_ORDER_ANY, NULL, 0, 0 }

/* Blocks until all ranks met, or says who did not come. `options` may be NULL where the environment
 * knows rank and size. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_create(tutti_store* store,
                                                           const tutti_group_options* options,
                                                           tutti_group** group);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_from_environment(
    const tutti_group_options* options, tutti_group** group);
/* Lets go of the group; works that are under way go on. */
TUTTI_API void tutti_group_destroy(tutti_group* group);

TUTTI_API int tutti_group_rank(const tutti_group* group); /* -1 for NULL */
TUTTI_API int tutti_group_size(const tutti_group* group); /* 0 for NULL */
TUTTI_API const char* tutti_group_name(const tutti_group* group);

/* How a group that is made from another one differs from it; NULL instead of one: not at all. */
typedef struct tutti_group_spec {
  size_t size;
  const char* name;      /* NULL: made up from the other's */
  int reduction_order;   /* a tutti_reduction_order; -1: as in the other */
  tutti_urgency urgency; /* which of a rank's groups goes first; see Urgency in types.hpp */
} tutti_group_spec;
#define TUTTI_GROUP_SPEC_INIT \
  { sizeof(tutti_group_spec), NULL, -1, TUTTI_NORMAL }

/* By all ranks; a negative color gets no group: ok and NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_split(tutti_group* group, int color, int key,
                                                          const tutti_group_spec* spec,
                                                          tutti_group** part);
/* By the members alone, with the same list and tag on each. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_subgroup(tutti_group* group, const int* ranks,
                                                             size_t rank_count, uint32_t tag,
                                                             const tutti_group_spec* spec,
                                                             tutti_group** part);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_duplicate(tutti_group* group,
                                                              const tutti_group_spec* spec,
                                                              tutti_group** copy);
/* By all that are left of a failed group: a new one of them. Ranks that do not come within `timeout_ns`
 * (0: the group's) count as lost, and get TUTTI_PEER_LOST when they come later. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_shrink(tutti_group* group, const char* name,
                                                           int64_t timeout_ns,
                                                           tutti_group** smaller);
/* By all ranks: takes in those that wait in `store` (tutti_group_join), up to `most` ranks in all.
 * Members keep their ranks, newcomers follow; nobody waits: ok and NULL. Of `options` (may be NULL)
 * name and secret count, and must be those of the newcomers. Blocks like tutti_group_create. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_grow(tutti_group* group, tutti_store* store,
                                                         int most,
                                                         const tutti_group_options* options,
                                                         tutti_group** larger);
/* A rank that comes later, or comes back: waits in `store` until a group takes it in by
 * tutti_group_grow, which says its rank. `options` may be NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_join(tutti_store* store,
                                                         const tutti_group_options* options,
                                                         tutti_group** group);
/* Ends all pending and later operations on every rank with TUTTI_ABORTED. */
TUTTI_API void tutti_group_abort(tutti_group* group, const char* reason);
/* ok, or the failure that ended the group. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_health(const tutti_group* group);
/* Like snprintf: writes at most `capacity` bytes with the final zero, returns the whole length. */
TUTTI_API size_t tutti_group_describe(const tutti_group* group, char* text, size_t capacity);

/* Collective. Memory that every rank on this host has mapped, zero at first. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_allocate(tutti_group* group, size_t bytes,
                                                             tutti_memory** memory);
/* The same on `device`; tutti_memory_data is then an address of the device. On a GPU: the one that this
 * rank's groups use already, else the calling thread's current one. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_allocate_on(tutti_group* group, size_t bytes,
                                                                tutti_device device,
                                                                tutti_memory** memory);
/* Memory of a GPU that this rank is about to free, by the address where its allocation begins: ranks that
 * have mapped it let go of it. What no group has seen is no error, nor is a null group. Any thread. */
TUTTI_API void tutti_group_forget(tutti_group* group, const void* allocation);
TUTTI_API void* tutti_memory_data(const tutti_memory* memory);
TUTTI_API size_t tutti_memory_bytes(const tutti_memory* memory);
TUTTI_API void tutti_memory_free(tutti_memory* memory);

/* Symmetric memory in pieces: made by all ranks together, then taken by each as it likes, without the
 * others (tutti/symmetric_pool.hpp). A piece goes back by tutti_memory_free, the memory itself when the pool
 * and all its pieces are gone. TUTTI_OUT_OF_MEMORY: no free stretch is large enough. */
typedef struct tutti_pool tutti_pool;
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_pool_create(tutti_group* group, size_t bytes,
                                                          tutti_device device, tutti_pool** pool);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_pool_take(tutti_pool* pool, size_t bytes,
                                                        tutti_memory** memory);
/* For reports; 0 for NULL. */
TUTTI_API size_t tutti_pool_bytes(const tutti_pool* pool);
TUTTI_API size_t tutti_pool_bytes_free(const tutti_pool* pool);
TUTTI_API size_t tutti_pool_largest_free(const tutti_pool* pool); /* that can be taken now */
TUTTI_API size_t tutti_pool_peak_bytes(const tutti_pool* pool);   /* that were taken at one time */
TUTTI_API void tutti_pool_free(tutti_pool* pool);

typedef struct tutti_prediction {
  size_t size;
  int64_t time_ns;
  tutti_algorithm algorithm;
} tutti_prediction;
#define TUTTI_PREDICTION_INIT \
  { sizeof(tutti_prediction), 0, TUTTI_AUTOMATIC }

/* What the library expects an operation on `bytes` in all to cost. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_group_predict(tutti_group* group,
                                                            tutti_collective collective,
                                                            size_t bytes,
                                                            tutti_prediction* prediction);

/* ---- works ---- */

typedef struct tutti_work tutti_work;

typedef struct tutti_received {
  size_t size;
  int source;
  uint32_t tag;
  size_t bytes;
} tutti_received;
#define TUTTI_RECEIVED_INIT \
  { sizeof(tutti_received), -1, 0, 0 }

/* Blocks, driving the operation meanwhile. A negative timeout waits for good; one that passes is
 * TUTTI_TIMED_OUT and leaves the operation under way. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_work_wait(tutti_work* work, int64_t timeout_ns);
/* For operations on a GPU: what is put into `stream` (a CUstream or cudaStream_t) from now on waits for
 * the operation; this thread does not. A failure that comes later is in tutti_work_status and
 * tutti_group_health. On CPU memory the same as tutti_work_wait without a timeout. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_work_wait_on(tutti_work* work, void* stream);
TUTTI_API int tutti_work_done(const tutti_work* work); /* never blocks */
/* The outcome when done, ok before that. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_work_status(const tutti_work* work);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_work_received(const tutti_work* work,
                                                            tutti_received* received);
/* Runs once, in the thread that completed the work, or at once when it is done. `status` is lent
 * for the call. It may start operations and must not wait for one. */
typedef void (*tutti_callback)(const tutti_status* status, void* context);
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_work_on_complete(tutti_work* work,
                                                               tutti_callback callback,
                                                               void* context);
/* Gives the handle back; the operation goes on. */
TUTTI_API void tutti_work_free(tutti_work* work);

/* ---- collectives, in full: whatever the named functions below cannot say ---- */

typedef struct tutti_call_options {
  size_t size;
  int64_t timeout_ns; /* 0: the group's */
  tutti_algorithm algorithm;
  /* With buffers on a GPU: the caller's stream, a CUstream or cudaStream_t; NULL is the legacy default
   * stream. The operation begins behind what is in it. With buffers in CPU memory it must be NULL. */
  void* stream;
  const char* name; /* shown in logs and traces; lent until the work is done; may be NULL */
  /* Where the memory is that the functions named after an operation get. In tutti_call and
   * tutti_transfer each buffer says so itself, and this is not looked at. */
  tutti_device device;
  /* Works, of any groups, that the operation begins after: it takes its place in its group's queue now, and
   * no thread waits for them. Lent for the call; if one fails, the group does (CallOptions::after). */
  const tutti_work* const* after;
  size_t after_count;
} tutti_call_options;
#define TUTTI_CALL_OPTIONS_INIT \
  { sizeof(tutti_call_options), 0, TUTTI_AUTOMATIC, NULL, NULL, TUTTI_CPU, NULL, 0 }

/* An input is only read. */
typedef struct tutti_buffer {
  size_t size;
  void* data;
  size_t count;
  tutti_dtype dtype;
  tutti_device device;
  /* A CUevent or cudaEvent_t after which the contents are there, in collectives on a GPU; NULL: they are
   * when the stream has come to the call. */
  void* ready;
} tutti_buffer;
#define TUTTI_BUFFER_INIT \
  { sizeof(tutti_buffer), NULL, 0, TUTTI_U8, TUTTI_CPU, NULL }

/* inout[i] = in[i] op inout[i]; `in` is the operand of the lower rank. */
typedef void (*tutti_reduce_function)(const void* in, void* inout, size_t count, tutti_dtype dtype,
                                      void* context);
typedef struct tutti_user_reduction tutti_user_reduction;
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_user_reduction_create(
    const char* name, tutti_reduce_function function, void* context, int commutative,
    tutti_user_reduction** reduction);
/* Only when no work that folds with it is under way. */
TUTTI_API void tutti_user_reduction_free(tutti_user_reduction* reduction);

/* See `Call` in tutti/collectives.hpp: one contiguous buffer or one per rank on each side; counts
 * (one per rank, or NULL) cut a contiguous buffer into parts that may differ. All buffers are of one type,
 * but where 16- or 8-bit floats are folded the output may be of TUTTI_F32. */
typedef struct tutti_call {
  size_t size;
  tutti_collective collective;
  const tutti_buffer* input;
  size_t input_buffers;
  const tutti_buffer* output;
  size_t output_buffers;
  const size_t* input_counts;
  const size_t* output_counts;
  tutti_reduce_op op;
  double scalar;                    /* of TUTTI_PREMUL_SUM */
  const tutti_user_reduction* user; /* of TUTTI_USER */
  int root;
  /* 1: parts may differ by rank; all ranks of a gather, scatter or all_to_all say it alike. */
  int uneven;
  const tutti_call_options* options; /* may be NULL */
} tutti_call;
#define TUTTI_CALL_INIT                                                                          \
  {                                                                                              \
    sizeof(tutti_call), TUTTI_BARRIER, NULL, 0, NULL, 0, NULL, NULL, TUTTI_SUM, 1.0, NULL, 0, 0, \
        NULL                                                                                     \
  }

/* Runs a call to its end in this thread; on a GPU puts it between what is in its stream and what comes
 * there next. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_run(tutti_group* group, const tutti_call* call);
/* Starts it. Never fails on the spot: what went wrong is in the work. */
TUTTI_API TUTTI_NODISCARD tutti_work* tutti_start(tutti_group* group, const tutti_call* call);

/* ---- collectives by name ----
 * Counts are in elements, of one rank's part: all_gather writes `count` times the group's size.
 * Each has an async form that returns its work at once. In place: the same memory on both sides.
 * `options` may be NULL, and says where the memory is. Sides that only the root has are not looked at
 * elsewhere. */

#define TUTTI_COLLECTIVE(name, ...)                                                           \
  TUTTI_API TUTTI_NODISCARD tutti_status* tutti_##name(tutti_group* group, __VA_ARGS__,       \
                                                       const tutti_call_options* options);    \
  TUTTI_API TUTTI_NODISCARD tutti_work* tutti_##name##_async(tutti_group* group, __VA_ARGS__, \
                                                             const tutti_call_options* options)

TUTTI_COLLECTIVE(broadcast, void* data, size_t count, tutti_dtype dtype, int root);
TUTTI_COLLECTIVE(reduce, const void* input, void* output, size_t count, tutti_dtype dtype,
                 tutti_reduce_op op, int root);
TUTTI_COLLECTIVE(all_reduce, const void* input, void* output, size_t count, tutti_dtype dtype,
                 tutti_reduce_op op);
TUTTI_COLLECTIVE(gather, const void* input, void* output, size_t count, tutti_dtype dtype,
                 int root);
TUTTI_COLLECTIVE(all_gather, const void* input, void* output, size_t count, tutti_dtype dtype);
TUTTI_COLLECTIVE(scatter, const void* input, void* output, size_t count, tutti_dtype dtype,
                 int root);
TUTTI_COLLECTIVE(reduce_scatter, const void* input, void* output, size_t count, tutti_dtype dtype,
                 tutti_reduce_op op);
TUTTI_COLLECTIVE(all_to_all, const void* input, void* output, size_t count, tutti_dtype dtype);
TUTTI_COLLECTIVE(scan, const void* input, void* output, size_t count, tutti_dtype dtype,
                 tutti_reduce_op op);
TUTTI_COLLECTIVE(exclusive_scan, const void* input, void* output, size_t count, tutti_dtype dtype,
                 tutti_reduce_op op);

/* The v-forms: parts of different sizes, one count per rank. `counts` of gather_v and scatter_v is
 * looked at on the root only, where `count` is this rank's own. */
TUTTI_COLLECTIVE(gather_v, const void* input, size_t count, void* output, const size_t* counts,
                 tutti_dtype dtype, int root);
TUTTI_COLLECTIVE(all_gather_v, const void* input, void* output, const size_t* counts,
                 tutti_dtype dtype);
TUTTI_COLLECTIVE(scatter_v, const void* input, const size_t* counts, void* output, size_t count,
                 tutti_dtype dtype, int root);
TUTTI_COLLECTIVE(reduce_scatter_v, const void* input, const size_t* counts, void* output,
                 tutti_dtype dtype, tutti_reduce_op op);
TUTTI_COLLECTIVE(all_to_all_v, const void* input, const size_t* input_counts, void* output,
                 const size_t* output_counts, tutti_dtype dtype);

TUTTI_API TUTTI_NODISCARD tutti_status* tutti_barrier(tutti_group* group,
                                                      const tutti_call_options* options);
TUTTI_API TUTTI_NODISCARD tutti_work* tutti_barrier_async(tutti_group* group,
                                                          const tutti_call_options* options);

/* ---- point to point ---- */

#define TUTTI_ANY_SOURCE (-1)

TUTTI_API TUTTI_NODISCARD tutti_status* tutti_send(tutti_group* group, const void* data,
                                                   size_t count, tutti_dtype dtype, int peer,
                                                   uint32_t tag, const tutti_call_options* options);
TUTTI_API TUTTI_NODISCARD tutti_work* tutti_isend(tutti_group* group, const void* data,
                                                  size_t count, tutti_dtype dtype, int peer,
                                                  uint32_t tag, const tutti_call_options* options);
/* `received` (may be NULL) learns who sent how much; after tutti_irecv ask tutti_work_received. */
TUTTI_API TUTTI_NODISCARD tutti_status* tutti_recv(tutti_group* group, void* data, size_t count,
                                                   tutti_dtype dtype, int source, uint32_t tag,
                                                   tutti_received* received,
                                                   const tutti_call_options* options);
TUTTI_API TUTTI_NODISCARD tutti_work* tutti_irecv(tutti_group* group, void* data, size_t count,
                                                  tutti_dtype dtype, int source, uint32_t tag,
                                                  const tutti_call_options* options);

typedef enum tutti_transfer_kind {
  TUTTI_SEND,
  TUTTI_RECV,
  TUTTI_TRANSFER_WIDTH = 0x7fffffff
} tutti_transfer_kind;

typedef struct tutti_transfer_part {
  size_t size;
  tutti_transfer_kind kind;
  tutti_buffer buffer; /* its own size says where the rest begins */
  int peer;            /* TUTTI_ANY_SOURCE for a receive from whoever comes first */
  uint32_t tag;
} tutti_transfer_part;
#define TUTTI_TRANSFER_PART_INIT \
  { sizeof(tutti_transfer_part), TUTTI_SEND, TUTTI_BUFFER_INIT, 0, 0 }

/* Sends and receives as one call, in whatever order they stand: they cannot deadlock. */
TUTTI_API TUTTI_NODISCARD tutti_work* tutti_transfer(tutti_group* group,
                                                     const tutti_transfer_part* parts,
                                                     size_t part_count,
                                                     const tutti_call_options* options);

#undef TUTTI_COLLECTIVE

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_TUTTI_H */
