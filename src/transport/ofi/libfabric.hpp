// transport/ofi/libfabric.hpp - libfabric's functions, found at run time.
//
// libtutti is not linked to libfabric.so.1: one package works on machines with and without it, and no process
// that needs it not pays for what it loads (half a second for all providers of Debian 12, 2 vCPU Xeon,
// 2026-11-19). It exports few functions; everything else is called through the objects that they give, by the
// inline functions of its headers.
//
// Thread-safety  any thread. The table is made once per process and never changes.
#pragma once

#include <rdma/fabric.h>

#include "tutti/status.hpp"

namespace tutti::transport::ofi {

struct Libfabric {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;
};

// Code::unsupported: this machine has none, or one that is too old.
Result<const Libfabric*> libfabric();

// "cannot open a domain of libfabric: Function not implemented"; `result` is what a call of it gave.
Status failure(const char* what, long result);

}  // namespace tutti::transport::ofi
