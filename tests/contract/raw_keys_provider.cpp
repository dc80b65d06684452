// A provider of libfabric whose keys are no numbers (FI_MR_RAW), for no software one is so: tcp;ofi_rxm, whose keys
// are told as 24 bytes that mean nothing until they are mapped. libfabric finds it by FI_PROVIDER_PATH; it is there
// for those alone who name it.
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace {

constexpr const char* kName = "raw_keys";
constexpr const char* kBeneath = "tcp;ofi_rxm";
constexpr std::uint64_t kPad = 0x5bd1e9955bd1e995;

struct Raw {
  std::uint64_t hidden = 0;
  std::uint64_t base = 0;
  std::uint64_t check = 0;
};

std::mutex mutex;
std::map<fid*, std::uint64_t> keys;    // of registered memory
std::map<fid*, std::size_t> mappings;  // of each domain: keys that are in use
fi_ops_fabric* fabric_beneath;
fi_ops* domain_beneath;
fi_ops_domain* endpoint_beneath;
fi_ops_mr* register_beneath;
fi_ops* memory_beneath;

// What the provider beneath knows of such keys: nothing.
fi_info* plain_of(const fi_info& info) {
  fi_info* const plain = ::fi_dupinfo(&info);
  plain->domain_attr->mr_mode &= ~FI_MR_RAW;
  plain->domain_attr->mr_key_size = sizeof(std::uint64_t);
  std::free(plain->fabric_attr->prov_name);
  plain->fabric_attr->prov_name = ::strdup(kBeneath);
  return plain;
}

// All objects of a kind have the same table beneath, which is kept when the first is made.
fi_ops with(const fi_ops& beneath, int (*close)(fid*), int (*control)(fid*, int, void*)) {
  fi_ops ops = beneath;
  ops.close = close;
  ops.control = control;
  return ops;
}

// ---- registered memory

int close_memory(fid* memory) {
  std::lock_guard lock(mutex);
  reinterpret_cast<fid_mr*>(memory)->key = keys.at(memory);
  keys.erase(memory);
  return memory_beneath->close(memory);
}

int control_memory(fid* memory, int command, void* arg) {
  if (command != FI_GET_RAW_MR) return memory_beneath->control(memory, command, arg);
  auto& attr = *static_cast<struct fi_mr_raw_attr*>(arg);
  const std::size_t room = *attr.key_size;
  *attr.key_size = sizeof(Raw);
  if (room < sizeof(Raw)) return -FI_ETOOSMALL;
  std::lock_guard lock(mutex);
  const Raw raw{keys.at(memory) ^ kPad, 0, keys.at(memory) * kPad};
  std::memcpy(attr.raw_key, &raw, sizeof raw);
  *attr.base_addr = raw.base;
  return 0;
}

void hide_key(fid_mr& memory) {
  std::lock_guard lock(mutex);
  if (memory_beneath == nullptr) memory_beneath = memory.fid.ops;
  static fi_ops ops = with(*memory_beneath, close_memory, control_memory);
  memory.fid.ops = &ops;
  keys[&memory.fid] = memory.key;
  memory.key = FI_KEY_NOTAVAIL;
}

int register_memory(fid* domain, const void* data, std::size_t bytes, std::uint64_t access,
                    std::uint64_t offset, std::uint64_t key, std::uint64_t flags, fid_mr** memory,
                    void* context) {
  const int result =
      register_beneath->reg(domain, data, bytes, access, offset, key, flags, memory, context);
  if (result == 0) hide_key(**memory);
  return result;
}

// ---- domains

int map_key(fid* domain, const struct fi_mr_map_raw& wanted) {
  Raw raw;
  if (wanted.key_size != sizeof raw) return -FI_EINVAL;
  std::memcpy(&raw, wanted.raw_key, sizeof raw);
  const std::uint64_t key = raw.hidden ^ kPad;
  if (raw.check != key * kPad || wanted.base_addr != raw.base) return -FI_EINVAL;
  *wanted.key = key;
  ++mappings[domain];
  return 0;
}

int control_domain(fid* domain, int command, void* arg) {
  std::lock_guard lock(mutex);
  if (command == FI_MAP_RAW_MR) return map_key(domain, *static_cast<struct fi_mr_map_raw*>(arg));
  if (command != FI_UNMAP_KEY) return domain_beneath->control(domain, command, arg);
  --mappings[domain];
  return 0;
}

int close_domain(fid* domain) {
  std::lock_guard lock(mutex);
  if (mappings[domain] != 0) {
    std::fputs("raw_keys: a domain is closed before its mapped keys are freed\n", stderr);
    std::abort();
  }
  mappings.erase(domain);
  return domain_beneath->close(domain);
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  fi_info* const plain = plain_of(*info);
  const int result = endpoint_beneath->endpoint(domain, plain, endpoint, context);
  ::fi_freeinfo(plain);
  return result;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  if ((info->domain_attr->mr_mode & FI_MR_RAW) == 0) return -FI_EINVAL;
  fi_info* const plain = plain_of(*info);
  const int result = fabric_beneath->domain(fabric, plain, domain, context);
  ::fi_freeinfo(plain);
  if (result != 0) return result;
  std::lock_guard lock(mutex);
  if (domain_beneath == nullptr) {
    domain_beneath = (*domain)->fid.ops;
    register_beneath = (*domain)->mr;
    endpoint_beneath = (*domain)->ops;
  }
  static fi_ops ops = with(*domain_beneath, close_domain, control_domain);
  static fi_ops_mr mr = [] {
    fi_ops_mr made = *register_beneath;
    made.reg = register_memory;
    return made;
  }();
  (*domain)->fid.ops = &ops;
  (*domain)->mr = &mr;
  static fi_ops_domain open = [] {
    fi_ops_domain made = *endpoint_beneath;
    made.endpoint = open_endpoint;
    return made;
  }();
  (*domain)->ops = &open;
  return 0;
}

// ---- the provider

int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  std::string name = kBeneath;
  fi_fabric_attr beneath = *attr;
  beneath.prov_name = name.data();
  const int result = ::fi_fabric(&beneath, fabric, context);
  if (result != 0) return result;
  std::lock_guard lock(mutex);
  if (fabric_beneath == nullptr) fabric_beneath = (*fabric)->ops;
  static fi_ops_fabric ops = [] {
    fi_ops_fabric made = *fabric_beneath;
    made.domain = open_domain;
    return made;
  }();
  (*fabric)->ops = &ops;
  return 0;
}

int find_infos(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
               const fi_info* hints, fi_info** infos) {
  const bool named = hints != nullptr && hints->fabric_attr != nullptr &&
                     hints->fabric_attr->prov_name != nullptr &&
                     std::string_view(hints->fabric_attr->prov_name) == kName;
  if (!named || (hints->domain_attr->mr_mode & FI_MR_RAW) == 0) return -FI_ENODATA;
  fi_info* const wanted = plain_of(*hints);
  const int result = ::fi_getinfo(version, node, service, flags, wanted, infos);
  ::fi_freeinfo(wanted);
  if (result != 0) return result;
  for (fi_info* info = *infos; info != nullptr; info = info->next) {
    std::free(info->fabric_attr->prov_name);  // libfabric writes the name of this one
    info->fabric_attr->prov_name = nullptr;
    info->domain_attr->mr_mode |= FI_MR_RAW;
    info->domain_attr->mr_key_size = sizeof(Raw);
  }
  return 0;
}

void clean_up() {}

}  // namespace

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = [] {
    fi_provider made{};
    made.version = FI_VERSION(1, 0);
    made.fi_version = FI_VERSION(1, 14);
    made.name = kName;
    made.getinfo = find_infos;
    made.fabric = open_fabric;
    made.cleanup = clean_up;
    return made;
  }();
  return &provider;
}
