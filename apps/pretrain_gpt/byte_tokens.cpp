#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "token_file.hpp"
#include "tokens.hpp"

namespace pretrain {

namespace {

using tutti::Code;
using tutti::Status;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr const char* kTooMuch =
    " makes it more than 1 GiB of data, which is not read as bytes: `tutti data build` makes tokens of it that "
    "need not be looked at before the training";

// Of 16-bit tokens, eight bytes at a time.
class StreamHash {
 public:
  explicit StreamHash(std::uint64_t tokens) : hash_(tokens) {}

  void add(std::uint16_t token) {
    word_ |= std::uint64_t{token} << (16 * held_);
    if (++held_ == 4) take();
  }
  std::uint64_t end() {
    if (held_ > 0) take();
    return hash_;
  }

 private:
  void take() {
    hash_ = mix(hash_, word_);
    word_ = 0;
    held_ = 0;
  }

  std::uint64_t hash_, word_ = 0;
  unsigned held_ = 0;
};

// Files in a row, each with kEndOfBytes behind it.
class ByteTokens final : public Tokens {
 public:
  Status add(const std::string& path) {
    const auto refuse = [&](const std::string& why) {
      return Status(Code::io, "--data-path " + path + why);
    };
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) return refuse(" is a folder, not a file");
      if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) return refuse(" is a device, not a file");
    }
    const std::uint64_t room = kMostBytes - std::min(kMostBytes, count());
    TokenFile file;
    Status status = S_ISFIFO(info.st_mode) ? copy(path, room, file) : file.open(path);
    if (!status.ok()) return status;
    if (file.size() > room) return refuse(kTooMuch);
    ends_.push_back(count() + file.size() + 1);
    files_.push_back(std::move(file));
    return {};
  }

  // Looks at every byte once.
  Status find_identity() {
    StreamHash stream(count());
    for (const TokenFile& file : files_) {
      identity_ = mix(identity_, hash_of_name(file.path()));
      unsigned char chunk[65536];
      for (std::uint64_t at = 0; at < file.size(); at += sizeof chunk) {
        const auto bytes = std::min<std::uint64_t>(sizeof chunk, file.size() - at);
        if (Status status = file.read(at, chunk, bytes); !status.ok()) return status;
        for (std::uint64_t i = 0; i < bytes; ++i) stream.add(chunk[i]);
      }
      stream.add(kEndOfBytes);
    }
    identity_ = mix(identity_, stream.end());
    return {};
  }

  std::uint64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::uint64_t bytes() const override { return count(); }
  std::uint64_t documents() const override { return ends_.size(); }
  std::uint64_t begin_of(std::uint64_t document) const override {
    return document == 0 ? 0 : ends_[document - 1];
  }
  std::uint64_t identity() const override { return identity_; }
  std::int64_t vocabulary() const override { return kByteVocabulary; }
  std::int64_t end_of_document() const override { return kEndOfBytes; }

  Status read(std::uint64_t first, std::uint64_t tokens, std::int64_t* out) const override {
    auto document = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) -
                                             ends_.begin());
    std::vector<unsigned char> bytes;
    while (tokens > 0) {
      const std::uint64_t begin = first - begin_of(document);
      const std::uint64_t here = std::min(tokens, ends_[document] - first);
      bytes.resize(std::min(here, files_[document].size() - begin));
      if (Status status = files_[document].read(begin, bytes.data(), bytes.size()); !status.ok())
        return status;
      out = std::copy(bytes.begin(), bytes.end(), out);
      if (bytes.size() < here) *out++ = kEndOfBytes;
      first += here;
      tokens -= here;
      ++document;
    }
    return {};
  }

 private:
  // A pipe is read to its end, unless it has none.
  static Status copy(const std::string& path, std::uint64_t room, TokenFile& file) {
    std::ifstream pipe(path, std::ios::binary);
    if (!pipe)
      return {Code::io, "--data-path " + path + " cannot be read: " + std::strerror(errno)};
    if (Status status = file.open_unnamed(path); !status.ok()) return status;
    char chunk[65536];
    while (file.size() <= room && (pipe.read(chunk, sizeof chunk) || pipe.gcount() > 0))
      if (Status status = file.append(chunk, static_cast<std::size_t>(pipe.gcount())); !status.ok())
        return status;
    if (pipe.bad()) return {Code::io, "--data-path " + path + " could not be read to its end"};
    return {};
  }

  std::vector<TokenFile> files_;
  std::vector<std::uint64_t> ends_;  // behind each file's kEndOfBytes
  std::uint64_t identity_ = 0;
};

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15ULL * (b + 1);  // splitmix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t hash_of_name(const std::string& path) {
  std::uint64_t hash = 0;
  for (std::size_t i = path.rfind('/') + 1; i < path.size(); ++i) {  // npos + 1 is 0
    hash = mix(hash, static_cast<unsigned char>(path[i]));
  }
  return hash;
}

tutti::Result<std::shared_ptr<const Tokens>> read_bytes(const std::vector<std::string>& paths) {
  auto tokens = std::make_shared<ByteTokens>();
  for (const std::string& path : paths)
    if (auto status = tokens->add(path); !status.ok()) return status;
  if (auto status = tokens->find_identity(); !status.ok()) return status;
  return std::shared_ptr<const Tokens>(std::move(tokens));
}

}  // namespace pretrain
