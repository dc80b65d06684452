#include "event_file.hpp"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

namespace pretrain {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78U : 0);
    table[byte] = rest;
  }
  return table;
}
constexpr auto kTable = make_table();

template <class Number>
void put_little_endian(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i)
    out += static_cast<char>(number >> (8 * i) & 0xff);
}

// ---- protocol buffers: a field is its number and wire type, then the value
enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>((number & 0x7f) | 0x80);
  out += static_cast<char>(number);
}

void put_key(std::string& out, std::uint32_t field, WireType type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_double(std::string& out, std::uint32_t field, double value) {
  put_key(out, field, kFixed64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

void put_float(std::string& out, std::uint32_t field, float value) {
  put_key(out, field, kFixed32);
  put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string version_event(double unix_time_s) {
  std::string event;
  put_double(event, 1, unix_time_s);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

tutti::Status cannot_write(const std::string& path) {
  return {tutti::Code::io, path + " cannot be written: " + std::strerror(errno)};
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0U;
  for (const char byte : bytes)
    rest = kTable[(rest ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (rest >> 8);
  return ~rest;
}

// A crc of bytes that hold a crc is weak, so it is turned and shifted.
std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

// Summary { repeated Value value = 1; }  Value { string tag = 1; float simple_value = 2; }
std::string scalar_event(double unix_time_s, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_float(value, 2, static_cast<float>(scalar.value));
    put_bytes(summary, 1, value);
  }
  std::string event;
  put_double(event, 1, unix_time_s);
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 5, summary);
  return event;
}

std::string record_of(std::string_view payload) {
  std::string record;
  put_little_endian(record, static_cast<std::uint64_t>(payload.size()));
  put_little_endian(record, masked_crc32c(record));
  record += payload;
  put_little_endian(record, masked_crc32c(payload));
  return record;
}

tutti::Result<std::unique_ptr<EventFile>> EventFile::create(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return tutti::Status(tutti::Code::io, folder + " cannot be made: " + error.message());
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const double now = unix_time_s();
  std::unique_ptr<EventFile> events(new EventFile);
  // TensorBoard looks for "tfevents" in the name and sorts by it.
  events->path_ = folder + "/events.out.tfevents." + std::to_string(static_cast<long long>(now)) +
                  "." + host + "." + std::to_string(::getpid());
  events->file_ = std::fopen(events->path_.c_str(), "wb");
  if (events->file_ == nullptr) return cannot_write(events->path_);
  if (auto status = events->put(version_event(now)); !status.ok()) return status;
  return events;
}

EventFile::~EventFile() {
  if (file_ != nullptr) std::fclose(file_);
}

tutti::Status EventFile::write(std::int64_t step, std::span<const Scalar> scalars) {
  return put(scalar_event(unix_time_s(), step, scalars));
}

tutti::Status EventFile::put(std::string_view payload) {
  const std::string record = record_of(payload);
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() ||
      std::fflush(file_) != 0)
    return cannot_write(path_);
  return {};
}

}  // namespace pretrain
