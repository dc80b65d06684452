// transport/lazy_link.hpp - the place of a link that is made when it is first used.
//
//   asleep ──send, open──▶ wanted ──▶ up: everything goes to the link itself
//      └───── the peer made it ─────┘└▶ lost: what is sent is dropped
//
// Until it is up, control messages are kept, in their order, and go first; data finds no room ("try again
// after a poll"). Those that only matter where there is a link (goodbye; abort, which goes round as news)
// do not make one.
//
// Thread-safety  as Link. come_up and lose by whoever polls; once each, or one of the two.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "core/spin_lock.hpp"
#include "transport/link.hpp"
#include "transport/urgencies.hpp"

namespace tutti::transport {

class LazyLink final : public Link {
 public:
  // What is known of the link before there is one.
  struct Promise {
    std::string_view name;  // of the transport; outlives the link
    bool shares_memory = false;
    std::size_t eager_bytes = 0;
  };
  // `want` is called once, when the link is first needed; by any thread, with no lock held.
  LazyLink(Promise promise, std::function<void()> want);

  bool is_up() const { return link() != nullptr; }
  // The link is there. It outlives this object's use.
  void come_up(Link& link);
  // There will be none.
  void lose();

  void open() override;
  std::string_view name() const override { return promise_.name; }
  bool shares_memory() const override { return promise_.shares_memory; }
  std::size_t eager_bytes() const override;
  Sent send(const Header& header, const void* payload, std::size_t bytes,
            std::uint64_t token) override;
  void flush_held() override;
  void release(std::uint64_t lease) override;
  bool revoked(std::uint64_t lease) const override;
  void set_urgency(std::uint32_t channel, Urgency urgency) override;
  bool poll(MessageSink&) override { return false; }  // the endpoint polls the link itself
  void forget(std::uint32_t channel) override;
  bool is_cut() const override;
  MemoryRef share(const void* data, std::size_t bytes) const override;
  std::byte* reach(const MemoryRef& ref, std::size_t bytes) const override;
  void rouse() override;
  const Doorbell* doorbell() const override;
  std::int64_t process() const override;

 private:
  struct Kept {
    Header header;
    std::string payload;
  };
  Link* link() const { return link_.load(std::memory_order_acquire); }
  Sent keep(const Header& header, const void* payload, std::size_t bytes, std::uint64_t token,
            bool& is_first);

  const Promise promise_;
  const std::function<void()> want_;
  std::atomic<Link*> link_{nullptr};

  SpinLock lock_;  // guards the following
  bool wanted_ = false;
  bool lost_ = false;
  std::vector<Kept> kept_;
  Urgencies urgencies_;
};

}  // namespace tutti::transport
