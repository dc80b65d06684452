#include "checkpoint/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "checkpoint/manifest.hpp"
#include "checkpoint/safe_file.hpp"

namespace tutti::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "iter_";
constexpr std::string_view kLatest = "latest";
constexpr std::size_t kDigits = 7;

bool is_complete(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kManifest, error);
}

Result<std::vector<fs::path>> entries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path());
  if (error) return file_trouble(folder, "cannot be listed", error);
  return paths;
}

Status remove_rubbish(const std::string& folder) {
  const auto paths = entries(folder);
  if (!paths.ok()) return paths.status();
  for (const fs::path& path : *paths) {
    if (!path.filename().string().starts_with(kTemporaryPrefix)) continue;
    std::error_code error;
    fs::remove_all(path, error);
    if (error) return file_trouble(path, "was left by a killed run and cannot be removed", error);
  }
  return {};
}

// The lock is the folder's own: it leaves no file, and a killed process gives it back.
Result<Descriptor> lock(const std::string& folder) {
  Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!open) return file_trouble(folder, "cannot be opened");
  // Other errors: a file system without locks. Saving goes on without one there.
  if (::flock(open.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Status(Code::io,
                  fmt::format("{}: another run is saving there; give each its own folder", folder));
  return open;
}

Result<std::string> named_by_latest(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kLatest);
  auto text = read_bounded(path, 4096);
  if (!text.ok()) return text.status();
  const std::string name = text->substr(0, text->find('\n'));
  if (!iteration_of(name) || name + "\n" != *text)
    return Status(Code::corrupt, fmt::format("{}: does not name a checkpoint", path));
  if (!is_complete(fs::path(folder) / name))
    return Status(Code::io, fmt::format("{}: names {}, which is missing or not complete; name a "
                                        "checkpoint instead of its folder",
                                        path, name));
  return folder + "/" + name;
}

}  // namespace

Status take_name(const std::string& from, const std::string& to, const std::string& aside) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  if (errno != ENOTEMPTY && errno != EEXIST) return file_trouble(to, "cannot be given its name");
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return {};
  if (::rename(to.c_str(), aside.c_str()) != 0 || ::rename(from.c_str(), to.c_str()) != 0)
    return file_trouble(to, "cannot be replaced");
  return {};
}

std::string folder_name(std::int64_t iteration) {
  return fmt::format("{}{:0{}d}", kPrefix, iteration, kDigits);
}

std::optional<std::int64_t> iteration_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view digits = name.substr(kPrefix.size());
  std::int64_t iteration = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), iteration);
  if (read.ec != std::errc() || iteration < 0 || folder_name(iteration) != name) return {};
  return iteration;
}

Result<std::vector<std::int64_t>> complete_checkpoints(const std::string& folder) {
  const auto paths = entries(folder);
  if (!paths.ok()) return paths.status();
  std::vector<std::int64_t> iterations;
  for (const fs::path& path : *paths)
    if (const auto iteration = iteration_of(path.filename().string());
        iteration && is_complete(path))
      iterations.push_back(*iteration);
  std::sort(iterations.begin(), iterations.end());
  return iterations;
}

Result<std::string> find_checkpoint(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return Status(Code::io, fmt::format("{}: is no folder", path));
  if (is_complete(path)) return path;
  if (iteration_of(fs::path(path).filename().string()))
    return Status(Code::io,
                  fmt::format("{}: has no {}: the checkpoint was not completed", path, kManifest));
  if (fs::exists(fs::path(path) / kLatest, error)) return named_by_latest(path);
  const auto iterations = complete_checkpoints(path);
  if (!iterations.ok()) return iterations.status();
  if (iterations->empty())
    return Status(Code::io, fmt::format("{}: has no complete checkpoint", path));
  return path + "/" + folder_name(iterations->back());
}

std::vector<std::string> newest_first(const std::string& folder) {
  const auto iterations = complete_checkpoints(folder);
  if (!iterations.ok()) return {};
  std::vector<std::string> paths;
  const auto named = named_by_latest(folder);
  if (named.ok()) paths.push_back(*named);
  for (auto at = iterations->rbegin(); at != iterations->rend(); ++at) {
    std::string path = folder + "/" + folder_name(*at);
    if (!named.ok() || path != *named) paths.push_back(std::move(path));
  }
  return paths;
}

Status remove_leftovers(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  const auto locked = lock(folder);
  return locked.ok() ? remove_rubbish(folder) : Status();
}

Result<Publication> Publication::begin(const std::string& folder, std::int64_t iteration) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return file_trouble(folder, "cannot be made", error);
  auto locked = lock(folder);
  if (!locked.ok()) return locked.status();
  if (Status status = remove_rubbish(folder); !status.ok()) return status;
  Publication publication;
  publication.folder_ = folder;
  publication.iteration_ = iteration;
  publication.lock_ = *std::move(locked);
  fs::create_directory(publication.temporary(), error);
  if (error) return file_trouble(publication.temporary(), "cannot be made", error);
  return publication;
}

std::string Publication::temporary() const {
  return fmt::format("{}/{}{}", folder_, kTemporaryPrefix, folder_name(iteration_));
}

Status Publication::publish() {
  const std::string name = folder_name(iteration_);
  const std::string aside = fmt::format("{}/{}old_{}", folder_, kTemporaryPrefix, name);
  if (Status status = take_name(temporary(), folder_ + "/" + name, aside); !status.ok())
    return status;
  if (Status status = sync_folder(folder_); !status.ok()) return status;
  if (Status status = write_text(folder_ + "/" + std::string(kLatest), name + "\n"); !status.ok())
    return status;
  return remove_rubbish(folder_);  // one of the same name that was there before
}

Status Publication::prune(int keep) const {
  if (keep <= 0) return {};
  auto others = complete_checkpoints(folder_);
  if (!others.ok()) return others.status();
  std::erase(*others, iteration_);
  const auto kept = static_cast<std::size_t>(keep - 1);
  if (others->size() <= kept) return {};
  others->resize(others->size() - kept);
  for (const std::int64_t iteration : *others) {
    // Under another name first: half removed it must not look complete.
    const std::string path = folder_ + "/" + folder_name(iteration);
    const std::string rubbish =
        fmt::format("{}/{}old_{}", folder_, kTemporaryPrefix, folder_name(iteration));
    if (::rename(path.c_str(), rubbish.c_str()) != 0)
      return file_trouble(path, "is one too many and cannot be removed");
  }
  return remove_rubbish(folder_);
}

void Publication::discard() const {
  std::error_code ignored;
  fs::remove_all(temporary(), ignored);
}

}  // namespace tutti::checkpoint
