#include "checkpoint/safetensors/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace tutti::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() : path_(testing::TempDir() + "/tutti_" + std::to_string(getpid())) {
    path_ += std::string("_") + testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  ~SafetensorsTest() override { std::filesystem::remove(path_); }
  void write(std::string_view bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  Status written(std::span<const TensorToWrite> tensors, const Metadata& metadata) {
    auto file = SafeFile::create(path_);
    if (!file.ok()) return file.status();
    if (Status status = write_safetensors(*file, tensors, metadata); !status.ok()) return status;
    return file->commit();
  }
  std::string path_;
};

std::string with_length(std::string_view json, std::string_view data = "") {
  const std::uint64_t length = json.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + std::string(json) + std::string(data);
}

TEST_F(SafetensorsTest, what_was_written_reads_back_whole_and_in_parts) {
  const std::vector<float> floats{1, -2, 3.5F, 4, 5, 6};
  const std::vector<std::int64_t> longs{1LL << 40, -1};
  const std::vector<std::uint16_t> halves{0x3f80, 0x4000, 7};
  const std::vector<TensorToWrite> tensors{
      {"f \"quoted\" \xc3\xa9", {2, 3}, ConstBuffer::of(floats)},
      {"bf16", {3}, ConstBuffer(halves.data(), halves.size(), Dtype::bf16)},
      {"none", {4, 0}, ConstBuffer::of(floats.data(), 0)},
      {"longs", {2, 1}, ConstBuffer::of(longs)},
      {"scalar", {}, ConstBuffer::of(floats.data(), 1)}};
  ASSERT_TRUE(written(tensors, {{"a", "b"}, {"c", "\n"}}).ok());

  const auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->header().tensors.size(), 5u);
  EXPECT_EQ(file->header().metadata, (Metadata{{"a", "b"}, {"c", "\n"}}));
  EXPECT_EQ(file->header().find("nobody"), nullptr);
  const TensorEntry* entry = file->header().find("f \"quoted\" \xc3\xa9");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<float> part(2);
  ASSERT_TRUE(file->read(*entry, 8, part.data(), 8).ok());
  EXPECT_EQ(part, (std::vector<float>{3.5F, 4}));
  EXPECT_EQ(file->read(*entry, 20, part.data(), 8).code(), Code::corrupt);
  std::vector<std::int64_t> all(2);
  ASSERT_TRUE(file->read(*file->header().find("longs"), 0, all.data(), 16).ok());
  EXPECT_EQ(all, longs);
  EXPECT_EQ(file->header().find("bf16")->dtype, Dtype::bf16);
  EXPECT_EQ(file->header().find("none")->bytes, 0u);
  EXPECT_EQ(file->header().find("scalar")->bytes, 4u);
}

TEST_F(SafetensorsTest, the_data_begins_at_a_multiple_of_eight) {
  for (int letters = 1; letters < 10; ++letters) {
    const float one = 1;
    const TensorToWrite tensor{
        std::string(static_cast<std::size_t>(letters), 'x'), {1}, ConstBuffer::of(&one, 1)};
    const auto header = safetensors_header({&tensor, 1}, {});
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(header->size() % 8, 0u);
  }
  EXPECT_TRUE(safetensors_header({}, {}).ok());
}

TEST_F(SafetensorsTest, every_type_has_a_word_that_leads_back) {
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_of_safetensors_word(safetensors_word(dtype)), dtype);
  }
  EXPECT_EQ(safetensors_word(Dtype::f32), "F32");
  EXPECT_EQ(safetensors_word(Dtype::bf16), "BF16");
  EXPECT_EQ(safetensors_word(Dtype::boolean), "BOOL");
  EXPECT_FALSE(dtype_of_safetensors_word("f32"));
}

TEST_F(SafetensorsTest, a_tensor_that_cannot_be_written_is_named) {
  const std::vector<float> values(6);
  const auto refused = [&](std::vector<TensorToWrite> tensors) {
    const auto header = safetensors_header(tensors, {});
    EXPECT_EQ(header.status().code(), Code::invalid_argument);
    return header.status().message();
  };
  EXPECT_THAT(refused({{"short", {7}, ConstBuffer::of(values)}}), HasSubstr("'short'"));
  EXPECT_THAT(refused({{"less", {-6}, ConstBuffer::of(values)}}), HasSubstr("'less'"));
  EXPECT_THAT(refused({{"x", {6}, ConstBuffer::of(values)}, {"x", {6}, ConstBuffer::of(values)}}),
              HasSubstr("'x' is there twice"));
  EXPECT_THAT(refused({{"__metadata__", {6}, ConstBuffer::of(values)}}), HasSubstr("__metadata__"));
  EXPECT_THAT(refused({{"\xff", {6}, ConstBuffer::of(values)}}), HasSubstr("not UTF-8"));
}

struct Bad {
  const char* header;
  std::uint64_t data_bytes;
  const char* words;
};

TEST_F(SafetensorsTest, a_header_that_cannot_be_true_is_refused_with_the_tensor) {
  const Bad cases[] = {
      {"", 0, "does not begin"},
      {" {}", 0, "does not begin"},
      {"[1]", 0, "does not begin"},
      {"{", 0, "header"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "cut off"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "1 bytes follow"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "by its shape 8"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "'F31'"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "whole number"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "whole number"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}})", 4,
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "mean nothing"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "no data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1e300]}})", 4, "mean nothing"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "not described"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4, "not described"},
      {R"({"a":3})", 4, "not described"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "'b' overlaps"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "'b' leaves a hole"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "'a' is there twice"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__"},
      {R"({"__metadata__":[]})", 0, "__metadata__"},
  };
  for (const Bad& bad : cases) {
    const auto header = parse_safetensors(bad.header, bad.data_bytes);
    EXPECT_EQ(header.status().code(), Code::corrupt) << bad.header;
    EXPECT_THAT(header.status().message(), HasSubstr(bad.words)) << bad.header;
  }
  EXPECT_TRUE(parse_safetensors("{}", 0).ok());
  EXPECT_TRUE(parse_safetensors(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                                R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} )",
                                3)
                  .ok())
      << "tensors may be listed in any order";
}

TEST_F(SafetensorsTest, a_file_that_is_none_is_refused_with_its_name) {
  EXPECT_EQ(SafetensorsFile::open(path_).status().code(), Code::io);
  for (const std::string& bytes :
       {std::string(), std::string("short"), with_length("{}").substr(0, 9),
        std::string(8, '\xff') + "{}", std::string("PK\x03\x04 this is a zip file"),
        with_length("{}", "more")}) {
    write(bytes);
    const auto file = SafetensorsFile::open(path_);
    EXPECT_EQ(file.status().code(), Code::corrupt) << bytes;
    EXPECT_THAT(file.status().message(), HasSubstr(path_));
  }
  write(with_length("{}"));
  EXPECT_TRUE(SafetensorsFile::open(path_).ok());
  EXPECT_EQ(SafetensorsFile::open(testing::TempDir()).status().code(), Code::corrupt);
}

}  // namespace
}  // namespace tutti::checkpoint
