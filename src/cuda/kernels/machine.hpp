// cuda/kernels/machine.hpp - what kernels ask of the machine they run on, for the GPU and for the host.
//
// All other kernel headers are plain C++ over this one, so that tests run the very same code on a
// machine without a GPU: there a launch is one block of one thread, or as many threads as a test has
// started (Crew). Between the two differ only the primitives below.
//
// Memory order   flags and words that somebody else polls are written with release and read with
//                acquire, at system scope: peers are other processes, other devices or the host.
//                Data are ordinary loads and stores, never through the read-only cache, because peers
//                write the same memory; the flags order them.
#pragma once

#include <cstdint>

#include "cuda/job.hpp"

#if defined(__CUDACC__)
#define TUTTI_DEVICE __device__ __forceinline__
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_ROLLED _Pragma("unroll 1")
#else
#include <sched.h>
#define TUTTI_DEVICE inline
#define TUTTI_UNROLL
#define TUTTI_ROLLED
#endif

namespace tutti::cuda::kernels {

// Sixteen bytes of memory: the widest that a thread loads or stores at once.
struct alignas(16) Quad {
  std::uint32_t words[4];
};

#if defined(__CUDACC__)

// One thread of a launch.
struct Worker {
  int index = static_cast<int>(threadIdx.x);  // in its block
  // Known when it is compiled, which saves registers. `meet` has fewer, and no loop that would notice.
  static constexpr int count = kBlockThreads;
  int block = static_cast<int>(blockIdx.x);
  int blocks = static_cast<int>(gridDim.x);

  // Until all threads of the block are here; what each wrote before, all see after.
  TUTTI_DEVICE void sync() const { __syncthreads(); }
  // The same, and whether it is true for any of them.
  TUTTI_DEVICE bool any(bool here) const { return __syncthreads_or(here) != 0; }
};

template <class T>
TUTTI_DEVICE T load(std::uint64_t address) {
  return *reinterpret_cast<const T*>(address);
}
template <class T>
TUTTI_DEVICE void store(std::uint64_t address, T value) {
  *reinterpret_cast<T*>(address) = value;
}
// Spelled out where speed counts: a number that became a pointer might point into shared memory for all
// the compiler knows, and such a load is slower.
template <>
TUTTI_DEVICE Quad load<Quad>(std::uint64_t address) {
  Quad x;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.words[0]), "=r"(x.words[1]), "=r"(x.words[2]), "=r"(x.words[3])
               : "l"(address));
  return x;
}
template <>
TUTTI_DEVICE void store<Quad>(std::uint64_t address, Quad x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(x.words[0]),
               "r"(x.words[1]), "r"(x.words[2]), "r"(x.words[3]));
}

TUTTI_DEVICE std::uint64_t load_acquire(const std::uint64_t* word) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
TUTTI_DEVICE void store_release(std::uint64_t* word, std::uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// Past every cache, ordered with nothing.
TUTTI_DEVICE std::uint64_t load_fresh(const std::uint64_t* word) {
  return *const_cast<const volatile std::uint64_t*>(word);
}
TUTTI_DEVICE std::uint32_t load_fresh(const std::uint32_t* word) {
  return *const_cast<const volatile std::uint32_t*>(word);
}
// Sixteen bytes at a time: a post in host memory costs the bus two reads, not four.
TUTTI_DEVICE Post load_fresh(const Post* from) {
  Post post;
  asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];"
               : "=l"(post.source), "=l"(post.target)
               : "l"(&from->source)
               : "memory");
  asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];"
               : "=l"(post.tag), "=l"(post.spare)
               : "l"(&from->tag)
               : "memory");
  return post;
}
TUTTI_DEVICE void store_fresh(std::uint64_t* word, std::uint64_t value) {
  *const_cast<volatile std::uint64_t*>(word) = value;
}
// Returns what was there before. Of one launch's blocks: acquires and releases.
TUTTI_DEVICE std::uint32_t fetch_add(std::uint32_t* word, std::uint32_t more) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(more)
               : "memory");
  return before;
}
TUTTI_DEVICE void fetch_or(std::uint32_t* word, std::uint32_t bits) { atomicOr(word, bits); }
// Of device or shared memory, ordered with nothing.
TUTTI_DEVICE void fetch_add(std::uint64_t* word, std::uint64_t more) {
  atomicAdd(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(more));
}
TUTTI_DEVICE void fetch_max(std::uint64_t* word, std::uint64_t value) {
  atomicMax(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
}
// Rounded correctly.
TUTTI_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
// Between two looks at a flag: at first none, so that a flag that is nearly there is not slept over.
TUTTI_DEVICE void nap(unsigned looks) {
  if (looks > 64) __nanosleep(100);
}

#else

// The threads of a block where there is more than one; tests implement it.
class Crew {
 public:
  virtual ~Crew() = default;
  virtual void sync() = 0;
  virtual bool any(bool here) = 0;
};

struct Worker {
  int index = 0;
  int count = 1;
  int block = 0;
  int blocks = 1;
  Crew* crew = nullptr;

  void sync() const {
    if (crew != nullptr) crew->sync();
  }
  bool any(bool here) const { return crew != nullptr ? crew->any(here) : here; }
};

template <class T>
inline T load(std::uint64_t address) {
  T value;
  __builtin_memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
  return value;
}
template <class T>
inline void store(std::uint64_t address, T value) {
  __builtin_memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
}

inline std::uint64_t load_acquire(const std::uint64_t* word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline void store_release(std::uint64_t* word, std::uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
inline std::uint64_t load_fresh(const std::uint64_t* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
inline std::uint32_t load_fresh(const std::uint32_t* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
inline Post load_fresh(const Post* from) { return *from; }
inline void store_fresh(std::uint64_t* word, std::uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
inline std::uint32_t fetch_add(std::uint32_t* word, std::uint32_t more) {
  return __atomic_fetch_add(word, more, __ATOMIC_ACQ_REL);
}
inline void fetch_or(std::uint32_t* word, std::uint32_t bits) {
  __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}
inline void fetch_add(std::uint64_t* word, std::uint64_t more) {
  __atomic_fetch_add(word, more, __ATOMIC_RELAXED);
}
inline void fetch_max(std::uint64_t* word, std::uint64_t value) {
  std::uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (before < value && !__atomic_compare_exchange_n(word, &before, value, true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}
inline float square_root(float x) { return __builtin_sqrtf(x); }
// What a waiting thread does; an emulation may put something else in its place.
inline thread_local void (*on_nap)() = [] { ::sched_yield(); };
inline void nap(unsigned) { on_nap(); }

#endif

}  // namespace tutti::cuda::kernels
