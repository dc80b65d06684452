#include "shared_heap.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <limits>

#include "errors.hpp"

namespace tutti_torch {
namespace {

class HeapAllocator;
HeapAllocator* g_allocator = nullptr;  // torch's from then on; never destroyed

class HeapAllocator final : public c10::Allocator {
 public:
  HeapAllocator(const tutti::SharedHeap& heap, c10::Allocator& own) : heap_(heap), own_(own) {}

  // Some versions of torch have the one, some the other; 2.x has the third.
  c10::DataPtr allocate(std::size_t bytes) const { return take_block(bytes); }
  c10::DataPtr allocate(std::size_t bytes) { return take_block(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }
  // One for all blocks, as torch demands.
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  const tutti::SharedHeap& heap() const { return heap_; }
  void set_heap(const tutti::SharedHeap& heap) { heap_ = heap; }

 private:
  c10::DataPtr take_block(std::size_t bytes) const {
    void* block = nullptr;
    if (bytes >= tutti::SharedHeap::kLeastBytes && !heap_.is_of_parent()) block = from_heap(bytes);
    if (block == nullptr) block = own_.raw_allocate(bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  void* from_heap(std::size_t bytes) const {
    auto block = heap_.allocate(bytes);
    if (!block.ok()) {
      TORCH_WARN_ONCE("tensors lie in ordinary memory from here on, where there is any: ",
                      block.status().message());
      return nullptr;
    }
    c10::profiledCPUMemoryReporter().New(*block, bytes);
    return *block;
  }

  static void free_block(void* block) {
    const HeapAllocator& all = *g_allocator;
    if (!all.heap_.contains(block)) return all.own_.raw_deallocate(block);
    c10::profiledCPUMemoryReporter().Delete(block);
    all.heap_.free(block);
  }

  tutti::SharedHeap heap_;
  c10::Allocator& own_;
};

}  // namespace

void use_shared_heap() {
  const tutti::SharedHeap heap = take(tutti::SharedHeap::of_process());
  if (g_allocator != nullptr) return g_allocator->set_heap(heap);
  c10::Allocator* own = c10::GetCPUAllocator();
  if (own->raw_deleter() == nullptr)
    unsupported("use_shared_heap",
                "torch's CPU allocator was replaced by one that cannot be shared");
  auto* allocator = new HeapAllocator(heap, *own);
  g_allocator = allocator;
  c10::SetCPUAllocator(allocator, std::numeric_limits<std::uint8_t>::max());
  if (c10::GetCPUAllocator() != allocator) {
    g_allocator = nullptr;
    delete allocator;
    unsupported("use_shared_heap",
                "torch's CPU allocator was replaced by one that yields to nobody");
  }
}

tutti::SharedHeap::Usage shared_heap_usage() {
  const bool is_here = g_allocator != nullptr && !g_allocator->heap().is_of_parent();
  return is_here ? g_allocator->heap().usage() : tutti::SharedHeap::Usage{};
}

}  // namespace tutti_torch
