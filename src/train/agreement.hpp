// train/agreement.hpp - ranks that did something each for itself come to one verdict.
//
// Ordering       collective: all ranks of the group call the same functions in the same order.
// Failure        of the group itself: its status, which every rank gets alike.
//
//   Status mine = write_my_file();
//   if (Status verdict = agree(group, mine); !verdict.ok()) return verdict;  // on every rank
#pragma once

#include <string>
#include <vector>

#include "train/digest.hpp"
#include "tutti/group.hpp"
#include "tutti/status.hpp"

namespace tutti::train {

// ok when all ranks said ok. Otherwise every rank gets the code and words of the lowest rank that
// failed, with "rank R: " before them.
Status agree(Group& group, const Status& mine);
// Everybody's text, by rank.
Result<std::vector<std::string>> exchange_texts(Group& group, const std::string& mine);
// The root's text, on every rank.
Result<std::string> share_text(Group& group, const std::string& text, int root);
// Ranks whose digest is not rank 0's.
Result<std::vector<int>> ranks_that_differ(Group& group, const Digest::Value& mine);

}  // namespace tutti::train
