// train/folder.hpp - a folder for one test, gone when it ends; and what tests do to files.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace tutti::test {

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "/tutti_train_XXXXXX";
    path_ = mkdtemp(name.data()) ? name : "";
    EXPECT_FALSE(path_.empty());
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Names in it, hidden ones too.
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.insert(entry.path().filename().string());
    return names;
  }

 private:
  std::string path_;
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Flips one bit in the middle of a file, or at a byte counted from the end.
inline void flip_bit(const std::string& path, std::size_t from_end = 0) {
  std::string bytes = bytes_of(path);
  bytes[from_end > 0 ? bytes.size() - from_end : bytes.size() / 2] ^= 4;
  overwrite(path, bytes);
}

}  // namespace tutti::test
