#include "errors.hpp"

namespace tutti_torch {

namespace {

std::string sentence(const tutti::Status& status) {
  std::string text = status.to_string();
  // Programs look for torch's own word.
  if (status.code() == tutti::Code::timed_out) text += " (the timeout is over)";
  return text;
}

}  // namespace

Failure::Failure(tutti::Status status)
    : std::runtime_error(sentence(status)), status_(std::move(status)) {}

void refuse(const char* operation, const std::string& message) {
  throw Failure(tutti::Status(tutti::Code::invalid_argument,
                              std::string("tutti::") + operation + ": " + message));
}

void unsupported(const char* operation, const std::string& message) {
  throw Failure(tutti::Status(tutti::Code::unsupported,
                              std::string("tutti::") + operation + ": " + message));
}

}  // namespace tutti_torch
