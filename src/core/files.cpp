#include "core/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/sockets.hpp"

namespace tutti {
namespace {

constexpr std::string_view kBlanks = " \t\n";

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t most_bytes) {
  const auto failed = [&] {
    return Status(Code::io, fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  };
  // bounded: by whoever named it; a pipe that a person names is to be waited for
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return failed();
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return failed();
  if (!S_ISREG(facts.st_mode))
    most_bytes = std::min(most_bytes, kMostFileBytes);  // may have no end
  std::string text;
  char piece[16 << 10];
  for (;;) {
    const ssize_t got = ::read(file.get(), piece, sizeof piece);  // bounded: as above
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) return failed();
    if (got > 0) text.append(piece, static_cast<std::size_t>(got));
    if (text.size() > most_bytes)
      return Status(Code::io, fmt::format("{} cannot be read: it holds more than {} MiB", path,
                                          most_bytes >> 20));
  }
}

std::string read_text(const std::string& path, std::size_t most_bytes) {
  auto text = read_file(path, most_bytes);
  return text.ok() ? *std::move(text) : std::string();
}

Status check_private_file(int descriptor, std::string_view what, const std::string& path) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0)
    return errno_status(fmt::format("cannot look at {} {}", what, path));
  if (!S_ISREG(facts.st_mode))
    return {Code::invalid_argument, fmt::format("{} {} is not a regular file", what, path)};
  if (facts.st_uid != ::geteuid())
    return {Code::invalid_argument,
            fmt::format("{} {} belongs to user {}, not to this user ({}); make one of your own",
                        what, path, facts.st_uid, ::geteuid())};
  if ((facts.st_mode & 077) != 0)
    return {Code::invalid_argument,
            fmt::format("{} {} has mode {:04o}, so others can get at it; run: chmod 600 {}", what,
                        path, facts.st_mode & 07777, path)};
  return {};
}

std::string_view first_word(std::string_view text) {
  text = without_blanks(text);
  return text.substr(0, text.find_first_of(kBlanks));
}

std::optional<std::int64_t> first_number(std::string_view text) {
  text = without_blanks(text);
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::string_view> value_after(std::string_view text, std::string_view key) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.substr(0, key.size()) == key) return without_blanks(line.substr(key.size()));
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace tutti
