// Groups, symmetric memory and predictions.

#include "capi/calls.hpp"

using namespace tutti;
using capi::give;
using capi::guard;
using capi::null_argument;

namespace {

Result<GroupOptions> group_options_of(const tutti_group_options* from) {
  GroupOptions options;
  if (from == nullptr) return options;
  tutti_group_options given = TUTTI_GROUP_OPTIONS_INIT;
  if (Status status = capi::take(from, "options", &given); !status.ok()) return status;
  if (Status status = capi::check_enum(given.reduction_order, kReductionOrders, "reduction_order");
      !status.ok())
    return status;
  options.rank = given.rank;
  options.size = given.ranks;
  if (given.name != nullptr) options.name = given.name;
  options.reduction_order = static_cast<ReductionOrder>(given.reduction_order);
  options.survives_losses = given.survives_losses != 0;
  options.secret = capi::bytes_of(given.secret, given.secret_bytes);
  return options;
}

Result<GroupSpec> spec_of(const tutti_group_spec* from) {
  GroupSpec spec;
  if (from == nullptr) return spec;
  tutti_group_spec given = TUTTI_GROUP_SPEC_INIT;
  if (Status status = capi::take(from, "spec", &given); !status.ok()) return status;
  if (Status status = capi::check_enum(given.urgency, 3, "urgency"); !status.ok()) return status;
  spec.name = capi::text_or_empty(given.name);
  spec.urgency = static_cast<Urgency>(given.urgency);
  if (given.reduction_order == -1) return spec;
  const auto order = static_cast<tutti_reduction_order>(given.reduction_order);
  if (Status status = capi::check_enum(order, kReductionOrders, "reduction_order"); !status.ok())
    return status;
  spec.reduction_order = static_cast<ReductionOrder>(order);
  return spec;
}

// A split that leaves this rank out, or a grow that nobody waits for, is ok with a null group, and
// gives no handle.
Status hand_out(Result<std::shared_ptr<Group>> made, tutti_group** out) {
  if (!made.ok()) return made.status();
  if (*made != nullptr) give(out, *std::move(made));
  return Status();
}

// A group whose ranks meet in `store`: `make` is Group::create or Group::join.
template <class Make>
tutti_status* made_in(tutti_store* store, const tutti_group_options* options, tutti_group** group,
                      Make make) noexcept {
  return guard([&]() -> Status {
    if (store == nullptr || group == nullptr) return null_argument("store or group");
    *group = nullptr;
    auto given = group_options_of(options);
    if (!given.ok()) return given.status();
    return hand_out(make(store->store, *std::move(given)), group);
  });
}

// Runs `body` on the group behind the handle, for functions that hand something out.
template <class Out, class Body>
tutti_status* with_group(const tutti_group* group, Out* out, Body body) noexcept {
  return guard([&]() -> Status {
    if (group == nullptr) return null_argument("group");
    if (out == nullptr) return null_argument("the place for the result");
    return body(*group->group);
  });
}

}  // namespace

tutti_status* tutti_group_create(tutti_store* store, const tutti_group_options* options,
                                 tutti_group** group) {
  return made_in(store, options, group, Group::create);
}

tutti_status* tutti_group_join(tutti_store* store, const tutti_group_options* options,
                               tutti_group** group) {
  return made_in(store, options, group, Group::join);
}

tutti_status* tutti_group_from_environment(const tutti_group_options* options,
                                           tutti_group** group) {
  return guard([&]() -> Status {
    if (group == nullptr) return null_argument("group");
    *group = nullptr;
    auto given = group_options_of(options);
    if (!given.ok()) return given.status();
    return hand_out(Group::from_environment(*std::move(given)), group);
  });
}

void tutti_group_destroy(tutti_group* group) { delete group; }

int tutti_group_rank(const tutti_group* group) {
  return group == nullptr ? -1 : group->group->rank();
}
int tutti_group_size(const tutti_group* group) {
  return group == nullptr ? 0 : group->group->size();
}
const char* tutti_group_name(const tutti_group* group) {
  return group == nullptr ? "" : group->group->name().c_str();
}

tutti_status* tutti_group_split(tutti_group* group, int color, int key,
                                const tutti_group_spec* spec, tutti_group** part) {
  return with_group(group, part, [&](Group& whole) -> Status {
    *part = nullptr;
    const auto made = spec_of(spec);
    return made.ok() ? hand_out(whole.split(color, key, *made), part) : made.status();
  });
}

tutti_status* tutti_group_subgroup(tutti_group* group, const int* ranks, size_t rank_count,
                                   uint32_t tag, const tutti_group_spec* spec, tutti_group** part) {
  return with_group(group, part, [&](Group& whole) -> Status {
    *part = nullptr;
    if (ranks == nullptr) return null_argument("ranks");
    const auto made = spec_of(spec);
    if (!made.ok()) return made.status();
    return hand_out(whole.subgroup({ranks, rank_count}, tag, *made), part);
  });
}

tutti_status* tutti_group_duplicate(tutti_group* group, const tutti_group_spec* spec,
                                    tutti_group** copy) {
  return with_group(group, copy, [&](Group& whole) -> Status {
    *copy = nullptr;
    const auto made = spec_of(spec);
    return made.ok() ? hand_out(whole.duplicate(*made), copy) : made.status();
  });
}

tutti_status* tutti_group_shrink(tutti_group* group, const char* name, int64_t timeout_ns,
                                 tutti_group** smaller) {
  return with_group(group, smaller, [&](Group& whole) {
    *smaller = nullptr;
    return hand_out(whole.shrink(capi::text_or_empty(name), std::chrono::nanoseconds(timeout_ns)),
                    smaller);
  });
}

tutti_status* tutti_group_grow(tutti_group* group, tutti_store* store, int most,
                               const tutti_group_options* options, tutti_group** larger) {
  return with_group(group, larger, [&](Group& whole) -> Status {
    *larger = nullptr;
    if (store == nullptr) return null_argument("store");
    auto given = group_options_of(options);
    if (!given.ok()) return given.status();
    return hand_out(whole.grow(store->store, most, *std::move(given)), larger);
  });
}

void tutti_group_abort(tutti_group* group, const char* reason) {
  // An abort that fails for want of memory has nobody to tell.
  tutti_status_free(guard([&] {
    if (group != nullptr) group->group->abort(capi::text_or_empty(reason));
    return Status();
  }));
}

tutti_status* tutti_group_health(const tutti_group* group) {
  return guard([&]() -> Status {
    return group == nullptr ? null_argument("group") : group->group->health();
  });
}

size_t tutti_group_describe(const tutti_group* group, char* text, size_t capacity) {
  size_t length = 0;
  tutti_status_free(guard([&] {
    const std::string words = group == nullptr ? std::string() : group->group->describe();
    length = words.size();
    if (capacity > 0) text[words.copy(text, capacity - 1)] = '\0';
    return Status();
  }));
  return length;
}

tutti_status* tutti_group_allocate(tutti_group* group, size_t bytes, tutti_memory** memory) {
  return tutti_group_allocate_on(group, bytes, TUTTI_CPU, memory);
}

tutti_status* tutti_group_allocate_on(tutti_group* group, size_t bytes, tutti_device device,
                                      tutti_memory** memory) {
  return with_group(group, memory, [&](Group& whole) -> Status {
    *memory = nullptr;
    auto where = capi::device_of(device);
    if (!where.ok()) return where.status();
    auto made = whole.allocate(bytes, *where);
    if (!made.ok()) return made.status();
    give(memory, *std::move(made));
    return Status();
  });
}

void tutti_group_forget(tutti_group* group, const void* allocation) {
  // One that fails for want of memory has nobody to tell: the allocation stays mapped.
  tutti_status_free(guard([&] {
    if (group != nullptr) group->group->forget(allocation);
    return Status();
  }));
}

void* tutti_memory_data(const tutti_memory* memory) {
  return memory == nullptr ? nullptr : memory->memory.data;
}
size_t tutti_memory_bytes(const tutti_memory* memory) {
  return memory == nullptr ? 0 : memory->memory.bytes;
}
void tutti_memory_free(tutti_memory* memory) { delete memory; }

tutti_status* tutti_group_predict(tutti_group* group, tutti_collective collective, size_t bytes,
                                  tutti_prediction* prediction) {
  return with_group(group, prediction, [&](Group& whole) -> Status {
    if (Status status = capi::check_enum(collective, kCollectives, "collective"); !status.ok())
      return status;
    auto expected = whole.predict(static_cast<Collective>(collective), bytes);
    if (!expected.ok()) return expected.status();
    tutti_prediction filled = TUTTI_PREDICTION_INIT;
    filled.time_ns = expected->time.count();
    filled.algorithm = static_cast<tutti_algorithm>(expected->algorithm);
    return capi::fill(filled, "prediction", prediction);
  });
}
