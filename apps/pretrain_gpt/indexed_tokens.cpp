// Megatron's indexed datasets. All numbers are little-endian.
//
//   PREFIX.idx   "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 entries,
//                i32 length[sequences], i64 byte offset[sequences], i64 first sequence of document[entries]
//   PREFIX.bin   the tokens, one sequence behind the other
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "token_file.hpp"
#include "tokens.hpp"

namespace pretrain {

namespace {

using tutti::Code;
using tutti::Result;
using tutti::Status;

constexpr char kMagic[] = "MMIDIDX\0";  // nine bytes with the one that ends it
constexpr std::size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

template <class Number>
Number number_at(const unsigned char* bytes) {
  Number number;  // what lies behind the magic is not aligned
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

// A whole file, as it lies on disk.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data_ != nullptr) ::munmap(const_cast<unsigned char*>(data_), size_);
  }

  Status open(const std::string& path) {
    const auto refuse = [&](const std::string& why) {
      return Status(Code::io, "--data-path " + path + " cannot be read: " + why);
    };
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return refuse(std::strerror(errno));
    struct stat info {};
    const bool known = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
    void* data = MAP_FAILED;
    if (known && info.st_size > 0)
      data =
          ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, file, 0);
    const int error = errno;
    ::close(file);
    if (!known) return refuse("it is no regular file");
    if (info.st_size == 0) return refuse("it is empty");
    if (data == MAP_FAILED) return refuse(std::strerror(error));
    data_ = static_cast<const unsigned char*>(data);
    size_ = static_cast<std::size_t>(info.st_size);
    return {};
  }

  std::size_t size() const { return size_; }
  const unsigned char* data() const { return data_; }
  template <class Number>
  Number at(std::size_t offset) const {
    return number_at<Number>(data_ + offset);
  }

 private:
  const unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

// Bytes of an element by Megatron's number of its type; 0: no whole numbers.
std::size_t width_of(std::uint8_t type) {
  switch (type) {
    case 1:
    case 2: return 1;
    case 3:
    case 8: return 2;
    case 4: return 4;
    case 5: return 8;
    default: return 0;
  }
}

class IndexedTokens final : public Tokens {
 public:
  Status open(const std::string& prefix) {
    if (auto status = index_.open(prefix + ".idx"); !status.ok()) return status;
    if (auto status = tokens_.open(prefix + ".bin"); !status.ok()) return status;
    if (tokens_.size() == 0)
      return {Code::io, "--data-path " + prefix + ".bin cannot be read: it is empty"};
    if (auto status = read_header(prefix + ".idx"); !status.ok()) return status;
    if (auto status = check_end(prefix + ".bin"); !status.ok()) return status;
    read_vocabulary(prefix + ".tokens");
    return find_identity(prefix);
  }

  std::uint64_t count() const override { return tokens_.size() / width_; }
  Status read(std::uint64_t first, std::uint64_t tokens, std::int64_t* out) const override {
    std::vector<unsigned char> bytes(tokens * width_);
    if (Status status = tokens_.read(first * width_, bytes.data(), bytes.size()); !status.ok())
      return status;
    for (std::uint64_t i = 0; i < tokens; ++i) out[i] = token_at(bytes.data() + i * width_);
    return {};
  }
  std::uint64_t bytes() const override { return tokens_.size(); }
  std::uint64_t documents() const override { return entries_ - 1; }
  std::uint64_t begin_of(std::uint64_t document) const override {
    const auto sequence = index_.at<std::uint64_t>(documents_at_ + document * 8);
    return sequence >= sequences_ ? count()
                                  : index_.at<std::uint64_t>(offsets_at_ + sequence * 8) / width_;
  }
  std::uint64_t identity() const override { return identity_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t end_of_document() const override { return end_; }

 private:
  std::int64_t token_at(const unsigned char* bytes) const {
    switch (type_) {
      case 1: return number_at<std::uint8_t>(bytes);
      case 2: return number_at<std::int8_t>(bytes);
      case 3: return number_at<std::int16_t>(bytes);
      case 4: return number_at<std::int32_t>(bytes);
      case 5: return number_at<std::int64_t>(bytes);
      default: return number_at<std::uint16_t>(bytes);
    }
  }

  Status read_header(const std::string& path) {
    const auto refuse = [&](const std::string& why) {
      return Status(Code::corrupt, "--data-path " + path + " is no index of tokens: " + why);
    };
    if (index_.size() < kHeaderBytes || std::memcmp(index_.data(), kMagic, 9) != 0)
      return refuse("it does not begin with MMIDIDX");
    if (const auto version = index_.at<std::uint64_t>(9); version != 1)
      return refuse(fmt::format("its version is {}, not 1", version));
    type_ = index_.at<std::uint8_t>(17);
    width_ = width_of(type_);
    if (width_ == 0) return refuse(fmt::format("tokens of type {} are no whole numbers", type_));
    sequences_ = index_.at<std::uint64_t>(18);
    entries_ = index_.at<std::uint64_t>(26);
    const std::uint64_t most = index_.size() / 8;  // so that nothing below overflows
    if (sequences_ < 1 || entries_ < 2 || sequences_ > most || entries_ > most ||
        kHeaderBytes + sequences_ * 12 + entries_ * 8 != index_.size())
      return refuse(fmt::format("{} bytes are not those of {} sequences and {} ends of documents",
                                index_.size(), sequences_, entries_));
    offsets_at_ = kHeaderBytes + sequences_ * 4;
    documents_at_ = offsets_at_ + sequences_ * 8;
    return {};
  }

  // The last sequence ends where the file does.
  Status check_end(const std::string& path) {
    const auto last = index_.at<std::uint64_t>(offsets_at_ + (sequences_ - 1) * 8);
    const auto length = index_.at<std::uint32_t>(kHeaderBytes + (sequences_ - 1) * 4);
    if (last > tokens_.size() || last + length * width_ != tokens_.size())
      return {Code::corrupt, fmt::format("--data-path {} has {} bytes, and its index speaks of {}",
                                         path, tokens_.size(), last + length * width_)};
    return {};
  }

  // What `tutti data build` writes down beside the tokens; others do not.
  void read_vocabulary(const std::string& path) {
    std::ifstream file(path);
    std::string name;
    std::int64_t value = 0;
    while (file >> name) {
      if (name == "vocab_size" && file >> value)
        vocabulary_ = value;
      else if (name == "end_of_document" && file >> value)
        end_ = value;
      else
        std::getline(file, name);
    }
  }

  // The index's numbers, and a few thousand places of the tokens: all of them may be terabytes.
  Status find_identity(const std::string& prefix) {
    constexpr std::uint64_t kPlaces = 4096;
    identity_ = mix(hash_of_name(prefix), tokens_.size());
    for (std::size_t offset = 9; offset + 8 <= kHeaderBytes; offset += 8)
      identity_ = mix(identity_, index_.at<std::uint64_t>(offset));
    const std::uint64_t all = count();
    for (std::uint64_t i = 0; i < kPlaces; ++i) {
      std::int64_t token = 0;
      if (Status status = read(i * (all - 1) / (kPlaces - 1), 1, &token); !status.ok())
        return status;
      identity_ = mix(identity_, static_cast<std::uint64_t>(token));
    }
    return {};
  }

  Mapping index_;  // looked at while it is opened, and not again
  TokenFile tokens_;
  std::uint8_t type_ = 0;
  std::size_t width_ = 1;
  std::uint64_t sequences_ = 0, entries_ = 0;
  std::size_t offsets_at_ = 0, documents_at_ = 0;
  std::int64_t vocabulary_ = 0, end_ = -1;
  std::uint64_t identity_ = 0;
};

}  // namespace

bool is_indexed(const std::string& prefix) {
  return ::access((prefix + ".idx").c_str(), F_OK) == 0;
}

Result<std::shared_ptr<const Tokens>> map_indexed(const std::string& prefix) {
  auto tokens = std::make_shared<IndexedTokens>();
  if (auto status = tokens->open(prefix); !status.ok()) return status;
  return std::shared_ptr<const Tokens>(std::move(tokens));
}

}  // namespace pretrain
