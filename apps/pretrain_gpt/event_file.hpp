// apps/pretrain_gpt/event_file.hpp - scalars in the files that TensorBoard reads.
//
// A file of TFRecords (length, its crc, payload, its crc), each payload a protocol buffer `Event`.
// Both are written by hand: of the format we need three messages and seven fields.
//
// Thread-safety  one thread at a time. Every write is on its way to the disk when it returns.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace pretrain {

struct Scalar {
  std::string_view tag;
  double value = 0;  // stored as float
};

// CRC-32C (Castagnoli), and the form of it that TFRecords hold.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

// The payload of an event of scalars, and one record around a payload.
std::string scalar_event(double unix_time_s, std::int64_t step, std::span<const Scalar> scalars);
std::string record_of(std::string_view payload);

class EventFile {
 public:
  // A new file in `folder`, which is made if it is not there. io names it.
  static tutti::Result<std::unique_ptr<EventFile>> create(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  tutti::Status write(std::int64_t step, std::span<const Scalar> scalars);
  const std::string& path() const { return path_; }

 private:
  EventFile() = default;
  tutti::Status put(std::string_view payload);

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace pretrain
