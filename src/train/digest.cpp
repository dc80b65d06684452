#include "train/digest.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "core/check.hpp"

namespace tutti::train {
namespace {
EVP_MD_CTX* context_of(const auto& pointer) { return static_cast<EVP_MD_CTX*>(pointer.get()); }
}  // namespace

void Digest::Free::operator()(void* context) const {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context));
}

Digest::Digest() : context_(EVP_MD_CTX_new()) {
  TUTTI_CHECK(context_ && EVP_DigestInit_ex(context_of(context_), EVP_sha256(), nullptr) == 1);
}

void Digest::add(const void* data, std::size_t bytes) {
  TUTTI_CHECK(EVP_DigestUpdate(context_of(context_), data, bytes) == 1);
}

void Digest::add_text(std::string_view text) {
  add_number(static_cast<std::int64_t>(text.size()));
  add(text.data(), text.size());
}

void Digest::add_number(std::int64_t number) { add(&number, sizeof number); }

Digest::Value Digest::value() {
  Value value;
  unsigned length = 0;
  TUTTI_CHECK(EVP_DigestFinal_ex(context_of(context_), value.data(), &length) == 1 &&
              length == value.size());
  return value;
}

std::string to_hex(const Digest::Value& value) {
  return fmt::format("{:02x}", fmt::join(value, ""));
}

}  // namespace tutti::train
