#include "errors.hpp"

namespace tutti_torch {
namespace {

// Where a deadline came from, for those who only know torch's calls.
tutti::Status explained(tutti::Status status) {
  if (status.code() != tutti::Code::timed_out) return status;
  return {
      tutti::Code::timed_out,
      status.message() + " (its timeout was given to init_process_group, new_group or the call)",
      {status.rank(), status.peer(), status.sequence()}};
}

}  // namespace

Failure::Failure(const tutti::Status& status) : Failure(explained(status), Explained()) {}

Failure::Failure(tutti::Status status, Explained)
    : std::runtime_error(status.to_string()), status_(std::move(status)) {}

void refuse(const char* operation, const std::string& message) {
  throw Failure(tutti::Status(tutti::Code::invalid_argument,
                              std::string("tutti::") + operation + ": " + message));
}

void unsupported(const char* operation, const std::string& message) {
  throw Failure(
      tutti::Status(tutti::Code::unsupported, std::string("tutti::") + operation + ": " + message));
}

}  // namespace tutti_torch
