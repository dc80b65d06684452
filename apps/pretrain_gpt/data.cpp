#include "data.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>

namespace pretrain {

namespace {

// All data is kept in memory, in every rank.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr const char* kTooMuch =
    " makes it more than 1 GiB of data, which this trainer does not take";

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
  stream.push_back(kEndOfDocument);
  return {};
}

// Without its folder: data may be moved.
std::uint64_t hash_of_name(const std::string& path) {
  std::uint64_t hash = 0;
  for (std::size_t i = path.rfind('/') + 1; i < path.size(); ++i) {  // npos + 1 is 0
    hash = mix(hash, static_cast<unsigned char>(path[i]));
  }
  return hash;
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

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15ULL * (b + 1);  // splitmix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

tutti::Result<Data> Data::open(const std::vector<std::string>& paths, int seq_length,
                               std::uint64_t seed, bool mask_end_of_document) {
  Data data;
  data.length_ = static_cast<std::size_t>(seq_length);
  data.seed_ = seed;
  data.mask_ = mask_end_of_document;
  for (const std::string& path : paths) {
    if (auto status = read_file(path, data.stream_); !status.ok()) return status;
    data.identity_ = mix(data.identity_, hash_of_name(path));
  }
  data.identity_ = mix(data.identity_, hash_of(data.stream_));
  const std::size_t all = (data.stream_.size() - 1) / data.length_;
  data.validation_ = std::max<std::size_t>(1, all / 20);
  if (all <= data.validation_) {
    return tutti::Status(tutti::Code::invalid_argument,
                         "--data-path " + paths[0] + (paths.size() > 1 ? " … hold" : " holds") +
                             " too few bytes for two sequences of --seq-length " +
                             std::to_string(seq_length));
  }
  data.training_ = all - data.validation_;
  return data;
}

void Data::shuffle_epoch(std::uint64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  order_.resize(training_);
  std::iota(order_.begin(), order_.end(), 0U);
  const std::uint64_t seed = mix(seed_, epoch);
  for (std::size_t i = training_ - 1; i > 0; --i) {
    std::swap(order_[i], order_[mix(seed, i) % (i + 1)]);
  }
}

void Data::append(TokenBatch& batch, std::size_t sequence) const {
  const std::size_t begin = sequence * length_;
  for (std::size_t i = 0; i < length_; ++i) {
    const std::int64_t token = stream_[begin + i];
    const bool counts = !(mask_ && token == kEndOfDocument);
    batch.tokens.push_back(token);
    batch.labels.push_back(stream_[begin + i + 1]);
    batch.loss_mask.push_back(counts ? 1.0F : 0.0F);
    batch.counted += counts ? 1 : 0;
  }
}

TokenBatch Data::training(std::uint64_t first, int sequences) {
  TokenBatch batch;
  for (int i = 0; i < sequences; ++i) {
    const std::uint64_t index = first + static_cast<std::uint64_t>(i);
    shuffle_epoch(index / training_);
    append(batch, order_[index % training_]);
  }
  return batch;
}

TokenBatch Data::validation(std::uint64_t first, int sequences) const {
  TokenBatch batch;
  for (int i = 0; i < sequences; ++i) {
    append(batch, training_ + (first + static_cast<std::uint64_t>(i)) % validation_);
  }
  return batch;
}

}  // namespace pretrain
