#include "transport/ofi/rail.hpp"

#include <fmt/format.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <array>

namespace tutti::transport::ofi {
namespace {

constexpr std::size_t kQueueDepth = 4096;

template <class Object, class Open>
Status open_as(Owned<Object>& owner, const char* what, const Open& open) {
  Object* object = nullptr;
  if (const long result = open(&object); result != 0) return failure(what, result);
  owner.reset(object);
  return {};
}

Posted outcome(long result, const char* what, Status& why) {
  if (result == 0) return Posted::yes;
  if (result == -FI_EAGAIN) return Posted::no_room;
  why = failure(what, result);
  return Posted::failed;
}

}  // namespace

Result<std::unique_ptr<Rail>> Rail::open(const Libfabric& library, const fi_info& info,
                                         bool tells) {
  std::unique_ptr<Rail> rail(new Rail(Info(library.dupinfo(&info))));
  if (Status status = rail->begin(library, tells); !status.ok())
    return status.annotate(fmt::format("{} on {}", rail->provider(), rail->domain()));
  return rail;
}

Status Rail::begin(const Libfabric& library, bool tells) {
  Status status = open_as(fabric_, "cannot open a fabric", [&](fid_fabric** fabric) {
    return library.fabric(info_->fabric_attr, fabric, nullptr);
  });
  if (!status.ok()) return status;
  status = open_as(domain_, "cannot open a domain", [&](fid_domain** domain) {
    return ::fi_domain(fabric_.get(), info_.get(), domain, nullptr);
  });
  if (!status.ok()) return status;
  status = open_as(peers_, "cannot make an address vector", [&](fid_av** peers) {
    fi_av_attr wanted{};
    return ::fi_av_open(domain_.get(), &wanted, peers, nullptr);
  });
  if (!status.ok()) return status;
  if (status = open_queue(tells); !status.ok()) return status;
  status = open_as(endpoint_, "cannot make an endpoint", [&](fid_ep** endpoint) {
    return ::fi_endpoint(domain_.get(), info_.get(), endpoint, nullptr);
  });
  if (!status.ok()) return status;
  long result = ::fi_ep_bind(endpoint_.get(), &peers_->fid, 0);
  if (result == 0) result = ::fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (result == 0) result = ::fi_enable(endpoint_.get());
  return result == 0 ? Status() : failure("cannot enable an endpoint", result);
}

// Some providers cannot wait at all, and some only say so when they are asked for the descriptor.
Status Rail::open_queue(bool tells) {
  const auto open = [&](fi_wait_obj waits) {
    return open_as(queue_, "cannot make a completion queue", [&](fid_cq** queue) {
      fi_cq_attr wanted{};
      wanted.size = kQueueDepth;
      wanted.format = FI_CQ_FORMAT_DATA;
      wanted.wait_obj = waits;
      return ::fi_cq_open(domain_.get(), &wanted, queue, nullptr);
    });
  };
  if (tells && open(FI_WAIT_FD).ok() && ::fi_control(&queue_->fid, FI_GETWAIT, &descriptor_) == 0)
    return {};
  descriptor_ = -1;
  queue_.reset();
  return open(FI_WAIT_NONE);
}

Result<std::string> Rail::address() const {
  std::array<char, kMaxAddress> bytes{};
  std::size_t size = bytes.size();
  const long result = ::fi_getname(&endpoint_->fid, bytes.data(), &size);
  if (result != 0) return failure("an endpoint does not know its address", result);
  return std::string(bytes.data(), size);
}

Result<fi_addr_t> Rail::add_peer(const std::string& address) {
  // Addresses have no length of their own; the longest that a provider reads fits.
  std::array<char, kMaxAddress> bytes{};
  address.copy(bytes.data(), bytes.size() - 1);
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const long added = ::fi_av_insert(peers_.get(), bytes.data(), 1, &peer, 0, nullptr);
  if (added == 1) return peer;
  return failure("a peer's address is none", added < 0 ? added : -FI_EINVAL);
}

Result<Registration> Rail::enrol(void* data, std::size_t bytes, std::uint64_t requested_key) {
  const fi_domain_attr& domain = *info_->domain_attr;
  if (domain.mr_key_size < sizeof requested_key)
    requested_key &= (std::uint64_t{1} << (8 * domain.mr_key_size)) - 1;
  Registration made;
  Status status = open_as(made.region, "cannot register memory", [&](fid_mr** region) {
    return ::fi_mr_reg(domain_.get(), data, bytes, FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE,
                       0, requested_key, 0, region, nullptr);
  });
  if (!status.ok()) return status;
  if ((domain.mr_mode & (FI_MR_ENDPOINT | FI_MR_RMA_EVENT)) != 0) {
    long result = ::fi_mr_bind(made.region.get(), &endpoint_->fid, 0);
    if (result == 0) result = ::fi_mr_enable(made.region.get());
    if (result != 0) return failure("cannot enable registered memory", result);
  }
  const bool virtual_addresses = (domain.mr_mode & FI_MR_VIRT_ADDR) != 0;
  made.remote.address = virtual_addresses ? reinterpret_cast<std::uint64_t>(data) : 0;
  if (has_raw_keys())
    status = read_raw_key(made);
  else
    made.remote.key = ::fi_mr_key(made.region.get());
  if (!status.ok()) return status;
  return made;
}

Status Rail::read_raw_key(Registration& made) const {
  RawKey& raw = made.raw;
  std::size_t bytes = sizeof raw.key;
  const long result = ::fi_mr_raw_attr(made.region.get(), &raw.base, raw.key, &bytes, 0);
  if (result == -FI_ETOOSMALL || bytes > sizeof raw.key)
    return {Code::unsupported,
            fmt::format("keys have {} bytes here, of which {} at most can be told to peers", bytes,
                        sizeof raw.key)};
  raw.bytes = static_cast<std::uint32_t>(bytes);
  return result == 0 ? Status() : failure("registered memory has no key", result);
}

Result<MappedKey> Rail::map(RawKey raw) {
  if (raw.bytes == 0 || raw.bytes > sizeof raw.key)
    return Status(Code::corrupt, "a peer grants a place without the key to it");
  std::uint64_t key = 0;
  const long result = ::fi_mr_map_raw(domain_.get(), raw.base, raw.key, raw.bytes, &key, 0);
  if (result != 0) return failure("cannot use the key to a peer's memory", result);
  return MappedKey(*domain_, key);
}

Posted Rail::receive(void* data, std::size_t bytes, void* descriptor, fi_context2& context) {
  Status why;
  return outcome(::fi_recv(endpoint_.get(), data, bytes, descriptor, FI_ADDR_UNSPEC, &context),
                 "cannot receive", why);
}

Posted Rail::send(fi_addr_t peer, const void* data, std::size_t bytes, void* descriptor,
                  fi_context2& context, Status& why) {
  return outcome(::fi_send(endpoint_.get(), data, bytes, descriptor, peer, &context), "cannot send",
                 why);
}

Posted Rail::write(const Target& target, const void* data, std::size_t bytes, void* descriptor,
                   fi_context2& context, Status& why) {
  return outcome(::fi_writedata(endpoint_.get(), data, bytes, descriptor, target.word, target.peer,
                                target.place.address, target.place.key, &context),
                 "cannot write to a peer's memory", why);
}

std::size_t Rail::read(std::span<fi_cq_data_entry> entries, Failed& failed) {
  const ssize_t got = ::fi_cq_read(queue_.get(), entries.data(), entries.size());
  if (got >= 0) return static_cast<std::size_t>(got);
  if (got != -FI_EAVAIL) return 0;
  fi_cq_err_entry error{};
  if (::fi_cq_readerr(queue_.get(), &error, 0) != 1) return 0;
  failed.context = error.op_context;
  failed.cancelled = error.err == FI_ECANCELED;
  failed.why = failure("the fabric gave up an operation", -error.err);
  return 0;
}

void Rail::close() {
  if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) == 0) endpoint_.reset();
}

bool Rail::may_wait() {
  fid* waited[] = {&queue_->fid};
  return descriptor_ >= 0 && ::fi_trywait(fabric_.get(), waited, 1) == 0;
}

}  // namespace tutti::transport::ofi
