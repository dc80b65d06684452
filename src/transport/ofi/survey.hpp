// transport/ofi/survey.hpp - what links ask of a provider, and the domains that can do it.
#pragma once

#include <memory>
#include <vector>

#include "transport/ofi/libfabric.hpp"
#include "transport/ofi/providers.hpp"

namespace tutti::transport::ofi {

struct FreeInfo {
  void operator()(fi_info* info) const;
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// One per provider and domain, in libfabric's order. `provider`: only those of that name; empty: all.
Result<std::vector<Info>> survey(const std::string& provider);

}  // namespace tutti::transport::ofi
