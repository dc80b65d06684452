#include "core/derived_key.hpp"

#include "core/auth.hpp"

namespace tutti {

Secret derived_key(std::string_view secret, std::string_view purpose) {
  std::string made = hmac_sha256(secret, purpose);
  Secret key(made);
  wipe(made);
  return key;
}

}  // namespace tutti
