// Where a run that was interrupted goes on: rank 0 looks, all ranks get its answer.
#include <filesystem>

#include "checkpoint/folder.hpp"
#include "train/agreement.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::checkpoint {
namespace {

Result<std::string> newest_here(const std::string& folder) {
  if (Status status = remove_leftovers(folder); !status.ok()) return status;
  for (const std::string& path : newest_first(folder))
    if (train::inspect_checkpoint(path).ok()) return std::filesystem::absolute(path).string();
  return std::string();
}

}  // namespace
}  // namespace tutti::checkpoint

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

Result<std::string> newest_checkpoint(Group& group, const std::string& folder) {
  Result<std::string> mine = std::string();
  if (group.rank() == 0) mine = checkpoint::newest_here(folder);
  if (Status status = agree(group, mine.status()); !status.ok())
    return status.annotate("looking for a checkpoint");
  return share_text(group, *mine, 0);
}

}  // namespace v1
}  // namespace tutti::train
