// checkpoint/folder.hpp - a folder of checkpoints on disk: which are complete, which is the
// newest, how one is published, what is cleaned up.
//
//   FOLDER/iter_0000020      a checkpoint; complete when checkpoint.json is in it
//   FOLDER/latest            the name of the newest, and a line feed
//   FOLDER/.tmp_…            on its way in or out; of a killed run: rubbish
//
// All functions are for one rank: rank 0 calls them for everybody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::checkpoint {

std::string folder_name(std::int64_t iteration);  // iter_0000020
std::optional<std::int64_t> iteration_of(std::string_view folder_name);

// Iterations of the complete checkpoints, rising.
Result<std::vector<std::int64_t>> complete_checkpoints(const std::string& folder);

// The checkpoint that `path` means: itself, or of a folder of checkpoints the one that `latest`
// names, or where there is no such file the newest complete one. Names what is missing.
Result<std::string> find_checkpoint(const std::string& path);

// Paths of the complete checkpoints, the newest first: the one that `latest` names, then by
// iteration. A folder that is not there has none.
std::vector<std::string> newest_first(const std::string& folder);
// Unless another run is saving there.
Status remove_leftovers(const std::string& folder);

// Folder `from` gets the name `to`. A folder of that name gets the name `from`, in the same instant where
// the file system can do that, else `aside`.
Status take_name(const std::string& from, const std::string& to, const std::string& aside);

// A new checkpoint on its way into `folder`.
class Publication {
 public:
  // Makes the folder where need be, locks it against another run that saves there, removes what
  // killed runs have left, and makes the temporary folder.
  static Result<Publication> begin(const std::string& folder, std::int64_t iteration);
  // Where the files go.
  std::string temporary() const;
  // Gives the folder its name, at once where one of that name was there before, then writes
  // `latest`.
  Status publish();
  // Removes complete checkpoints until `keep` are left. The one just published stays, and of the
  // others those with the highest iterations.
  Status prune(int keep) const;
  // After a failure; what cannot be removed is left to the next run.
  void discard() const;

 private:
  std::string folder_;
  std::int64_t iteration_ = 0;
  Descriptor lock_;
};

}  // namespace tutti::checkpoint
