#include "train/holdings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "train/agreement.hpp"
#include "train/take_number.hpp"

namespace tutti::train {
namespace {

// ---- as text: numbers by blanks, names behind their length

std::string list_text(const std::vector<std::int64_t>& numbers) {
  return fmt::format("{}{}{} ", numbers.size(), numbers.empty() ? "" : " ",
                     fmt::join(numbers, " "));
}

std::string name_text(const std::string& name) { return fmt::format("{}:{} ", name.size(), name); }

std::string text_of(const Parameter& parameter, const std::vector<const StatePiece*>& pieces) {
  const TensorBox box = box_of(parameter);
  std::string text = name_text(parameter.name);
  text += fmt::format("{} {} {} ", static_cast<int>(parameter.value.dtype),
                      int{parameter.place.counted}, parameter.aliases.size());
  for (const std::string& alias : parameter.aliases) text += name_text(alias);
  text += list_text(whole_shape_of(parameter));
  for (const auto* numbers : {&box.whole, &box.first, &box.extent}) text += list_text(*numbers);
  text += fmt::format("{} ", pieces.size());
  for (const StatePiece* piece : pieces)
    text += fmt::format("{} {} ", piece->first, piece->values.count);
  return text;
}

// The lowest rank of this rank's data group, among everyone.
Result<int> share_speaker(DataParallel& model) {
  int speaker = model.everyone().rank();
  Status status = model.group().all_reduce(Buffer::of(&speaker, 1), ReduceOp::min);
  if (!status.ok()) return status;
  return speaker;
}

// A rank lists what it has a piece of, and the speaker all of its data group: also what does not count
// here, without holdings, because that must count somewhere.
std::string text_of(DataParallel& model, int speaker) {
  const std::vector<Parameter>& parameters = model.parameters();
  const std::vector<StatePiece> pieces = model.weights();
  std::vector<std::vector<const StatePiece*>> by_parameter(parameters.size());
  for (const StatePiece& piece : pieces)
    if (piece.values.count > 0 && parameters[piece.parameter].place.counted)
      by_parameter[piece.parameter].push_back(&piece);
  std::string text = fmt::format("{} ", speaker);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!by_parameter[i].empty() || model.everyone().rank() == speaker)
      text += text_of(parameters[i], by_parameter[i]);
  return text;
}

// Reads what the above wrote; the first thing that is not there makes all further ones fail.
class HoldingReader {
 public:
  explicit HoldingReader(std::string_view text) : text_(text) {}
  bool at_end() const { return text_.empty() || failed_; }
  bool failed() const { return failed_; }

  template <class Number>
  Number number() {
    Number value{};
    if (!take_number(text_, "", value) || text_.empty()) return failed_ = true, Number{};
    text_.remove_prefix(1);  // a blank, or the colon of a name
    return value;
  }
  std::vector<std::int64_t> list() {
    std::vector<std::int64_t> numbers;
    for (auto left = number<std::size_t>(); left > 0 && !failed_; --left)
      numbers.push_back(number<std::int64_t>());
    return numbers;
  }
  std::string name() {
    const auto length = number<std::size_t>();
    if (failed_ || length >= text_.size()) return failed_ = true, std::string();
    std::string value(text_.substr(0, length));
    text_.remove_prefix(length + 1);
    return value;
  }

 private:
  std::string_view text_;
  bool failed_ = false;
};

// One tensor, as one rank describes it.
HeldTensor read_tensor(HoldingReader& reader, int speaker, std::vector<Holding>& holdings) {
  HeldTensor tensor;
  tensor.name = reader.name();
  tensor.dtype = static_cast<Dtype>(reader.number<int>());
  if (reader.number<int>() != 0) tensor.owners = {speaker};
  for (auto left = reader.number<std::size_t>(); left > 0 && !reader.failed(); --left)
    tensor.aliases.push_back(reader.name());
  tensor.shape = reader.list();
  Holding holding;
  holding.box.whole = reader.list();
  holding.box.first = reader.list();
  holding.box.extent = reader.list();
  for (auto left = reader.number<std::size_t>(); left > 0 && !reader.failed(); --left) {
    holding.first = reader.number<std::size_t>();
    holding.count = reader.number<std::size_t>();
    holdings.push_back(holding);
  }
  return tensor;
}

// ---- whether they make up a model

Status invalid(std::string text) { return {Code::invalid_argument, std::move(text)}; }

Status add_tensor(HeldTensor&& described, std::vector<Holding>&& holdings, std::size_t rank,
                  std::size_t ranks, std::map<std::string, HeldTensor>& tensors) {
  const auto [at, fresh] = tensors.try_emplace(described.name);
  HeldTensor& tensor = at->second;
  if (fresh) {
    tensor = std::move(described);
    tensor.ranks.resize(ranks);
  } else if (tensor.dtype != described.dtype || tensor.shape != described.shape) {
    return invalid(
        fmt::format("tensor {} of the whole model is {} {} by one rank, and {} {} by "
                    "rank {}",
                    tensor.name, to_string(tensor.dtype), to_text(tensor.shape),
                    to_string(described.dtype), to_text(described.shape), rank));
  }
  for (std::string& alias : described.aliases)
    if (!fresh &&
        std::find(tensor.aliases.begin(), tensor.aliases.end(), alias) == tensor.aliases.end())
      tensor.aliases.push_back(std::move(alias));
  tensor.ranks[rank] = std::move(holdings);
  return {};
}

// Of a rank's holdings in one box there may be several; boxes are disjoint, and so are holdings of one box.
Status check_covered(const HeldTensor& tensor) {
  std::size_t held = 0;
  std::vector<const TensorBox*> boxes;
  for (const auto& holdings : tensor.ranks)
    for (const Holding& one : holdings) {
      held += one.count;
      const auto same = [&](const TensorBox* box) { return *box == one.box; };
      if (std::none_of(boxes.begin(), boxes.end(), same)) boxes.push_back(&one.box);
    }
  for (std::size_t a = 0; a < boxes.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (have_common_elements(*boxes[a], *boxes[b]))
        return invalid(
            fmt::format("two data groups hold the same elements of tensor {}: only one of "
                        "them may count (ParameterPlace::counted)",
                        tensor.name));
  if (held == tensor.count()) return {};
  return invalid(
      fmt::format("ranks hold {} elements of tensor {}, which has {}: boxes of it are "
                  "missing, or count twice (ParameterPlace)",
                  held, tensor.name, tensor.count()));
}

}  // namespace

bool HeldTensor::is_cut() const {
  return std::any_of(ranks.begin(), ranks.end(), [&](const std::vector<Holding>& holdings) {
    return std::any_of(holdings.begin(), holdings.end(),
                       [&](const Holding& one) { return count_of(one.box.extent) != count(); });
  });
}

Result<std::vector<HeldTensor>> exchange_holdings(DataParallel& model) {
  const auto speaker = share_speaker(model);
  if (!speaker.ok()) return speaker.status();
  const auto texts = exchange_texts(model.everyone(), text_of(model, *speaker));
  if (!texts.ok()) return texts.status();
  std::map<std::string, HeldTensor> tensors;
  std::map<int, std::vector<int>> data_groups;  // by speaker
  for (std::size_t rank = 0; rank < texts->size(); ++rank) {
    HoldingReader reader((*texts)[rank]);
    const int said = reader.number<int>();
    data_groups[said].push_back(static_cast<int>(rank));
    while (!reader.at_end()) {
      std::vector<Holding> holdings;
      HeldTensor tensor = read_tensor(reader, said, holdings);
      if (reader.failed()) return Status(Code::internal, "a list of holdings cannot be read");
      if (Status status =
              add_tensor(std::move(tensor), std::move(holdings), rank, texts->size(), tensors);
          !status.ok())
        return status;
    }
  }
  std::vector<HeldTensor> all;
  for (auto& [name, tensor] : tensors) {
    if (Status status = check_covered(tensor); !status.ok()) return status;
    std::vector<int> owners;
    for (const int said : tensor.owners)
      owners.insert(owners.end(), data_groups[said].begin(), data_groups[said].end());
    tensor.owners = std::move(owners);
    all.push_back(std::move(tensor));
  }
  return all;
}

Status collect(Group& group, const HeldTensor& tensor, ConstBuffer mine, int root, Buffer whole) {
  std::vector<std::size_t> counts;
  for (const auto& holdings : tensor.ranks) {
    counts.push_back(0);
    for (const Holding& one : holdings) counts.back() += one.count;
  }
  const std::size_t size = size_of(tensor.dtype);
  const bool is_root = group.rank() == root;
  std::vector<std::byte> all(is_root ? tensor.count() * size : 0);
  Buffer gathered{all.data(), is_root ? tensor.count() : 0, tensor.dtype};
  if (Status status = group.gather_v(mine, gathered, counts, root); !status.ok())
    return status.annotate(fmt::format("putting tensor {} together", tensor.name));
  if (!is_root) return {};
  const std::byte* from = all.data();
  auto* to = static_cast<std::byte*>(whole.data);
  for (const auto& holdings : tensor.ranks)
    for (const Holding& one : holdings) {
      for (const ElementRun& run : runs_of(one.box, one.first, one.count))
        std::memcpy(to + run.tensor * size, from + run.box * size, run.count * size);
      from += one.count * size;
    }
  return {};
}

Status collect(DataParallel& model, const HeldTensor& tensor, int root, Buffer whole,
               Status& unread) {
  std::vector<std::byte> mine;
  for (const StatePiece& piece : model.weights()) {
    const Parameter& parameter = model.parameters()[piece.parameter];
    if (parameter.name != tensor.name || !parameter.place.counted) continue;
    const std::size_t at = mine.size();
    mine.resize(at + piece.values.bytes());
    if (Status status = model.read(piece.values, mine.data() + at); !status.ok()) unread = status;
  }
  return collect(model.everyone(), tensor,
                 {mine.data(), mine.size() / size_of(tensor.dtype), tensor.dtype}, root, whole);
}

}  // namespace tutti::train
