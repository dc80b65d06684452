// ofi in a build without libfabric: it says so, and nothing else is ever called.
#include "transport/linked_endpoint.hpp"
#include "transport/ofi/providers.hpp"
#include "transport/transport.hpp"

namespace tutti::transport {
namespace {

Status no_libfabric() {
  return {
      Code::unsupported,
      "this build has no libfabric: its headers were not found, or TUTTI_OFI=OFF was asked for"};
}

class NoOfi final : public Transport {
 public:
  std::string_view name() const override { return "ofi"; }
  Door door() const override { return Door::network; }
  Result<std::string> viable(const Config&) const override { return no_libfabric(); }
  bool can_link(const Address&, const Address&) const override { return false; }
  Status link(LinkedEndpoint&, const Party&, int, std::vector<Connection>) const override {
    return no_libfabric();
  }
};

}  // namespace

const Transport& ofi_transport() {
  static const NoOfi ofi;
  return ofi;
}

namespace ofi {
Result<std::vector<Provider>> providers(const std::string&) { return no_libfabric(); }
Result<Provider> choose_provider(const Config&, std::vector<Provider>) { return no_libfabric(); }
}  // namespace ofi

}  // namespace tutti::transport
