// Statuses, the printed words and the version.

#include "capi/handles.hpp"

namespace {

using namespace tutti;

// These enumerators are written twice; each is the last of its list, so a forgotten one shows here.
static_assert(TUTTI_INTERNAL == static_cast<int>(Code::internal));
static_assert(TUTTI_USER == static_cast<int>(ReduceOp::user) && TUTTI_USER == kReduceOps - 1);
static_assert(TUTTI_CUSTOM == static_cast<int>(Algorithm::custom));
static_assert(TUTTI_ORDER_TREE == static_cast<int>(ReductionOrder::tree) &&
              TUTTI_ORDER_TREE == kReductionOrders - 1);
static_assert(TUTTI_CUDA == static_cast<int>(Device::cuda));
static_assert(TUTTI_ANY_SOURCE == kAnySource);

// The library's words are string literals, so that their data ends with a zero.
template <class Enum>
const char* word(int value, int values) noexcept {
  if (value < 0 || value >= values) return "unknown";
  return tutti::to_string(static_cast<Enum>(value)).data();
}

}  // namespace

namespace tutti::capi {

// Made once, never changed: without memory nothing could be made when it is needed.
tutti_status* no_memory() noexcept {
  static tutti_status status{Status(Code::out_of_memory, "no memory left in this process")};
  return &status;
}

tutti_status* give(Status status) noexcept {
  if (status.ok()) return nullptr;
  auto* handle = new (std::nothrow) tutti_status{std::move(status)};
  return handle != nullptr ? handle : no_memory();
}

}  // namespace tutti::capi

const char* tutti_code_name(tutti_code code) { return word<Code>(code, TUTTI_INTERNAL + 1); }
const char* tutti_dtype_name(tutti_dtype dtype) { return word<Dtype>(dtype, kDtypes); }
const char* tutti_reduce_op_name(tutti_reduce_op op) { return word<ReduceOp>(op, kReduceOps); }
const char* tutti_collective_name(tutti_collective collective) {
  return word<Collective>(collective, kCollectives);
}
const char* tutti_algorithm_name(tutti_algorithm algorithm) {
  return word<Algorithm>(algorithm, kAlgorithms);
}

size_t tutti_dtype_size(tutti_dtype dtype) {
  const int value = dtype;
  return value < 0 || value >= kDtypes ? 0 : size_of(static_cast<Dtype>(value));
}

const char* tutti_version(void) { return TUTTI_VERSION; }

tutti_code tutti_status_code(const tutti_status* status) {
  return status == nullptr ? TUTTI_OK : static_cast<tutti_code>(status->status.code());
}
const char* tutti_status_message(const tutti_status* status) {
  return status == nullptr ? "" : status->status.message().c_str();
}
int tutti_status_rank(const tutti_status* status) {
  return status == nullptr ? -1 : status->status.rank();
}
int tutti_status_peer(const tutti_status* status) {
  return status == nullptr ? -1 : status->status.peer();
}
uint64_t tutti_status_sequence(const tutti_status* status) {
  return status == nullptr ? 0 : status->status.sequence();
}
void tutti_status_free(tutti_status* status) {
  if (status != tutti::capi::no_memory()) delete status;
}
