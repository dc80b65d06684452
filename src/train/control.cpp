#include "train/control.hpp"

#include <algorithm>
#include <bit>

#include "core/check.hpp"

namespace tutti::train {
namespace {

constexpr int kMostRanks = 65'536;
constexpr int kSlots = 64;
constexpr std::size_t kTokens = ExactSum::kLimbs;  // its word
constexpr std::size_t kStops = kTokens + 1;
constexpr std::size_t kMeets = kStops + 1;
constexpr std::size_t kFirstSlot = kMeets + 1;
// The sign bit stays free.
constexpr int kWordBits = 63;

// A slot, from the lowest bit on. At most 1,024 ranks share one, so that the count holds its sum in
// 11 bits and what lies above it grows by 10:
//
//   | count 11 | rank / 64: 10 | loss 1 | after reduction 1 | parameter 30 | room for sums 10 |
constexpr int kRoundShift = 11;
constexpr int kLossShift = kRoundShift + 10;
constexpr int kAfterShift = kLossShift + 1;
constexpr int kParameterShift = kAfterShift + 1;
constexpr int kParameterBits = 30;
constexpr int kMostPerSlot = kMostRanks / kSlots;
static_assert(std::bit_width(unsigned{kMostPerSlot}) <= kRoundShift);
static_assert(kMostPerSlot <= 1 << (kLossShift - kRoundShift));
static_assert(kParameterShift + kParameterBits + 10 <= kWordBits);

std::uint64_t bits_of(std::uint64_t word, int shift, int count) {
  return word >> shift & ((std::uint64_t{1} << count) - 1);
}

Control::SlotFault read_slot(std::uint64_t word, int slot) {
  Control::SlotFault finding;
  if (bits_of(word, 0, kRoundShift) != 1) return finding;  // several ranks, all added up
  finding.rank = slot + kSlots * static_cast<int>(bits_of(word, kRoundShift, 10));
  finding.is_loss = bits_of(word, kLossShift, 1) != 0;
  finding.after_reduction = bits_of(word, kAfterShift, 1) != 0;
  if (!finding.is_loss)
    finding.parameter = static_cast<std::size_t>(bits_of(word, kParameterShift, kParameterBits));
  return finding;
}

}  // namespace

Control::Control(int rank, int ranks, std::size_t parameters)
    : rank_(rank),
      parameters_(parameters),
      slots_(static_cast<std::size_t>(std::min(ranks, kSlots))),
      field_bits_(static_cast<int>(std::bit_width(static_cast<unsigned>(ranks)))),
      fields_per_word_(static_cast<std::size_t>(kWordBits / field_bits_)) {
  TUTTI_CHECK(ranks > 0 && ranks <= kMostRanks && rank >= 0 && rank < ranks);
  TUTTI_CHECK(parameters < std::size_t{1} << kParameterBits);
  words_.resize(first_count() + (parameters + fields_per_word_ - 1) / fields_per_word_);
}

std::size_t Control::first_count() const { return kFirstSlot + slots_; }

void Control::set_norm(const ExactSum& sum) {
  const auto limbs = sum.limbs();
  std::copy(limbs.begin(), limbs.end(), words_.begin());
}

void Control::set_tokens(std::int64_t tokens) { words_[kTokens] = tokens; }
void Control::set_stop() { words_[kStops] = 1; }
void Control::set_meet() { words_[kMeets] = 1; }

void Control::set_fault(std::uint64_t payload) {
  if (fault_told_) return;
  fault_told_ = true;
  const auto round = static_cast<std::uint64_t>(rank_ / kSlots);
  words_[kFirstSlot + static_cast<std::size_t>(rank_ % kSlots)] =
      static_cast<std::int64_t>(1 | round << kRoundShift | payload);
}

void Control::set_loss_fault() { set_fault(std::uint64_t{1} << kLossShift); }

void Control::set_gradient_fault(std::size_t parameter, bool after_reduction) {
  TUTTI_CHECK(parameter < parameters_);
  set_fault(std::uint64_t{parameter} << kParameterShift | std::uint64_t{after_reduction}
                                                              << kAfterShift);
}

void Control::set_used(std::size_t parameter) {
  TUTTI_CHECK(parameter < parameters_);
  const auto shift = static_cast<int>(parameter % fields_per_word_) * field_bits_;
  words_[first_count() + parameter / fields_per_word_] |= std::int64_t{1} << shift;
}

void Control::clear() {
  std::fill(words_.begin(), words_.end(), 0);
  fault_told_ = false;
}

ExactSum Control::norm() const {
  std::array<std::int64_t, ExactSum::kLimbs> limbs;
  std::copy_n(words_.begin(), limbs.size(), limbs.begin());
  return ExactSum::from_limbs(limbs);
}

std::int64_t Control::tokens() const { return words_[kTokens]; }
bool Control::stop() const { return words_[kStops] > 0; }
bool Control::meet() const { return words_[kMeets] > 0; }

std::vector<Control::SlotFault> Control::slot_faults() const {
  std::vector<SlotFault> all;
  for (std::size_t slot = 0; slot < slots_; ++slot)
    if (const std::int64_t word = words_[kFirstSlot + slot]; word != 0)
      all.push_back(read_slot(static_cast<std::uint64_t>(word), static_cast<int>(slot)));
  return all;
}

int Control::used_by(std::size_t parameter) const {
  TUTTI_CHECK(parameter < parameters_);
  const auto word =
      static_cast<std::uint64_t>(words_[first_count() + parameter / fields_per_word_]);
  const auto shift = static_cast<int>(parameter % fields_per_word_) * field_bits_;
  return static_cast<int>(bits_of(word, shift, field_bits_));
}

}  // namespace tutti::train
