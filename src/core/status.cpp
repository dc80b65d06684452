#include "tutti/status.hpp"

#include <array>

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

std::string_view to_string(Code code) noexcept {
  static constexpr std::array<std::string_view, 11> kWords = {
      "ok", "invalid_argument", "mismatch", "unsupported", "timed_out", "peer_lost", "aborted",
      "io", "out_of_memory",    "corrupt",  "internal"};
  return kWords[static_cast<std::size_t>(code)];
}

struct Status::Payload {
  std::atomic<std::uint32_t> references{1};
  Code code;
  std::string message;
  Where where;
};

Status::Status(Code code, std::string message) : Status(code, std::move(message), Where{}) {}

Status::Status(Code code, std::string message, Where where) {
  if (code == Code::ok) return;
  payload_ = new Payload{{1}, code, std::move(message), where};
}

Status::Status(const Status& other) noexcept : payload_(other.payload_) {
  if (payload_) payload_->references.fetch_add(1, std::memory_order_relaxed);
}

Status::~Status() {
  if (payload_ && payload_->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete payload_;
}

Code Status::code() const noexcept { return payload_ ? payload_->code : Code::ok; }

const std::string& Status::message() const noexcept {
  static const std::string kEmpty;
  return payload_ ? payload_->message : kEmpty;
}

int Status::rank() const noexcept { return payload_ ? payload_->where.rank : -1; }
int Status::peer() const noexcept { return payload_ ? payload_->where.peer : -1; }
std::uint64_t Status::sequence() const noexcept { return payload_ ? payload_->where.sequence : 0; }

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(tutti::to_string(code())) + ": " + message();
}

Status Status::annotate(std::string_view context) const {
  if (ok()) return {};
  return {code(), std::string(context) + ": " + message(), payload_->where};
}

}  // namespace v1
}  // namespace tutti
