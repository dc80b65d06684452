#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tokens.hpp"

namespace pretrain {

namespace {

// All of it is kept in memory, in every rank.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr const char* kTooMuch =
    " makes it more than 1 GiB of data, which is not read as bytes: `tutti data build` makes tokens of it that "
    "need not be in memory";

tutti::Status read_file(const std::string& path, std::vector<std::uint16_t>& stream) {
  const auto refuse = [&](const std::string& why) {
    return tutti::Status(tutti::Code::io, "--data-path " + path + why);
  };
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return refuse(" is a folder, not a file");
    if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) return refuse(" is a device, not a file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return refuse(std::string(" cannot be read: ") + std::strerror(errno));
  }
  const std::uint64_t room = kMostBytes - std::min<std::uint64_t>(kMostBytes, stream.size());
  if (static_cast<std::uint64_t>(info.st_size) > room) return refuse(kTooMuch);
  std::uint64_t read = 0;  // a pipe may never end
  char chunk[65536];
  while (file.read(chunk, sizeof chunk) || file.gcount() > 0) {
    if ((read += static_cast<std::uint64_t>(file.gcount())) > room) return refuse(kTooMuch);
    const auto* bytes = reinterpret_cast<const unsigned char*>(chunk);
    stream.insert(stream.end(), bytes, bytes + file.gcount());
  }
  if (file.bad()) return refuse(" could not be read to its end");
  stream.push_back(kEndOfBytes);
  return {};
}

// Ends of documents are in the stream: it also tells where one file ends and the next begins.
std::uint64_t hash_of(const std::vector<std::uint16_t>& stream) {
  std::uint64_t hash = stream.size();
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < stream.size(); i += sizeof word / sizeof stream[0]) {
    word = 0;
    std::memcpy(&word, &stream[i], std::min(sizeof word, (stream.size() - i) * sizeof stream[0]));
    hash = mix(hash, word);
  }
  return hash;
}

class ByteTokens final : public Tokens {
 public:
  std::uint64_t count() const override { return stream.size(); }
  std::int64_t at(std::uint64_t index) const override { return stream[index]; }
  std::uint64_t bytes() const override { return stream.size(); }
  std::uint64_t documents() const override { return ends.size(); }
  std::uint64_t begin_of(std::uint64_t document) const override {
    return document == 0 ? 0 : ends[document - 1];
  }
  std::uint64_t identity() const override { return hash; }
  std::int64_t vocabulary() const override { return kByteVocabulary; }
  std::int64_t end_of_document() const override { return kEndOfBytes; }

  std::vector<std::uint16_t> stream;
  std::vector<std::uint64_t> ends;
  std::uint64_t hash = 0;
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
  for (const std::string& path : paths) {
    if (auto status = read_file(path, tokens->stream); !status.ok()) return status;
    tokens->ends.push_back(tokens->stream.size());
    tokens->hash = mix(tokens->hash, hash_of_name(path));
  }
  tokens->hash = mix(tokens->hash, hash_of(tokens->stream));
  return std::shared_ptr<const Tokens>(std::move(tokens));
}

}  // namespace pretrain
