// shared_heap.hpp - torch's large CPU tensors in memory that the ranks of the host have mapped.
#pragma once

#include "tutti/shared_heap.hpp"

namespace tutti_torch {

// From now on tensors of SharedHeap::kLeastBytes and more come from this process's shared heap, while it has
// room; smaller ones, and those that there are, stay with the allocator that torch had. For good: torch keeps
// pointers to its allocators. Once more in a child of fork(): the child gets a heap of its own.
void use_shared_heap();

// Of this process's heap; all zero where it has none, or only its parent's.
tutti::SharedHeap::Usage shared_heap_usage();

}  // namespace tutti_torch
