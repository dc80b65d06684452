#include "tool/data/documents.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/json.hpp"
#include "tool/interruption.hpp"

namespace tutti::tool {

namespace {

// A document is tokenized as a whole.
constexpr std::uint64_t kMostDocumentBytes = std::uint64_t{1} << 30;

bool has_lines(const std::string& path) { return path.ends_with(".jsonl"); }

}  // namespace

Result<Documents> Documents::open(std::vector<std::string> paths, std::string field) {
  Documents documents;
  for (const std::string& path : paths) {
    std::error_code error;
    const auto size =
        std::filesystem::is_regular_file(path, error) ? std::filesystem::file_size(path, error) : 0;
    if (error) return Status(Code::io, path + " cannot be read: " + error.message());
    if (!std::filesystem::is_regular_file(path, error))
      return Status(Code::io, path + " is no regular file");
    if (!std::ifstream(path, std::ios::binary))
      return Status(Code::io, path + " cannot be read: " + std::strerror(errno));
    if (!has_lines(path) && size > kMostDocumentBytes)
      return Status(
          Code::unsupported,
          path +
              " is a document of more than 1 GiB; cut it, or write a .jsonl of a document a line");
    documents.bytes_ += size;
  }
  documents.paths_ = std::move(paths);
  documents.field_ = std::move(field);
  return documents;
}

Result<std::optional<std::string>> Documents::next() {
  while (at_ < paths_.size()) {
    const std::string& path = paths_[at_];
    if (!file_.is_open()) file_.open(path, std::ios::binary);
    if (!file_) return Status(Code::io, path + " cannot be read: " + std::strerror(errno));
    if (has_lines(path)) {
      auto line = next_line();
      if (!line.ok() || line->has_value()) return line;
    } else {
      std::string text;
      char chunk[65536];
      while (interruption() == 0 && (file_.read(chunk, sizeof chunk) || file_.gcount() > 0))
        text.append(chunk, static_cast<std::size_t>(file_.gcount()));
      if (file_.bad()) return Status(Code::io, path + " could not be read to its end");
      file_.close();
      ++at_;
      read_ += text.size();
      return std::optional(std::move(text));
    }
    file_.close();
    ++at_;
    line_ = 0;
  }
  return std::optional<std::string>();
}

Result<std::optional<std::string>> Documents::next_line() {
  for (std::string line; std::getline(file_, line);) {
    ++line_;
    read_ += line.size() + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    auto object = Json::parse(line);
    const Json* text = object.ok() ? object->find(field_) : nullptr;
    if (text != nullptr && text->kind() == Json::Kind::string) return std::optional(text->string());
    return Status(
        Code::corrupt,
        fmt::format("{}, line {}: {}", paths_[at_], line_,
                    object.ok() ? fmt::format("there is no text in the field '{}'", field_)
                                : std::string(object.status().message())));
  }
  if (file_.bad()) return Status(Code::io, paths_[at_] + " could not be read to its end");
  return std::optional<std::string>();
}

}  // namespace tutti::tool
