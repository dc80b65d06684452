// train/bucket_layout.hpp - which parameter lies where: buckets of flat memory, in the order of use.
//
// A bucket holds parameters of one dtype whose gradients become ready one after the other. Each
// starts on a 64-element boundary; the end is padded to 128 · ranks elements in every mode, so that
// shards are aligned, too. Buckets are numbered in the order in which they become
// ready, and launched in that order on all ranks.
//
//   backward ──▶   │ head, block 3 │ block 2 │ block 1 │ block 0 │ norm │ tied embedding │
//                     bucket 0          1         2         3       4         5 = the tail
//
// Nothing hides the bucket that is ready last, so it is kept small. A tied parameter is ready last
// whatever its size: it gets a bucket of its own, so that the others need not wait for it. So do
// parameters whose gradients are added up over ranks of other data groups first (ParameterPlace::sum):
// theirs come last, and lie by name, as on those ranks. What does not count for the norm here
// (ParameterPlace::counted) shares no bucket with what does. Parameters of a unit (Parameter::unit) share
// one, whatever its size.
//
// Pure: same input, same layout.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/train/parameter.hpp"

namespace tutti::train {

inline constexpr std::size_t kBlock = 64;  // elements; a parameter starts on a multiple of it

// Indices of parameters: those whose gradients came, in that order, and those that forward asked for.
struct Order {
  std::vector<std::size_t> backward;
  std::vector<std::size_t> forward;
};

struct BucketPlace {
  std::size_t bucket = 0;
  std::size_t offset = 0;  // elements
  bool operator==(const BucketPlace&) const = default;
};

struct BucketPlan {
  Dtype dtype = Dtype::f32;             // of the parameters; gradients are f32
  std::vector<std::size_t> parameters;  // by offset
  std::size_t elements = 0;             // with padding
  int sum = -1;                         // as all its parameters have it
  bool counted = true;
  bool operator==(const BucketPlan&) const = default;
};

struct BucketLayout {
  std::vector<BucketPlan> buckets;                // by readiness
  std::vector<std::optional<BucketPlace>> place;  // by parameter; frozen ones have none
  std::vector<std::size_t> forward;               // buckets, by first use in forward
  bool operator==(const BucketLayout&) const = default;
};

// Parameters that `order` does not name are ready last and needed first. An empty order: the reverse
// of the definition.
BucketLayout make_layout(std::span<const Parameter> parameters, const Order& order,
                         std::size_t bucket_bytes, int ranks);

// Of a bucket's gradients, where they are whole: f32, and behind them what is sent, if that is bf16.
std::size_t gradient_bytes(const BucketPlan& bucket, bool in_bf16);
// What is added up over other ranks first is sent as it is.
inline bool is_sent_in_bf16(const BucketPlan& bucket, bool in_bf16) {
  return in_bf16 && bucket.sum < 0;
}

// The most bytes of gradients that there are at once, where a bucket has memory from its first gradient
// until `behind` more have gone after it. `came`: parameters as their gradients come, perhaps more than once;
// those that it does not name come last.
std::size_t gradients_at_once(std::span<const Parameter> parameters, const BucketLayout& layout,
                              std::span<const std::size_t> came, std::size_t behind, bool in_bf16);

// "bucket 5 of 6 (3.1 MiB): tied parameter embedding.weight is used …": why the tail is as long as it
// is.
std::string tail_cause(std::span<const Parameter> parameters, const BucketLayout& layout);
// A table of the buckets, and the tail's cause.
std::string describe(std::span<const Parameter> parameters, const BucketLayout& layout);

}  // namespace tutti::train
