// group/link_secret.hpp - the secret by which the links of a group know each other.
//
// The group's own (GroupOptions::secret), else that of the store it meets in. A store that is not the
// library's, such as torch's, is open to whoever reaches it: there the launcher's or a file's counts
// (TUTTI_SECRET_FD, TUTTI_SECRET_FILE). Only where nobody has one does rank 0 make one up and put it
// into the store; if that store is open, it says so.
//
//   auto secret = LinkSecret::find(store, options, process_environment(), log);
//   auto word = from_rank_0(secret->word());
//   auto key = secret->key(*word, options, *epoch);
#pragma once

#include <string>

#include "core/log.hpp"
#include "core/secret.hpp"
#include "group/self.hpp"
#include "tutti/group.hpp"

namespace tutti::group {

class LinkSecret {
 public:
  static Result<LinkSecret> find(const Store& store, const GroupOptions& options,
                                 const Environment& environment, const Log& log);

  // What rank 0 tells the others: that it has one, or the one that it made up.
  std::string word() const;
  // For the links of one group in one epoch alone. Code::mismatch where rank 0, whose word it is, has
  // a secret and this rank has none, or the other way round.
  Result<Secret> key(const std::string& word, const GroupOptions& options,
                     const std::string& epoch) const;

 private:
  Secret own_;
};

}  // namespace tutti::group
