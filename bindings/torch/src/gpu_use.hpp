// gpu_use.hpp - what this process does on its GPU: which one it is, and which groups work there.
//
// Ranks map each other's device memory. When torch's caching allocator gives memory back to the driver,
// groups hear of it before it goes (tutti::Group::forget): other ranks would keep it mapped, and so in
// use, until something else takes its address.
//
// Thread-safety  any thread, any function. The allocator calls note_freed under its own lock: nothing here
//                calls torch, or waits for anybody who might, with a lock in hand.
#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "tutti/group.hpp"

namespace tutti_torch {

// The group works on memory of that GPU. The first call has torch's allocator watched.
void note_use(tutti::Group& group, c10::Device gpu);
// The group is about to go.
void note_end(const tutti::Group& group);
// The allocation that begins there is about to be freed.
void note_freed(const void* allocation);
// Absent: no group has used one. A process uses one GPU.
std::optional<c10::Device> gpu_in_use();

// From here on torch's allocator calls note_freed, if it is the kind that can tell. Once per process,
// after torch has initialised CUDA.
void watch_allocator();

}  // namespace tutti_torch
