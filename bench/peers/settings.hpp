// bench/peers/settings.hpp - how each peer is started: its defaults, and settings that were found
// to be good on some size. One line each; `tutti bench compare` tries them all and takes the best.
//
// Found by screening on 2 cores (Open MPI 4.1.4, MPICH 4.0.2, Gloo 0.5; November 2026); a setting
// that is never best on another machine costs time, and one that is missing flatters tutti: add it.
#pragma once

#include <cstddef>

namespace tutti::bench {

enum class Room { any, spare, crowded };  // spare: a core per rank; crowded: more ranks than cores
// loopback: tcp, but not between hosts; hosts: between hosts alone, and memory inside of each.
enum class PeerWire { memory, tcp, loopback, hosts, fabric, any };

struct PeerSetting {
  const char* peer;
  const char* name;  // "default": as it comes
  Room room;
  PeerWire wire;
  const char* collectives;  // with commas; empty: all
  std::size_t least_bytes;
  std::size_t most_bytes;  // 0: no limit
  const char* words;       // for its launcher or program; NAME=value goes into the environment
};

#define OB1 "--mca pml ob1 --mca btl vader,self "
#define UCX "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any UCX_TLS=self,sm "
#define TCP "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include @network "
#define OFI "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include tcp;ofi_rxm "
#define HOSTS "--mca pml ob1 --mca btl tcp,vader,self --mca btl_tcp_if_include @network "
#define YIELD "--mca mpi_yield_when_idle 1 "
#define NO_CMA "--mca btl_vader_single_copy_mechanism none "
#define ALGORITHM(k) "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm " k

// clang-format off
inline constexpr PeerSetting kPeerSettings[] = {
    {"openmpi", "default", Room::any, PeerWire::memory, "", 0, 0, ""},
    {"openmpi", "cma", Room::spare, PeerWire::memory, "", 0, 0, OB1},
    {"openmpi", "none", Room::spare, PeerWire::memory, "", 0, 0, OB1 NO_CMA},
    {"openmpi", "ucx", Room::spare, PeerWire::memory, "", 0, 0, UCX},
    {"openmpi", "han", Room::spare, PeerWire::memory, "", 0, 0, OB1 "--mca coll_han_priority 100"},
    {"openmpi", "sm", Room::spare, PeerWire::memory, "reduce_scatter,broadcast,barrier", 0, 0, OB1 "--mca coll_sm_priority 100"},
    {"openmpi", "none-ar5", Room::spare, PeerWire::memory, "all_reduce", 0, 0, OB1 NO_CMA ALGORITHM("5")},
    {"openmpi", "cma-ar4", Room::spare, PeerWire::memory, "all_reduce", 0, 0, OB1 ALGORITHM("4")},
    {"openmpi", "cma-yield", Room::crowded, PeerWire::memory, "", 0, 0, OB1 YIELD},
    {"openmpi", "none-yield", Room::crowded, PeerWire::memory, "", 0, 0, OB1 YIELD NO_CMA},
    {"openmpi", "ucx-yield", Room::crowded, PeerWire::memory, "", 0, 0, UCX YIELD},
    {"openmpi", "adapt-yield", Room::crowded, PeerWire::memory, "all_reduce,reduce_scatter", 0, 0, OB1 YIELD "--mca coll_adapt_priority 100"},
    {"openmpi", "han-yield", Room::crowded, PeerWire::memory, "all_reduce,reduce_scatter,barrier", 0, 0, OB1 YIELD "--mca coll_han_priority 100"},
    {"openmpi", "cma-ar6-yield", Room::crowded, PeerWire::memory, "all_reduce", 0, 0, OB1 YIELD ALGORITHM("6")},
    {"openmpi", "default", Room::any, PeerWire::tcp, "", 0, 0, TCP},
    {"openmpi", "tcp-ar4", Room::any, PeerWire::tcp, "all_reduce", 0, 0, TCP YIELD ALGORITHM("4")},
    {"openmpi", "tcp-ar6", Room::any, PeerWire::tcp, "all_reduce", 0, 0, TCP YIELD ALGORITHM("6")},
    {"openmpi", "default", Room::any, PeerWire::fabric, "", 0, 0, OFI},
    {"openmpi", "hosts", Room::any, PeerWire::hosts, "", 0, 0, HOSTS YIELD},
    {"openmpi", "han", Room::any, PeerWire::hosts, "", 0, 0, HOSTS YIELD "--mca coll_han_priority 100"},
    {"mpich", "default", Room::any, PeerWire::memory, "", 0, 0, ""},
    {"mpich", "nolocal-ucx", Room::spare, PeerWire::memory, "", 0, 0, "MPIR_CVAR_NOLOCAL=1 UCX_TLS=self,sm"},
    {"mpich", "doubling", Room::spare, PeerWire::memory, "all_reduce", 0, 65536, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=recursive_doubling MPIR_CVAR_DEVICE_COLLECTIVES=none"},
    {"mpich", "default", Room::any, PeerWire::loopback, "", 0, 0, "MPIR_CVAR_NOLOCAL=1 UCX_TLS=self,tcp"},
    {"gloo", "default", Room::any, PeerWire::any, "", 0, 0, "--algorithm api"},
    {"gloo", "bcube", Room::any, PeerWire::any, "all_reduce", 0, 0, "--algorithm bcube"},
    {"gloo", "halving-polling", Room::spare, PeerWire::any, "", 0, 16777216, "--algorithm halving --polling 2"},
    {"gloo", "ring-chunked", Room::any, PeerWire::any, "all_reduce", 0, 0, "--algorithm ring_chunked"},
    {"gloo", "halving", Room::any, PeerWire::any, "all_reduce,reduce_scatter,barrier", 0, 0, "--algorithm halving"},
};
// clang-format on

#undef OB1
#undef UCX
#undef TCP
#undef OFI
#undef HOSTS
#undef YIELD
#undef NO_CMA
#undef ALGORITHM

}  // namespace tutti::bench
