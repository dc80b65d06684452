// reduce/copy.hpp - moving bytes, and whether what is written stays in the cache.
//
// Buffers        no alignment is assumed; they may not overlap, but may be the same.
// Thread-safety  pure. Streaming stores are fenced before the call returns, so a flag that is
//                stored after it (release) is seen after the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::reduce {

// cached     ordinary stores: right when somebody reads the bytes soon, or when the lines are in
//            this core's cache already.
// streaming  non-temporal stores, which do not read a line before they write it and leave the cache
//            to others: for memory that is in nobody's cache. The README says from which sizes.
enum class Stores : std::uint8_t { cached, streaming };

void copy(void* dst, const void* src, std::size_t bytes, Stores stores);

}  // namespace tutti::reduce
