// Pools of symmetric memory.

#include "capi/calls.hpp"

using namespace tutti;
using capi::guard;
using capi::null_argument;

tutti_status* tutti_pool_create(tutti_group* group, size_t bytes, tutti_device device,
                                tutti_pool** pool) {
  return guard([&]() -> Status {
    if (group == nullptr || pool == nullptr) return null_argument("group or pool");
    *pool = nullptr;
    const auto where = capi::device_of(device);
    if (!where.ok()) return where.status();
    auto made = SymmetricPool::create(group->group, bytes, *where);
    if (made.ok()) capi::give(pool, *std::move(made));
    return made.status();
  });
}

tutti_status* tutti_pool_take(tutti_pool* pool, size_t bytes, tutti_memory** memory) {
  return guard([&]() -> Status {
    if (pool == nullptr || memory == nullptr) return null_argument("pool or memory");
    *memory = nullptr;
    auto piece = pool->pool.take(bytes);
    if (piece.ok()) capi::give(memory, *std::move(piece));
    return piece.status();
  });
}

size_t tutti_pool_bytes(const tutti_pool* pool) { return pool == nullptr ? 0 : pool->pool.bytes(); }
size_t tutti_pool_bytes_free(const tutti_pool* pool) {
  return pool == nullptr ? 0 : pool->pool.bytes_free();
}
size_t tutti_pool_largest_free(const tutti_pool* pool) {
  return pool == nullptr ? 0 : pool->pool.largest_free();
}
size_t tutti_pool_peak_bytes(const tutti_pool* pool) {
  return pool == nullptr ? 0 : pool->pool.peak_bytes();
}
void tutti_pool_free(tutti_pool* pool) { delete pool; }
