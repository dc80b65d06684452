#include "data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

namespace pretrain {

namespace {

using tutti::Code;
using tutti::Result;
using tutti::Status;

Status misfitting(std::string text) { return {Code::invalid_argument, std::move(text)}; }

std::optional<double> number_of(const std::string& word) {
  double number = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  if (read.ec != std::errc() || read.ptr != word.data() + word.size()) return std::nullopt;
  return number;
}

// "969,30,1": shares of training, validation and test; what is left out is 0.
Result<std::vector<double>> parse_split(const std::string& words) {
  std::vector<double> shares;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const auto share = number_of(words.substr(begin, end - begin));
    if (!share || !(*share >= 0) || !std::isfinite(*share) || shares.size() == 3)
      return misfitting(fmt::format(
          "--split '{}' is not of the form 969,30,1: shares of training, validation, test", words));
    shares.push_back(*share);
    begin = end + 1;
  }
  shares.resize(3);
  const double sum = shares[0] + shares[1] + shares[2];
  if (!(shares[0] > 0))
    return misfitting(fmt::format("--split '{}' leaves nothing for the training", words));
  for (double& share : shares) share /= sum;
  return shares;
}

std::uint64_t sequences_in(std::uint64_t tokens, std::uint64_t length) {
  return tokens == 0 ? 0 : (tokens - 1) / length;  // the last token is a label only
}

class InMemory final : public Shuffle {
 public:
  explicit InMemory(std::uint64_t count) : order_(count) {}

  std::uint64_t at(std::uint64_t key, std::uint64_t index) override {
    if (!made_ || key != key_) {
      std::iota(order_.begin(), order_.end(), 0U);
      for (std::size_t i = order_.size() - 1; i > 0; --i)
        std::swap(order_[i], order_[mix(key, i) % (i + 1)]);
      made_ = true;
      key_ = key;
    }
    return order_[index];
  }

 private:
  std::vector<std::uint32_t> order_;
  bool made_ = false;
  std::uint64_t key_ = 0;
};

// Four rounds over two halves permute the numbers of 2h bits; what is too large goes through them again.
class ByNumber final : public Shuffle {
 public:
  explicit ByNumber(std::uint64_t count) : count_(count) {
    while (half_ < 32 && (std::uint64_t{1} << (2 * half_)) < count) ++half_;
  }

  std::uint64_t at(std::uint64_t key, std::uint64_t index) override {
    do index = permuted(key, index);
    while (index >= count_);
    return index;
  }

 private:
  std::uint64_t permuted(std::uint64_t key, std::uint64_t number) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = number >> half_, right = number & mask;
    for (std::uint64_t round = 0; round < 4; ++round)
      left = std::exchange(right, left ^ (mix(mix(key, round), right) & mask));
    return left << half_ | right;
  }

  std::uint64_t count_;
  unsigned half_ = 1;
};

}  // namespace

std::unique_ptr<Shuffle> shuffle_in_memory(std::uint64_t count) {
  return std::make_unique<InMemory>(count);
}
std::unique_ptr<Shuffle> shuffle_by_number(std::uint64_t count) {
  return std::make_unique<ByNumber>(count);
}

// The first set takes its share of all samples, evenly spread; those that are left are a blend of the others.
std::pair<std::size_t, std::uint64_t> place_in_blend(const std::vector<double>& weights,
                                                     std::uint64_t index) {
  double left = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t set = 0; set + 1 < weights.size(); ++set) {
    const double share = weights[set] / left;
    const auto before = static_cast<std::uint64_t>(static_cast<double>(index) * share);
    const auto after = static_cast<std::uint64_t>(static_cast<double>(index + 1) * share);
    if (after > before) return {set, before};
    index -= before;
    left -= weights[set];
  }
  return {weights.size() - 1, index};
}

Result<Data> Data::open(const Flags& flags) {
  Data data;
  data.length_ = static_cast<std::uint64_t>(flags.seq_length);
  data.seed_ = flags.seed;
  const bool indexed = is_indexed(flags.data_path.back());
  if (auto status = indexed ? data.add_indexed(flags) : data.add_bytes(flags); !status.ok())
    return status;
  if (auto status = data.find_vocabulary(flags); !status.ok()) return status;
  return data;
}

Status Data::add_bytes(const Flags& flags) {
  for (const std::string& path : flags.data_path)
    if (is_indexed(path))
      return misfitting("--data-path " + path + " is a set of tokens, and " +
                        flags.data_path.back() + " is not: they cannot be mixed");
  auto tokens = read_bytes(flags.data_path);
  if (!tokens.ok()) return tokens.status();
  Set set{flags.data_path[0], *tokens, {}, {}, nullptr};
  const std::uint64_t all = sequences_in((*tokens)->count(), length_);
  const std::uint64_t kept = std::max<std::uint64_t>(1, all / 20);
  if (all <= kept)
    return misfitting(
        fmt::format("--data-path {}{} too few bytes for two sequences of --seq-length {}", set.name,
                    flags.data_path.size() > 1 ? " … hold" : " holds", length_));
  set.training = {0, all - kept};
  set.validation = {(all - kept) * length_, kept};
  set.shuffle = shuffle_in_memory(set.training.sequences);
  identity_ = (*tokens)->identity();
  sets_.push_back(std::move(set));
  weights_ = {1};
  return {};
}

Status Data::add_indexed(const Flags& flags) {
  const auto split = parse_split(flags.split);
  if (!split.ok()) return split.status();
  const auto& words = flags.data_path;
  const bool weighted = words.size() > 1 && number_of(words[0]) && !is_indexed(words[0]);
  if (weighted && words.size() % 2 != 0)
    return misfitting("--data-path: weights and sets of tokens go in pairs, WEIGHT PREFIX");
  for (std::size_t i = 0; i < words.size(); i += weighted ? 2 : 1) {
    const auto weight = weighted ? number_of(words[i]) : std::optional(1.0);
    if (!weight || !(*weight > 0) || !std::isfinite(*weight))
      return misfitting(fmt::format("--data-path: '{}' is no weight above 0", words[i]));
    if (auto status = add_set(words[weighted ? i + 1 : i], *split); !status.ok()) return status;
    weights_.push_back(weighted ? *weight : static_cast<double>(sets_.back().training.sequences));
  }
  for (const double weight : weights_)
    identity_ = mix(identity_, static_cast<std::uint64_t>(weight / weights_[0] * 1e6));
  return {};
}

// Documents are split, not sequences: none is partly in both.
Status Data::add_set(const std::string& prefix, const std::vector<double>& split) {
  auto tokens = map_indexed(prefix);
  if (!tokens.ok()) return tokens.status();
  const auto documents = static_cast<double>((*tokens)->documents());
  const auto begin_of = [&](double share) {
    return (*tokens)->begin_of(static_cast<std::uint64_t>(std::llround(share * documents)));
  };
  const std::uint64_t first = begin_of(split[0]), second = begin_of(split[0] + split[1]);
  if (second < first || second > (*tokens)->count())
    return {Code::corrupt, "--data-path " + prefix + ".idx: its documents are not in order"};
  Set set{prefix,
          *tokens,
          {0, sequences_in(first, length_)},
          {first, sequences_in(second - first, length_)},
          nullptr};
  if (set.training.sequences == 0)
    return misfitting(
        fmt::format("--data-path {} has no training sequence of --seq-length {}", prefix, length_));
  set.shuffle = shuffle_by_number(set.training.sequences);
  identity_ = mix(identity_, (*tokens)->identity());
  sets_.push_back(std::move(set));
  return {};
}

Status Data::find_vocabulary(const Flags& flags) {
  const Set& first = sets_[0];
  for (const Set& set : sets_) {
    if (set.tokens->vocabulary() != first.tokens->vocabulary() ||
        set.tokens->end_of_document() != first.tokens->end_of_document())
      return misfitting(fmt::format("--data-path {} and {} were made with different tokenizers",
                                    first.name, set.name));
    if (flags.eval_interval > 0 && set.validation.sequences == 0)
      return misfitting(
          fmt::format("--data-path {} has no validation sequence of --seq-length {} (--split {})",
                      set.name, length_, flags.split));
  }
  const std::int64_t known = first.tokens->vocabulary();
  vocabulary_ = flags.vocab_size > 0 ? flags.vocab_size : known;
  if (vocabulary_ == 0)
    return misfitting(fmt::format(
        "--vocab-size is needed: {}.tokens, which would say it, is not there", first.name));
  if (vocabulary_ < known)
    return misfitting(fmt::format("--vocab-size {} is less than the {} that --data-path {} needs",
                                  vocabulary_, known, first.name));
  if (!flags.eod_mask_loss) return {};
  masked_ = flags.end_of_document >= 0 ? flags.end_of_document : first.tokens->end_of_document();
  if (masked_ < 0)
    return misfitting(fmt::format(
        "--eod-mask-loss needs --eod-token: {}.tokens, which would say it, is not there",
        first.name));
  return {};
}

std::int64_t Data::end_of_document() const {
  return sets_.empty() ? -1 : sets_[0].tokens->end_of_document();
}

std::uint64_t Data::bytes() const {
  std::uint64_t sum = 0;
  for (const Set& set : sets_) sum += set.tokens->bytes();
  return sum;
}

Status Data::append(TokenBatch& batch, const Set& set, std::uint64_t begin) const {
  std::vector<std::int64_t> row(length_ + 1);
  if (Status status = set.tokens->read(begin, row.size(), row.data()); !status.ok()) return status;
  const auto is_known = [&](std::int64_t token) { return token >= 0 && token < vocabulary_; };
  for (std::size_t i = 0; i < length_; ++i) {
    const bool counts = row[i] != masked_;
    if (!is_known(row[i]) || !is_known(row[i + 1]))
      return {Code::corrupt,
              fmt::format("--data-path {}: tokens {} and {} at {} are not both below the "
                          "vocabulary's size, {}",
                          set.name, row[i], row[i + 1], begin + i, vocabulary_)};
    batch.tokens.push_back(row[i]);
    batch.labels.push_back(row[i + 1]);
    batch.loss_mask.push_back(counts ? 1.0F : 0.0F);
    batch.counted += counts ? 1 : 0;
  }
  return {};
}

Result<TokenBatch> Data::training(std::uint64_t first, int sequences) {
  TokenBatch batch;
  for (int i = 0; i < sequences; ++i) {
    const auto [which, index] = place_in_blend(weights_, first + static_cast<std::uint64_t>(i));
    Set& set = sets_[which];
    const std::uint64_t count = set.training.sequences;
    const std::uint64_t place = set.shuffle->at(mix(seed_, index / count), index % count);
    if (Status status = append(batch, set, set.training.first + place * length_); !status.ok())
      return status;
  }
  return batch;
}

Result<TokenBatch> Data::validation(std::uint64_t first, int sequences) const {
  TokenBatch batch;
  for (int i = 0; i < sequences; ++i) {
    const auto [which, index] = place_in_blend(weights_, first + static_cast<std::uint64_t>(i));
    const Set& set = sets_[which];
    const std::uint64_t place = index % set.validation.sequences;
    if (Status status = append(batch, set, set.validation.first + place * length_); !status.ok())
      return status;
  }
  return batch;
}

}  // namespace pretrain
