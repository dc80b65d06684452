// transport/ofi/providers.hpp - the fabrics that libfabric finds on this machine. No header of libfabric is
// needed to include this one.
#pragma once

#include <string>
#include <vector>

#include "tutti/config.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::ofi {

struct Provider {
  std::string name;                  // "verbs;ofi_rxm"
  std::vector<std::string> domains;  // "mlx5_0" …: a rail each
  bool hardware = false;             // it moves bytes by itself, not by sockets or memory
};

// Those that can do what links need, the best first; only the one of that name, if there is one. Loads libfabric
// and all its providers. Code::unsupported: this build, or this machine, has no libfabric.
Result<std::vector<Provider>> providers(const std::string& name = {});

// What links of this rank would use: the provider of TUTTI_OFI_PROVIDER, else the best, and its domains.
// Code::unsupported names what there is.
Result<Provider> choose_provider(const Config& config, std::vector<Provider> all);

// Whether a look at /sys shows a fabric, so that it is worth loading libfabric where nobody asked for it.
bool has_fabric_hardware();

}  // namespace tutti::transport::ofi
