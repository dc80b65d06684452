// transport/ofi/rail.hpp - one domain of a provider as a rank uses it: an endpoint, its completion queue, the
// peers' addresses, and memory that the device may reach.
//
// Thread-safety  any thread, but `read` one at a time: the domain is opened with FI_THREAD_SAFE.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/ofi/frame.hpp"
#include "transport/ofi/survey.hpp"

namespace tutti::transport::ofi {

// What libfabric gives is closed by it.
struct CloseFid {
  template <class Object>
  void operator()(Object* object) const {
    (void)::fi_close(&object->fid);
  }
};
template <class Object>
using Owned = std::unique_ptr<Object, CloseFid>;

// How a peer reaches registered memory through one rail.
struct RemoteKey {
  std::uint64_t address =
      0;  // of its first byte: virtual, or 0 where the provider counts from there
  std::uint64_t key = 0;
};

struct UnmapKey {
  std::uint64_t key = 0;
  void operator()(fid_domain* domain) const { (void)::fi_mr_unmap_key(domain, key); }
};

// A peer's key that is no number, made into one for as long as this lives. Must go before its rail.
class MappedKey {
 public:
  MappedKey() = default;
  MappedKey(fid_domain& domain, std::uint64_t key) : domain_(&domain, UnmapKey{key}) {}
  std::uint64_t value() const { return domain_.get_deleter().key; }

 private:
  std::unique_ptr<fid_domain, UnmapKey> domain_;
};

// Memory as one rail knows it.
struct Registration {
  Owned<fid_mr> region;
  RemoteKey remote;
  RawKey raw;  // where keys are no numbers
  void* descriptor() const { return ::fi_mr_desc(region.get()); }
};

// What a call that may find no room did.
enum class Posted : std::uint8_t { yes, no_room, failed };

class Rail {
 public:
  // `tells`: its queue has a descriptor to wait for, if the provider can; each message pays for that.
  static Result<std::unique_ptr<Rail>> open(const Libfabric& library, const fi_info& info,
                                            bool tells = true);

  // This end, for peers; at most kMaxAddress bytes.
  static constexpr std::size_t kMaxAddress = 256;
  Result<std::string> address() const;
  Result<fi_addr_t> add_peer(const std::string& address);

  // `requested_key` counts where the provider has none of its own.
  Result<Registration> enrol(void* data, std::size_t bytes, std::uint64_t requested_key);

  bool has_raw_keys() const { return (info_->domain_attr->mr_mode & FI_MR_RAW) != 0; }
  Result<MappedKey> map(RawKey raw);

  // `context` is the operation's until its completion is read; `failed` leaves why in `why`.
  Posted receive(void* data, std::size_t bytes, void* descriptor, fi_context2& context);
  Posted send(fi_addr_t peer, const void* data, std::size_t bytes, void* descriptor,
              fi_context2& context, Status& why);
  struct Target {
    fi_addr_t peer = 0;
    RemoteKey place;
    std::uint32_t word = 0;  // what the target's completion queue says
  };
  Posted write(const Target& target, const void* data, std::size_t bytes, void* descriptor,
               fi_context2& context, Status& why);

  // Completions, and with them progress; fewer than there is room for: there are no more now. Null `failed`:
  // nothing had failed.
  struct Failed {
    void* context = nullptr;
    bool cancelled = false;
    Status why;
  };
  std::size_t read(std::span<fi_cq_data_entry> entries, Failed& failed);

  // Nothing comes any more. Where memory belongs to the endpoint it has to go first, so there it stays open.
  void close();

  // Progress alone.
  void nudge() { (void)::fi_cq_read(queue_.get(), nullptr, 0); }

  // Whether writes of peers take a receive of this end with them.
  bool writes_consume_receives() const { return (info_->mode & FI_RX_CQ_DATA) != 0; }
  // Readable when there is something to read, if the provider can say so; else -1.
  int descriptor() const { return descriptor_; }
  // Whether it is safe to wait for `descriptor`: nothing has come meanwhile.
  bool may_wait();
  const char* provider() const { return info_->fabric_attr->prov_name; }
  const char* domain() const { return info_->domain_attr->name; }

 private:
  explicit Rail(Info info) : info_(std::move(info)) {}
  Status begin(const Libfabric& library, bool tells);
  Status open_queue(bool tells);
  Status read_raw_key(Registration& made) const;

  Info info_;
  Owned<fid_fabric> fabric_;  // in this order: what comes later goes first
  Owned<fid_domain> domain_;
  Owned<fid_av> peers_;
  Owned<fid_cq> queue_;
  Owned<fid_ep> endpoint_;
  int descriptor_ = -1;
};

}  // namespace tutti::transport::ofi
