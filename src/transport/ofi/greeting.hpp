// transport/ofi/greeting.hpp - what two ranks tell each other before they link over a fabric: where their
// endpoints are, and half of what their keys are made of. It goes over a connection on which both have proved that
// they know the job's secret.
#pragma once

#include <string>

#include "transport/ofi/ofi_link.hpp"
#include "transport/transport.hpp"

namespace tutti::transport::ofi {

class OfiGreeting final : public Greeting {
 public:
  // Without a fabric (null) the two agree that there is no link.
  OfiGreeting(const Party& party, int peer);

  Result<bool> step(ByteStreamRef stream) override;
  // When they have agreed.
  LinkTerms take_agreement() { return std::move(agreement_); }

 private:
  Status introduce(ByteStreamRef stream);
  Status understand();
  SipKey key_of(int sender, const std::string& their_nonce) const;

  const Party& party_;
  int peer_;
  bool introduced_ = false;
  std::string nonce_;
  std::string inbox_;
  LinkTerms agreement_;
};

}  // namespace tutti::transport::ofi
