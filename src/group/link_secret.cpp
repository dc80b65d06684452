#include "group/link_secret.hpp"

#include <fmt/format.h>

#include "core/auth.hpp"
#include "core/process_hooks.hpp"
#include "store/trust.hpp"

namespace tutti::group {
namespace {

constexpr std::string_view kHasOne = "given";

void warn_of_open_store(const GroupOptions& options, const Log& log) {
  if (options.rank != 0 || options.size == 1 || !first_warning(Warning::open_store)) return;
  log.warn(
      Subsystem::init,
      "group '{}' has no secret: ANYONE WHO REACHES ITS STORE CAN JOIN and read its data; start "
      "it with tutti run, or set TUTTI_SECRET_FILE on every rank",
      options.name);
}

}  // namespace

Result<LinkSecret> LinkSecret::find(const Store& store, const GroupOptions& options,
                                    const Environment& environment, const Log& log) {
  LinkSecret found;
  if (!options.secret.empty()) {
    if (Status status = check_secret(options.secret); !status.ok())
      return status.annotate("GroupOptions::secret");
    found.own_ = options.secret;
    return found;
  }
  if (const auto* trusted = store::trusted_store(store)) {
    found.own_ = trusted->secret();
    return found;
  }
  auto given = find_secret(environment);
  // Somebody meant this job to have one: none at all would put one into the store, for all to read.
  if (!given.ok()) return given.status();
  found.own_ = *given;
  if (found.own_.empty()) warn_of_open_store(options, log);
  return found;
}

std::string LinkSecret::word() const {
  return own_.empty() ? random_bytes(kSecretBytes) : std::string(kHasOne);
}

Result<Secret> LinkSecret::key(const std::string& word, const GroupOptions& options,
                               const std::string& epoch) const {
  const bool rank_0_has_one = word == kHasOne;
  if (rank_0_has_one == own_.empty())
    return Status(Code::mismatch,
                  fmt::format("rank 0 of group '{}' has {} secret and rank {} has {}; give all of "
                              "them the same (TUTTI_SECRET_FILE), or none",
                              options.name, rank_0_has_one ? "a" : "no", options.rank,
                              rank_0_has_one ? "none" : "one"));
  return Secret(hmac_sha256(own_.empty() ? std::string_view(word) : std::string_view(own_),
                            fmt::format("tutti links {} {}", epoch, options.name)));
}

}  // namespace tutti::group
