#include "tool/data/indexed_writer.hpp"

#include <fmt/format.h>

#include <limits>

namespace tutti::tool {

namespace {

constexpr std::size_t kPiece = 1 << 20;
constexpr std::uint8_t kInt32 = 4, kUint16 = 8;  // Megatron's numbers of types

// Little-endian, as this machine has them.
template <class Number>
void put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class Number>
void put_all(std::string& out, const std::vector<Number>& numbers) {
  out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
}

}  // namespace

Result<IndexedWriter> IndexedWriter::open(const std::string& prefix, std::int64_t vocabulary) {
  for (const char* end : {".idx", ".tokens"})
    if (Status status = OutputFile::check(prefix + end); !status.ok()) return status;
  auto file = OutputFile::open(prefix + ".bin");
  if (!file.ok()) return file.status();
  return IndexedWriter(prefix, *std::move(file),
                       vocabulary <= 65500 ? 2 : 4);  // as Megatron chooses
}

Status IndexedWriter::end_document() {
  const std::uint64_t tokens = (bytes_ - begin_) / width_;
  if (tokens == 0) return {};
  if (tokens > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
    return {Code::unsupported,
            fmt::format("a document of {} tokens is longer than the format can say", tokens)};
  lengths_.push_back(static_cast<std::int32_t>(tokens));
  offsets_.push_back(static_cast<std::int64_t>(begin_));
  begin_ = bytes_;
  return {};
}

Status IndexedWriter::add(std::span<const std::int32_t> tokens) {
  bytes_ += tokens.size() * width_;
  for (const std::int32_t token : tokens)
    width_ == 2 ? put(pending_, static_cast<std::uint16_t>(token)) : put(pending_, token);
  return pending_.size() >= kPiece ? flush() : Status();
}

Status IndexedWriter::flush() {
  Status status = file_.write(pending_);
  pending_.clear();
  return status;
}

Status IndexedWriter::finish(const std::string& about) {
  if (Status status = flush(); !status.ok()) return status;
  std::string index("MMIDIDX\0\0", 9);
  put(index, std::uint64_t{1});
  put(index, width_ == 2 ? kUint16 : kInt32);
  put(index, std::uint64_t{lengths_.size()});
  put(index, std::uint64_t{lengths_.size() + 1});
  put_all(index, lengths_);
  put_all(index, offsets_);
  for (std::size_t document = 0; document <= lengths_.size(); ++document)
    put(index, static_cast<std::int64_t>(document));
  if (Status status = file_.finish(); !status.ok()) return status;
  if (Status status = write_file(prefix_ + ".tokens", about); !status.ok()) return status;
  return write_file(prefix_ + ".idx", index);  // last: with it the set is there
}

}  // namespace tutti::tool
