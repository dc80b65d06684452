#include "errors.hpp"

namespace tutti_torch {

Failure::Failure(tutti::Status status)
    : std::runtime_error(status.to_string()), status_(std::move(status)) {}

void refuse(const char* operation, const std::string& message) {
  throw Failure(tutti::Status(tutti::Code::invalid_argument,
                              std::string("tutti::") + operation + ": " + message));
}

void unsupported(const char* operation, const std::string& message) {
  throw Failure(tutti::Status(tutti::Code::unsupported,
                              std::string("tutti::") + operation + ": " + message));
}

}  // namespace tutti_torch
