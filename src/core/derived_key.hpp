// core/derived_key.hpp - keys that are made from the job's secret, one for each purpose.
#pragma once

#include <string_view>

#include "core/secret.hpp"

namespace tutti {

// HMAC-SHA256 of `purpose`, keyed with `secret`; it leaves no copy behind.
Secret derived_key(std::string_view secret, std::string_view purpose);

}  // namespace tutti
