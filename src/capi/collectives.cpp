// The collectives by name: each describes itself once, and both of its forms pass that on.

#include <numeric>

#include "capi/calls.hpp"

using namespace tutti;

namespace {

// A named call before anything was checked: a null group or a dtype that is none may be in it.
struct Named {
  tutti_collective collective;
  ConstBuffer input = {};
  Buffer output = {};
  Counts input_counts = {};
  Counts output_counts = {};
  int dtype = TUTTI_U8;
  int op = TUTTI_SUM;
  int root = 0;
  bool uneven = false;
  const tutti_call_options* options = nullptr;

  bool has_input() const { return collective != TUTTI_BROADCAST && collective != TUTTI_BARRIER; }
  bool has_output() const { return collective != TUTTI_BARRIER; }
};

Status check(const tutti_group* group, const Named& named) {
  if (group == nullptr) return capi::null_argument("group");
  if (Status status = capi::check_enum(named.dtype, kDtypes, "dtype"); !status.ok()) return status;
  return capi::check_enum(named.op, kReduceOps, "op");
}

// Makes the Call and hands it to `finish`, which runs or starts it while its arrays live.
template <class Finish>
auto with_call(Group& group, Named& named, const CallOptions& options, Finish finish) {
  named.input.dtype = named.output.dtype = static_cast<Dtype>(named.dtype);
  Call call;
  call.collective = static_cast<Collective>(named.collective);
  if (named.has_input()) call.input = {&named.input, 1};
  if (named.has_output()) call.output = {&named.output, 1};
  call.input_counts = named.input_counts;
  call.output_counts = named.output_counts;
  call.reduction = static_cast<ReduceOp>(named.op);
  call.root = named.root;
  call.uneven = named.uneven;
  call.options = options;
  return finish(group, call);
}

tutti_status* run(tutti_group* group, Named named) {
  return capi::guard([&]() -> Status {
    if (Status status = check(group, named); !status.ok()) return status;
    auto options = capi::options_of(named.options);
    if (!options.ok()) return options.status();
    return with_call(*group->group, named, *options,
                     [](Group& whole, const Call& call) { return whole.run(call); });
  });
}

tutti_work* start(tutti_group* group, Named named) {
  return capi::start_guarded([&]() -> Work {
    if (Status status = check(group, named); !status.ok()) return Work::finished(status);
    auto options = capi::options_of(named.options);
    if (!options.ok()) return Work::finished(options.status());
    return with_call(*group->group, named, *options,
                     [](Group& whole, const Call& call) { return whole.start(call); });
  });
}

// Elements without a type yet: with_call puts it in once it was checked.
ConstBuffer in(const void* data, std::size_t count) { return {data, count, Dtype::u8}; }
Buffer out(void* data, std::size_t count) { return {data, count}; }

std::size_t ranks_of(const tutti_group* group) {
  return static_cast<std::size_t>(tutti_group_size(group));
}

// One count per rank; empty where the caller has none to show (away from the root).
Counts counts_of(const tutti_group* group, const size_t* counts) {
  return counts == nullptr ? Counts() : Counts(counts, ranks_of(group));
}

std::size_t total(Counts counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// This rank's own count in a list that all ranks have alike.
std::size_t own(const tutti_group* group, Counts counts) {
  return counts.empty() ? 0 : counts[static_cast<std::size_t>(tutti_group_rank(group))];
}

Named broadcast(void* data, size_t count, tutti_dtype dtype, int root,
                const tutti_call_options* options) {
  return {.collective = TUTTI_BROADCAST,
          .output = out(data, count),
          .dtype = dtype,
          .root = root,
          .options = options};
}

// Equal parts: the side that is whole has `count` for each rank.
Named parts(tutti_collective collective, const void* input, std::size_t input_count, void* output,
            std::size_t output_count, tutti_dtype dtype, tutti_reduce_op op, int root,
            const tutti_call_options* options) {
  return {.collective = collective,
          .input = in(input, input_count),
          .output = out(output, output_count),
          .dtype = dtype,
          .op = op,
          .root = root,
          .options = options};
}

// reduce, all_reduce and the scans: both sides are alike.
Named fold(tutti_collective collective, const void* input, void* output, size_t count,
           tutti_dtype dtype, tutti_reduce_op op, int root, const tutti_call_options* options) {
  return parts(collective, input, count, output, count, dtype, op, root, options);
}

Named gather_v(tutti_collective collective, const void* input, size_t count, void* output,
               Counts counts, tutti_dtype dtype, int root, const tutti_call_options* options) {
  return {.collective = collective,
          .input = in(input, count),
          .output = out(output, total(counts)),
          .output_counts = counts,
          .dtype = dtype,
          .root = root,
          .uneven = true,
          .options = options};
}

Named scatter_v(tutti_collective collective, const void* input, Counts counts, void* output,
                size_t count, tutti_dtype dtype, tutti_reduce_op op, int root,
                const tutti_call_options* options) {
  return {.collective = collective,
          .input = in(input, total(counts)),
          .output = out(output, count),
          .input_counts = counts,
          .dtype = dtype,
          .op = op,
          .root = root,
          .uneven = true,
          .options = options};
}

Named all_to_all_v(const void* input, Counts input_counts, void* output, Counts output_counts,
                   tutti_dtype dtype, const tutti_call_options* options) {
  return {.collective = TUTTI_ALL_TO_ALL,
          .input = in(input, total(input_counts)),
          .output = out(output, total(output_counts)),
          .input_counts = input_counts,
          .output_counts = output_counts,
          .dtype = dtype,
          .uneven = true,
          .options = options};
}

}  // namespace

tutti_status* tutti_broadcast(tutti_group* group, void* data, size_t count, tutti_dtype dtype,
                              int root, const tutti_call_options* options) {
  return run(group, broadcast(data, count, dtype, root, options));
}
tutti_work* tutti_broadcast_async(tutti_group* group, void* data, size_t count, tutti_dtype dtype,
                                  int root, const tutti_call_options* options) {
  return start(group, broadcast(data, count, dtype, root, options));
}

tutti_status* tutti_reduce(tutti_group* group, const void* input, void* output, size_t count,
                           tutti_dtype dtype, tutti_reduce_op op, int root,
                           const tutti_call_options* options) {
  return run(group, fold(TUTTI_REDUCE, input, output, count, dtype, op, root, options));
}
tutti_work* tutti_reduce_async(tutti_group* group, const void* input, void* output, size_t count,
                               tutti_dtype dtype, tutti_reduce_op op, int root,
                               const tutti_call_options* options) {
  return start(group, fold(TUTTI_REDUCE, input, output, count, dtype, op, root, options));
}

tutti_status* tutti_all_reduce(tutti_group* group, const void* input, void* output, size_t count,
                               tutti_dtype dtype, tutti_reduce_op op,
                               const tutti_call_options* options) {
  return run(group, fold(TUTTI_ALL_REDUCE, input, output, count, dtype, op, 0, options));
}
tutti_work* tutti_all_reduce_async(tutti_group* group, const void* input, void* output,
                                   size_t count, tutti_dtype dtype, tutti_reduce_op op,
                                   const tutti_call_options* options) {
  return start(group, fold(TUTTI_ALL_REDUCE, input, output, count, dtype, op, 0, options));
}

tutti_status* tutti_gather(tutti_group* group, const void* input, void* output, size_t count,
                           tutti_dtype dtype, int root, const tutti_call_options* options) {
  return run(group, parts(TUTTI_GATHER, input, count, output, count * ranks_of(group), dtype,
                          TUTTI_SUM, root, options));
}
tutti_work* tutti_gather_async(tutti_group* group, const void* input, void* output, size_t count,
                               tutti_dtype dtype, int root, const tutti_call_options* options) {
  return start(group, parts(TUTTI_GATHER, input, count, output, count * ranks_of(group), dtype,
                            TUTTI_SUM, root, options));
}

tutti_status* tutti_all_gather(tutti_group* group, const void* input, void* output, size_t count,
                               tutti_dtype dtype, const tutti_call_options* options) {
  return run(group, parts(TUTTI_ALL_GATHER, input, count, output, count * ranks_of(group), dtype,
                          TUTTI_SUM, 0, options));
}
tutti_work* tutti_all_gather_async(tutti_group* group, const void* input, void* output,
                                   size_t count, tutti_dtype dtype,
                                   const tutti_call_options* options) {
  return start(group, parts(TUTTI_ALL_GATHER, input, count, output, count * ranks_of(group), dtype,
                            TUTTI_SUM, 0, options));
}

tutti_status* tutti_scatter(tutti_group* group, const void* input, void* output, size_t count,
                            tutti_dtype dtype, int root, const tutti_call_options* options) {
  return run(group, parts(TUTTI_SCATTER, input, count * ranks_of(group), output, count, dtype,
                          TUTTI_SUM, root, options));
}
tutti_work* tutti_scatter_async(tutti_group* group, const void* input, void* output, size_t count,
                                tutti_dtype dtype, int root, const tutti_call_options* options) {
  return start(group, parts(TUTTI_SCATTER, input, count * ranks_of(group), output, count, dtype,
                            TUTTI_SUM, root, options));
}

tutti_status* tutti_reduce_scatter(tutti_group* group, const void* input, void* output,
                                   size_t count, tutti_dtype dtype, tutti_reduce_op op,
                                   const tutti_call_options* options) {
  return run(group, parts(TUTTI_REDUCE_SCATTER, input, count * ranks_of(group), output, count,
                          dtype, op, 0, options));
}
tutti_work* tutti_reduce_scatter_async(tutti_group* group, const void* input, void* output,
                                       size_t count, tutti_dtype dtype, tutti_reduce_op op,
                                       const tutti_call_options* options) {
  return start(group, parts(TUTTI_REDUCE_SCATTER, input, count * ranks_of(group), output, count,
                            dtype, op, 0, options));
}

tutti_status* tutti_all_to_all(tutti_group* group, const void* input, void* output, size_t count,
                               tutti_dtype dtype, const tutti_call_options* options) {
  return run(group, parts(TUTTI_ALL_TO_ALL, input, count * ranks_of(group), output,
                          count * ranks_of(group), dtype, TUTTI_SUM, 0, options));
}
tutti_work* tutti_all_to_all_async(tutti_group* group, const void* input, void* output,
                                   size_t count, tutti_dtype dtype,
                                   const tutti_call_options* options) {
  return start(group, parts(TUTTI_ALL_TO_ALL, input, count * ranks_of(group), output,
                            count * ranks_of(group), dtype, TUTTI_SUM, 0, options));
}

tutti_status* tutti_scan(tutti_group* group, const void* input, void* output, size_t count,
                         tutti_dtype dtype, tutti_reduce_op op, const tutti_call_options* options) {
  return run(group, fold(TUTTI_SCAN, input, output, count, dtype, op, 0, options));
}
tutti_work* tutti_scan_async(tutti_group* group, const void* input, void* output, size_t count,
                             tutti_dtype dtype, tutti_reduce_op op,
                             const tutti_call_options* options) {
  return start(group, fold(TUTTI_SCAN, input, output, count, dtype, op, 0, options));
}

tutti_status* tutti_exclusive_scan(tutti_group* group, const void* input, void* output,
                                   size_t count, tutti_dtype dtype, tutti_reduce_op op,
                                   const tutti_call_options* options) {
  return run(group, fold(TUTTI_EXCLUSIVE_SCAN, input, output, count, dtype, op, 0, options));
}
tutti_work* tutti_exclusive_scan_async(tutti_group* group, const void* input, void* output,
                                       size_t count, tutti_dtype dtype, tutti_reduce_op op,
                                       const tutti_call_options* options) {
  return start(group, fold(TUTTI_EXCLUSIVE_SCAN, input, output, count, dtype, op, 0, options));
}

tutti_status* tutti_gather_v(tutti_group* group, const void* input, size_t count, void* output,
                             const size_t* counts, tutti_dtype dtype, int root,
                             const tutti_call_options* options) {
  return run(group, gather_v(TUTTI_GATHER, input, count, output, counts_of(group, counts), dtype,
                             root, options));
}
tutti_work* tutti_gather_v_async(tutti_group* group, const void* input, size_t count, void* output,
                                 const size_t* counts, tutti_dtype dtype, int root,
                                 const tutti_call_options* options) {
  return start(group, gather_v(TUTTI_GATHER, input, count, output, counts_of(group, counts), dtype,
                               root, options));
}

tutti_status* tutti_all_gather_v(tutti_group* group, const void* input, void* output,
                                 const size_t* counts, tutti_dtype dtype,
                                 const tutti_call_options* options) {
  return run(group, gather_v(TUTTI_ALL_GATHER, input, own(group, counts_of(group, counts)), output,
                             counts_of(group, counts), dtype, 0, options));
}
tutti_work* tutti_all_gather_v_async(tutti_group* group, const void* input, void* output,
                                     const size_t* counts, tutti_dtype dtype,
                                     const tutti_call_options* options) {
  return start(group, gather_v(TUTTI_ALL_GATHER, input, own(group, counts_of(group, counts)),
                               output, counts_of(group, counts), dtype, 0, options));
}

tutti_status* tutti_scatter_v(tutti_group* group, const void* input, const size_t* counts,
                              void* output, size_t count, tutti_dtype dtype, int root,
                              const tutti_call_options* options) {
  return run(group, scatter_v(TUTTI_SCATTER, input, counts_of(group, counts), output, count, dtype,
                              TUTTI_SUM, root, options));
}
tutti_work* tutti_scatter_v_async(tutti_group* group, const void* input, const size_t* counts,
                                  void* output, size_t count, tutti_dtype dtype, int root,
                                  const tutti_call_options* options) {
  return start(group, scatter_v(TUTTI_SCATTER, input, counts_of(group, counts), output, count,
                                dtype, TUTTI_SUM, root, options));
}

tutti_status* tutti_reduce_scatter_v(tutti_group* group, const void* input, const size_t* counts,
                                     void* output, tutti_dtype dtype, tutti_reduce_op op,
                                     const tutti_call_options* options) {
  return run(group, scatter_v(TUTTI_REDUCE_SCATTER, input, counts_of(group, counts), output,
                              own(group, counts_of(group, counts)), dtype, op, 0, options));
}
tutti_work* tutti_reduce_scatter_v_async(tutti_group* group, const void* input,
                                         const size_t* counts, void* output, tutti_dtype dtype,
                                         tutti_reduce_op op, const tutti_call_options* options) {
  return start(group, scatter_v(TUTTI_REDUCE_SCATTER, input, counts_of(group, counts), output,
                                own(group, counts_of(group, counts)), dtype, op, 0, options));
}

tutti_status* tutti_all_to_all_v(tutti_group* group, const void* input, const size_t* input_counts,
                                 void* output, const size_t* output_counts, tutti_dtype dtype,
                                 const tutti_call_options* options) {
  return run(group, all_to_all_v(input, counts_of(group, input_counts), output,
                                 counts_of(group, output_counts), dtype, options));
}
tutti_work* tutti_all_to_all_v_async(tutti_group* group, const void* input,
                                     const size_t* input_counts, void* output,
                                     const size_t* output_counts, tutti_dtype dtype,
                                     const tutti_call_options* options) {
  return start(group, all_to_all_v(input, counts_of(group, input_counts), output,
                                   counts_of(group, output_counts), dtype, options));
}

tutti_status* tutti_barrier(tutti_group* group, const tutti_call_options* options) {
  return run(group, {.collective = TUTTI_BARRIER, .options = options});
}
tutti_work* tutti_barrier_async(tutti_group* group, const tutti_call_options* options) {
  return start(group, {.collective = TUTTI_BARRIER, .options = options});
}
