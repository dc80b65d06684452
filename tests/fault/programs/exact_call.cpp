#include "exact_call.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::test {
namespace {

constexpr std::uint32_t kNothing = 0xDEADBEEF;

std::uint32_t value_of(int rank, std::size_t index) {
  return (static_cast<std::uint32_t>(rank) + 1) * 2654435761U +
         static_cast<std::uint32_t>(index) * 40503U;
}

}  // namespace

ExactCall::ExactCall(const Group& group, What what)
    : what_(what), shape_(shape_of(what.collective)), rank_(group.rank()), size_(group.size()) {
  input_ = elements(shape_.input);
  output_ = elements(shape_.output);
}

std::size_t ExactCall::elements(const CollectiveSide& side) const {
  if (!side.is_there(rank_ == what_.root)) return 0;
  return what_.count * static_cast<std::size_t>(side.blocks == Blocks::each ? size_ : 1);
}

// Inputs, then outputs; the buffer of a broadcast is output, and at the root input too.
void ExactCall::fill(std::size_t first, std::size_t count, std::uint32_t* into) const {
  const bool source = shape_.has_one_buffer() && rank_ == what_.root;
  for (std::size_t i = first; i < first + count; ++i)
    *into++ = i < input_ || source ? value_of(rank_, i) : kNothing;
}

void ExactCall::prepare(Moment moment) {
  const std::size_t all = input_ + output_;
  watched_.reset();
  if (!moment.act || all == 0) {
    plain_.resize(all);
    data_ = plain_.data();
    fill(0, all, data_);
    return;
  }
  constexpr std::size_t kInPage = kPage / sizeof(std::uint32_t);
  const std::size_t pages = all / kInPage;
  const std::size_t page =
      1 + static_cast<std::size_t>(moment.share * static_cast<double>(pages - 1));
  watched_ = std::make_unique<TouchedMemory>(
      pages,
      [this](std::size_t number, std::byte* contents) {
        fill(number * kInPage, kInPage, reinterpret_cast<std::uint32_t*>(contents));
      },
      page, [=] { moment.act(page, pages); });
  data_ = reinterpret_cast<std::uint32_t*>(watched_->data());
}

Status ExactCall::run(Group& group, std::chrono::nanoseconds timeout) {
  const ConstBuffer in = ConstBuffer::of(data_, input_);
  const Buffer out = Buffer::of(data_ + input_, output_);
  Call call;
  call.collective = what_.collective;
  if (input_ > 0) call.input = {&in, 1};
  if (output_ > 0) call.output = {&out, 1};
  if (shape_.folds()) call.reduction = ReduceOp::sum;
  call.root = what_.root;
  call.options.algorithm = what_.algorithm;
  call.options.timeout = timeout;
  return group.run(call);
}

std::uint32_t ExactCall::expected(std::size_t index) const {
  const auto part = static_cast<int>(index / what_.count);
  const std::size_t inside = index % what_.count;
  const std::size_t mine = shape_.input.blocks == Blocks::each
                               ? static_cast<std::size_t>(rank_) * what_.count + inside
                               : inside;
  using Fold = CollectiveShape::Fold;
  if (shape_.fold == Fold::nobody)
    return value_of(shape_.output.blocks == Blocks::each ? part : what_.root, mine);
  if (shape_.fold == Fold::before_own && rank_ == 0) return kNothing;
  const int end = shape_.fold == Fold::all         ? size_
                  : shape_.fold == Fold::up_to_own ? rank_ + 1
                                                   : rank_;
  std::uint32_t sum = 0;
  for (int rank = 0; rank < end; ++rank) sum += value_of(rank, mine);
  return sum;
}

std::string ExactCall::difference() const {
  for (std::size_t i = 0; i < output_; ++i)
    if (const std::uint32_t got = data_[input_ + i]; got != expected(i))
      return fmt::format("{} by {}: element {} of {} is {:#x}, not {:#x}",
                         to_string(what_.collective), to_string(what_.algorithm), i, output_, got,
                         expected(i));
  return "";
}

}  // namespace tutti::test
