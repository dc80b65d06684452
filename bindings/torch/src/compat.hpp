// compat.hpp - the one place that knows that torch has two shapes: up to 1.13 a backend is a whole
// c10d::ProcessGroup, from 2.0 on it is a c10d::Backend that torch's ProcessGroup calls.
//
// Everything else in this folder compiles alike with both. Virtual functions that only some versions
// have are declared without `override`: where the base has them they override, elsewhere they are
// plain methods.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

// 1: this torch has CUDA, and its headers and libc10_cuda were found (find_torch.py).
#ifndef TUTTI_TORCH_CUDA
#define TUTTI_TORCH_CUDA 0
#endif

#define TUTTI_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||        \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace tutti_torch {

#if TUTTI_TORCH_AT_LEAST(2, 0)
using BackendBase = c10d::Backend;
#else
using BackendBase = c10d::ProcessGroup;
#endif

using WorkHandle = c10::intrusive_ptr<c10d::Work>;

#if TUTTI_TORCH_AT_LEAST(2, 2)
using MaybeTensors = std::optional<std::vector<at::Tensor>>;
#else
using MaybeTensors = c10::optional<std::vector<at::Tensor>>;
#endif

}  // namespace tutti_torch
