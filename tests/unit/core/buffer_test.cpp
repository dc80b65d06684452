// Every kind of memory that a Buffer can be made of: same address, same count, the right type.
#include "tutti/buffer.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

template <class View>
void expect_view(const View& view, const void* data, std::size_t count, Dtype dtype) {
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.count, count);
  EXPECT_EQ(view.dtype, dtype);
  EXPECT_EQ(view.bytes(), count * size_of(dtype));
}

TEST(Buffer, of_whatever_lies_in_a_row) {
  std::vector<float> vector(5);
  std::array<double, 3> array{};
  int plain[4] = {};
  expect_view(Buffer::of(vector), vector.data(), 5, Dtype::f32);
  expect_view(Buffer::of(array), array.data(), 3, Dtype::f64);
  expect_view(Buffer::of(plain, 4), plain, 4, Dtype::i32);
  expect_view(Buffer::of(std::span(vector)), vector.data(), 5, Dtype::f32);
  expect_view(Buffer::of(std::span(vector).subspan(2, 2)), &vector[2], 2, Dtype::f32);
  expect_view(Buffer::of(std::span(plain)), plain, 4, Dtype::i32);  // of a fixed extent
  expect_view(Buffer::of(std::span<float>()), nullptr, 0, Dtype::f32);
}

TEST(Buffer, of_what_is_only_read) {
  const std::vector<std::uint8_t> vector(5);
  const std::array<std::int64_t, 3> array{};
  std::array<float, 2> written{};
  expect_view(ConstBuffer::of(vector), vector.data(), 5, Dtype::u8);
  expect_view(ConstBuffer::of(array), array.data(), 3, Dtype::i64);
  expect_view(ConstBuffer::of(std::span(vector)), vector.data(), 5, Dtype::u8);
  expect_view(ConstBuffer::of(std::span<const std::int64_t>(array)), array.data(), 3, Dtype::i64);
  expect_view(ConstBuffer::of(std::span(written)), written.data(), 2, Dtype::f32);
  expect_view(ConstBuffer(Buffer::of(written)), written.data(), 2, Dtype::f32);
}

// What must not be written cannot become a Buffer.
template <class Values>
concept Writable = requires(Values values) {
  Buffer::of(values);
};
static_assert(Writable<std::span<float>> && Writable<std::array<float, 2>&>);
static_assert(!Writable<std::span<const float>> && !Writable<const std::array<float, 2>&> &&
              !Writable<const std::vector<float>&>);

}  // namespace
}  // namespace tutti
