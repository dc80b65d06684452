// The collectives by name: each describes itself once, and both of its forms pass that on. How many
// elements a side has follows from the collective's shape (tutti/shape.hpp).

#include <numeric>

#include "capi/calls.hpp"
#include "tutti/shape.hpp"

using namespace tutti;

namespace {

// A named call before anything was checked: a null group or a dtype that is none may be in it.
struct Named {
  Collective collective;
  ConstBuffer input = {};
  Buffer output = {};
  Counts input_counts = {};
  Counts output_counts = {};
  int dtype = TUTTI_U8;
  int op = TUTTI_SUM;
  int root = 0;
  bool uneven = false;
  const tutti_call_options* options = nullptr;
};

Status check(const tutti_group* group, const Named& named) {
  if (group == nullptr) return capi::null_argument("group");
  if (Status status = capi::check_enum(named.dtype, kDtypes, "dtype"); !status.ok()) return status;
  return capi::check_enum(named.op, kReduceOps, "op");
}

// Makes the Call and hands it to `finish`, which runs or starts it while its arrays live.
template <class Finish>
auto with_call(Group& group, Named& named, const capi::GivenOptions& options, Finish finish) {
  const CollectiveShape& shape = shape_of(named.collective);
  named.input.dtype = named.output.dtype = static_cast<Dtype>(named.dtype);
  named.input.device = named.output.device = options.device;
  Call call;
  call.collective = named.collective;
  if (shape.input.blocks != Blocks::none) call.input = {&named.input, 1};
  if (shape.output.blocks != Blocks::none) call.output = {&named.output, 1};
  call.input_counts = named.input_counts;
  call.output_counts = named.output_counts;
  call.reduction = static_cast<ReduceOp>(named.op);
  call.root = named.root;
  call.uneven = named.uneven;
  call.options = options.call;
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

// What the caller says of the elements, the same for every form.
struct Elements {
  tutti_dtype dtype = TUTTI_U8;
  tutti_reduce_op op = TUTTI_SUM;
  int root = 0;
};

// Elements without a type yet: with_call puts it in once it was checked.
Named named(Collective collective, const void* input, std::size_t input_count, void* output,
            std::size_t output_count, const Elements& elements, const tutti_call_options* options) {
  return {.collective = collective,
          .input = {input, input_count, Dtype::u8},
          .output = {output, output_count},
          .dtype = elements.dtype,
          .op = elements.op,
          .root = elements.root,
          .options = options};
}

// Equal parts: `count` elements in every block.
Named even(Collective collective, const tutti_group* group, const void* input, void* output,
           size_t count, const Elements& elements, const tutti_call_options* options) {
  const auto ranks = static_cast<std::size_t>(tutti_group_size(group));
  const auto total = [&](const CollectiveSide& side) {
    return side.blocks == Blocks::each ? count * ranks : count;
  };
  const CollectiveShape& shape = shape_of(collective);
  return named(collective, input, total(shape.input), output, total(shape.output), elements,
               options);
}

// One side of a v-form: its counts, one for each rank, or the number of its elements.
struct Uneven {
  const size_t* counts = nullptr;
  size_t count = 0;

  Counts list(const tutti_group* group) const {
    const auto ranks = static_cast<std::size_t>(tutti_group_size(group));
    return counts == nullptr ? Counts() : Counts(counts, ranks);
  }
  std::size_t total(const tutti_group* group) const {
    const Counts all = list(group);
    return std::accumulate(all.begin(), all.end(), count);
  }
};

Named uneven(Collective collective, const tutti_group* group, const void* input, Uneven in,
             void* output, Uneven out, const Elements& elements,
             const tutti_call_options* options) {
  Named made =
      named(collective, input, in.total(group), output, out.total(group), elements, options);
  made.input_counts = in.list(group);
  made.output_counts = out.list(group);
  made.uneven = true;
  return made;
}

// This rank's own count in a list that all ranks have alike.
Uneven own(const tutti_group* group, const size_t* counts) {
  return {.count = counts == nullptr || group == nullptr ? 0 : counts[tutti_group_rank(group)]};
}

}  // namespace

// Both forms of a collective; `call` is made of their parameters.
#define TUTTI_FORMS(name, parameters, call)                          \
  tutti_status* tutti_##name parameters { return run(group, call); } \
  tutti_work* tutti_##name##_async parameters { return start(group, call); }

TUTTI_FORMS(broadcast,
            (tutti_group * group, void* data, size_t count, tutti_dtype dtype, int root,
             const tutti_call_options* options),
            even(Collective::broadcast, group, nullptr, data, count, {.dtype = dtype, .root = root},
                 options))

TUTTI_FORMS(reduce,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             tutti_reduce_op op, int root, const tutti_call_options* options),
            even(Collective::reduce, group, input, output, count, {dtype, op, root}, options))

TUTTI_FORMS(all_reduce,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             tutti_reduce_op op, const tutti_call_options* options),
            even(Collective::all_reduce, group, input, output, count, {dtype, op}, options))

TUTTI_FORMS(gather,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             int root, const tutti_call_options* options),
            even(Collective::gather, group, input, output, count, {.dtype = dtype, .root = root},
                 options))

TUTTI_FORMS(all_gather,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             const tutti_call_options* options),
            even(Collective::all_gather, group, input, output, count, {dtype}, options))

TUTTI_FORMS(scatter,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             int root, const tutti_call_options* options),
            even(Collective::scatter, group, input, output, count, {.dtype = dtype, .root = root},
                 options))

TUTTI_FORMS(reduce_scatter,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             tutti_reduce_op op, const tutti_call_options* options),
            even(Collective::reduce_scatter, group, input, output, count, {dtype, op}, options))

TUTTI_FORMS(all_to_all,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             const tutti_call_options* options),
            even(Collective::all_to_all, group, input, output, count, {dtype}, options))

TUTTI_FORMS(scan,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             tutti_reduce_op op, const tutti_call_options* options),
            even(Collective::scan, group, input, output, count, {dtype, op}, options))

TUTTI_FORMS(exclusive_scan,
            (tutti_group * group, const void* input, void* output, size_t count, tutti_dtype dtype,
             tutti_reduce_op op, const tutti_call_options* options),
            even(Collective::exclusive_scan, group, input, output, count, {dtype, op}, options))

TUTTI_FORMS(barrier, (tutti_group * group, const tutti_call_options* options),
            even(Collective::barrier, group, nullptr, nullptr, 0, {}, options))

TUTTI_FORMS(gather_v,
            (tutti_group * group, const void* input, size_t count, void* output,
             const size_t* counts, tutti_dtype dtype, int root, const tutti_call_options* options),
            uneven(Collective::gather, group, input, {.count = count}, output, {counts},
                   {.dtype = dtype, .root = root}, options))

TUTTI_FORMS(all_gather_v,
            (tutti_group * group, const void* input, void* output, const size_t* counts,
             tutti_dtype dtype, const tutti_call_options* options),
            uneven(Collective::all_gather, group, input, own(group, counts), output, {counts},
                   {dtype}, options))

TUTTI_FORMS(scatter_v,
            (tutti_group * group, const void* input, const size_t* counts, void* output,
             size_t count, tutti_dtype dtype, int root, const tutti_call_options* options),
            uneven(Collective::scatter, group, input, {counts}, output, {.count = count},
                   {.dtype = dtype, .root = root}, options))

TUTTI_FORMS(reduce_scatter_v,
            (tutti_group * group, const void* input, const size_t* counts, void* output,
             tutti_dtype dtype, tutti_reduce_op op, const tutti_call_options* options),
            uneven(Collective::reduce_scatter, group, input, {counts}, output, own(group, counts),
                   {dtype, op}, options))

TUTTI_FORMS(all_to_all_v,
            (tutti_group * group, const void* input, const size_t* input_counts, void* output,
             const size_t* output_counts, tutti_dtype dtype, const tutti_call_options* options),
            uneven(Collective::all_to_all, group, input, {input_counts}, output, {output_counts},
                   {dtype}, options))
