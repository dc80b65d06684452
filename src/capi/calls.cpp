// tutti_run and tutti_start: a tutti_call becomes a Call; also reductions written by the user.

#include "capi/calls.hpp"

namespace tutti::capi {

Result<Device> device_of(int value) {
  constexpr int kDevices = 2;
  if (Status status = check_enum(value, kDevices, "device"); !status.ok()) return status;
  return static_cast<Device>(value);
}

Result<GivenOptions> options_of(const tutti_call_options* from) {
  GivenOptions options;
  if (from == nullptr) return options;
  tutti_call_options given = TUTTI_CALL_OPTIONS_INIT;
  if (Status status = take(from, "options", &given); !status.ok()) return status;
  if (Status status = check_enum(given.algorithm, kAlgorithms, "algorithm"); !status.ok())
    return status;
  auto device = device_of(given.device);
  if (!device.ok()) return device.status();
  options.device = *device;
  options.call.timeout = std::chrono::nanoseconds(given.timeout_ns);
  options.call.algorithm = static_cast<Algorithm>(given.algorithm);
  options.call.stream = given.stream;
  if (given.name != nullptr) options.call.name = given.name;
  if (given.after == nullptr && given.after_count > 0) return null_argument("options.after");
  for (std::size_t i = 0; i < given.after_count; ++i) {
    if (given.after[i] == nullptr) return null_argument("a work of options.after");
    options.call.after(given.after[i]->work);
  }
  return options;
}

Result<Buffer> buffer_of(const tutti_buffer* from) {
  tutti_buffer given = TUTTI_BUFFER_INIT;
  if (Status status = take(from, "buffer", &given); !status.ok()) return status;
  if (Status status = check_enum(given.dtype, kDtypes, "dtype"); !status.ok()) return status;
  auto device = device_of(given.device);
  if (!device.ok()) return device.status();
  return Buffer{given.data, given.count, static_cast<Dtype>(given.dtype), *device, given.ready};
}

namespace {

template <class B>
Status append_buffers(const tutti_buffer* from, std::size_t count, std::vector<B>* to) {
  if (count > 0 && from == nullptr) return null_argument("the array of buffers");
  for (std::size_t i = 0; i < count; ++i) {
    auto buffer = buffer_of(element(from, i));
    if (!buffer.ok()) return buffer.status();
    to->push_back(*buffer);
  }
  return Status();
}

Counts counts_of(const size_t* counts, int ranks) {
  return counts == nullptr ? Counts() : Counts(counts, static_cast<std::size_t>(ranks));
}

Result<Reduction> reduction_of(const tutti_call& given) {
  if (Status status = check_enum(given.op, kReduceOps, "op"); !status.ok()) return status;
  Reduction reduction(static_cast<ReduceOp>(given.op));
  reduction.scalar = given.scalar;
  if (given.user != nullptr) reduction.user = &given.user->reduction;
  return reduction;
}

// C++ hands a Dtype on where C wants an int-sized enum, so a call goes through here.
void call_c_function(const void* in, void* inout, std::size_t count, Dtype dtype, void* context) {
  const auto* user = static_cast<const tutti_user_reduction*>(context);
  user->function(in, inout, count, static_cast<tutti_dtype>(dtype), user->context);
}

}  // namespace

// The spans of the result point into its vectors, whose elements stay put when it is moved.
Result<OwnedCall> call_of(const tutti_call* from, int ranks) {
  tutti_call given = TUTTI_CALL_INIT;
  if (Status status = take(from, "call", &given); !status.ok()) return status;
  if (Status status = check_enum(given.collective, kCollectives, "collective"); !status.ok())
    return status;
  OwnedCall owned;
  if (Status status = append_buffers(given.input, given.input_buffers, &owned.input); !status.ok())
    return status;
  if (Status status = append_buffers(given.output, given.output_buffers, &owned.output);
      !status.ok())
    return status;
  auto reduction = reduction_of(given);
  if (!reduction.ok()) return reduction.status();
  auto options = options_of(given.options);
  if (!options.ok()) return options.status();
  owned.call = {.collective = static_cast<Collective>(given.collective),
                .input = owned.input,
                .output = owned.output,
                .input_counts = counts_of(given.input_counts, ranks),
                .output_counts = counts_of(given.output_counts, ranks),
                .reduction = *reduction,
                .root = given.root,
                .uneven = given.uneven != 0,
                .options = options->call};
  return owned;
}

}  // namespace tutti::capi

using namespace tutti;

tutti_status* tutti_run(tutti_group* group, const tutti_call* call) {
  return capi::guard([&]() -> Status {
    if (group == nullptr) return capi::null_argument("group");
    auto owned = capi::call_of(call, group->group->size());
    return owned.ok() ? group->group->run(owned->call) : owned.status();
  });
}

tutti_work* tutti_start(tutti_group* group, const tutti_call* call) {
  return capi::start_guarded([&]() -> Work {
    if (group == nullptr) return Work::finished(capi::null_argument("group"));
    auto owned = capi::call_of(call, group->group->size());
    return owned.ok() ? group->group->start(owned->call) : Work::finished(owned.status());
  });
}

tutti_status* tutti_user_reduction_create(const char* name, tutti_reduce_function function,
                                          void* context, int commutative,
                                          tutti_user_reduction** reduction) {
  return capi::guard([&]() -> Status {
    if (name == nullptr || function == nullptr || reduction == nullptr)
      return capi::null_argument("name, function or reduction");
    auto made = std::make_unique<tutti_user_reduction>();
    made->function = function;
    made->context = context;
    made->reduction = {name, capi::call_c_function, made.get(), commutative != 0};
    *reduction = made.release();
    return Status();
  });
}

void tutti_user_reduction_free(tutti_user_reduction* reduction) { delete reduction; }
