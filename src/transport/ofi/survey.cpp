#include "transport/ofi/survey.hpp"

#include <fmt/format.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/words.hpp"
#include "transport/ofi/frame.hpp"

namespace tutti::transport::ofi {
namespace {

// The providers that only dress up sockets or memory: our own tcp and shm do that better.
constexpr std::array kSoftware = {std::string_view("tcp"),     std::string_view("udp"),
                                  std::string_view("sockets"), std::string_view("net"),
                                  std::string_view("shm"),     std::string_view("sm2")};
// Among those, where one was asked for and none was named.
constexpr std::string_view kBestSoftware = "tcp;ofi_rxm";
constexpr std::string_view kLoopback = "lo";

bool is_hardware(std::string_view provider) {
  const std::string_view core = provider.substr(0, provider.find(';'));
  return std::find(kSoftware.begin(), kSoftware.end(), core) == kSoftware.end();
}

// Reliable datagrams with sends in order, and writes that tell the target that they are there. Of mr_mode
// everything is handled but device memory.
Info wish(const Libfabric& library, const std::string& provider) {
  Info hints(library.dupinfo(nullptr));
  if (!hints) return hints;
  hints->caps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                FI_MR_ENDPOINT | FI_MR_RMA_EVENT | FI_MR_MMU_NOTIFY | FI_MR_RAW;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->cq_data_size = sizeof(std::uint32_t);
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  // libfabric frees it.
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  return hints;
}

// Several infos of a domain differ in protocol or address family: the first is the provider's choice.
bool is_listed(const std::vector<Info>& found, const fi_info& info) {
  return std::any_of(found.begin(), found.end(), [&](const Info& other) {
    return std::strcmp(other->fabric_attr->prov_name, info.fabric_attr->prov_name) == 0 &&
           (std::strcmp(other->domain_attr->name, info.domain_attr->name) == 0 ||
            other->ep_attr->protocol != info.ep_attr->protocol ||
            other->addr_format != info.addr_format);
  });
}

std::string names_of(const std::vector<Provider>& all) {
  std::string names;
  for (const Provider& each : all) names += (names.empty() ? "" : ", ") + each.name;
  return names.empty() ? "none" : names;
}

}  // namespace

void FreeInfo::operator()(fi_info* info) const { (*libfabric())->freeinfo(info); }

Result<std::vector<Info>> survey(const std::string& provider) {
  const auto library = libfabric();
  if (!library.ok()) return library.status();
  const Info hints = wish(**library, provider);
  if (!hints) return Status(Code::out_of_memory, "no memory to ask libfabric for its providers");
  fi_info* list = nullptr;
  const int result =
      (*library)->getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints.get(), &list);
  const Info all(list);
  std::vector<Info> found;
  if (result == -FI_ENODATA) return found;
  if (result != 0) return failure("libfabric cannot say which providers there are", result);
  for (const fi_info* info = list; info != nullptr; info = info->next)
    if (!is_listed(found, *info)) found.emplace_back((*library)->dupinfo(info));
  return found;
}

Result<std::vector<Provider>> providers(const std::string& wanted) {
  const auto found = survey(wanted);
  if (!found.ok()) return found.status();
  std::vector<Provider> all;
  for (const Info& info : *found) {
    const std::string name = info->fabric_attr->prov_name;
    auto place =
        std::find_if(all.begin(), all.end(), [&](auto& each) { return each.name == name; });
    if (place == all.end()) place = all.insert(place, {name, {}, is_hardware(name)});
    place->domains.emplace_back(info->domain_attr->name);
  }
  const auto worth = [](const Provider& each) {
    return each.hardware ? 2 : each.name == kBestSoftware ? 1 : 0;
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return worth(a) > worth(b); });
  return all;
}

Result<Provider> choose_provider(const Config& config, std::vector<Provider> all) {
  const auto chosen = std::find_if(all.begin(), all.end(), [&](const Provider& each) {
    return config.ofi_provider.empty() || each.name == config.ofi_provider;
  });
  if (chosen == all.end())
    return Status(
        Code::unsupported,
        fmt::format("libfabric has no provider '{}' (TUTTI_OFI_PROVIDER) that could be used "
                    "here; there are: {}",
                    config.ofi_provider, names_of(all)));
  Provider provider = std::move(*chosen);
  auto& domains = provider.domains;
  const auto has = [&](std::string_view domain) {
    return std::find(domains.begin(), domains.end(), domain) != domains.end();
  };
  if (!config.ofi_domains.empty()) {
    for (const std::string& domain : config.ofi_domains)
      if (!has(domain))
        return Status(Code::unsupported,
                      fmt::format("{} has no domain '{}' (TUTTI_OFI_DOMAINS); it has: {}",
                                  provider.name, domain, fmt::join(domains, ", ")));
    domains = config.ofi_domains;
  } else if (!provider.hardware) {
    // Domains are interfaces, of which not every one leads to everybody.
    const auto outward = std::find_if(domains.begin(), domains.end(),
                                      [](const auto& each) { return each != kLoopback; });
    const bool named = !config.interface.empty() && has(config.interface);
    domains = {named ? config.interface : outward != domains.end() ? *outward : domains.front()};
  }
  if (domains.size() > kMostRails) domains.resize(kMostRails);
  return provider;
}

bool has_fabric_hardware() {
  for (const char* folder : {"/sys/class/infiniband", "/sys/class/cxi"}) {
    std::error_code none;
    const std::filesystem::directory_iterator devices(folder, none);
    if (!none && devices != std::filesystem::directory_iterator()) return true;
  }
  return false;
}

}  // namespace tutti::transport::ofi
