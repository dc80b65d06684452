// The reader of the text form: one line at a time, one word at a time. What it does not understand
// it names with its line number; nothing is guessed.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "schedule/text.hpp"

namespace tutti::schedule {
namespace {

// Bounds on what a text may ask for, so that a damaged file cannot eat the memory.
constexpr std::uint64_t kMaxRanks = 1 << 20;
constexpr std::uint64_t kMaxChunks = 1 << 26;

// The words of one line, taken from the left.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) { skip(); }
  bool done() const { return rest_.empty(); }
  std::string_view peek() const { return rest_.substr(0, rest_.find(' ')); }
  std::string_view next() {
    const std::string_view word = peek();
    rest_.remove_prefix(word.size());
    skip();
    return word;
  }
  // Takes the next word if it is this one.
  bool take(std::string_view word) {
    if (done() || peek() != word) return false;
    next();
    return true;
  }

 private:
  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  std::string_view rest_;
};

std::optional<std::uint64_t> number(std::string_view word, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value > most) return {};
  return value;
}

template <class T>
bool read(std::optional<std::uint64_t> value, T& into) {
  if (value) into = static_cast<T>(*value);
  return value.has_value();
}

bool read_space(std::string_view word, Space& space) {
  for (Space candidate : {Space::input, Space::output, Space::scratch}) {
    if (word != to_string(candidate)) continue;
    space = candidate;
    return true;
  }
  return false;
}

// space[7], space[2..5], or space[3+0] for none.
bool read_region(std::string_view word, Region& region) {
  const auto open = word.find('[');
  if (open == word.npos || word.back() != ']') return false;
  if (!read_space(word.substr(0, open), region.space)) return false;
  const std::string_view inside = word.substr(open + 1, word.size() - open - 2);
  if (const auto dots = inside.find(".."); dots != inside.npos) {
    std::uint32_t last = 0;
    if (!read(number(inside.substr(0, dots), kMaxChunks), region.first)) return false;
    if (!read(number(inside.substr(dots + 2), kMaxChunks), last)) return false;
    if (last <= region.first) return false;
    region.count = last - region.first + 1;
    return true;
  }
  const bool none = inside.ends_with("+0");
  region.count = none ? 0 : 1;
  return read(number(none ? inside.substr(0, inside.size() - 2) : inside, kMaxChunks),
              region.first);
}

bool read_source(Words& words, Source& source) {
  source.raw = words.take("raw");
  const std::string_view word = words.next();
  const auto at = word.find('@');
  if (at == word.npos) return read_region(word, source.region);
  return read(number(word.substr(0, at), kMaxRanks), source.peer) &&
         read(number(word.substr(at + 1), ~0u), source.step);
}

bool read_reduce(Words& words, Op& op) {
  if (!read_region(words.next(), op.dst) || !words.take("=")) return false;
  if (words.done()) return true;
  do {
    Source source;
    if (!read_source(words, source)) return false;
    op.sources.push_back(source);
  } while (words.take("+"));
  op.balanced = words.take("balanced");
  op.finish = words.take("finish");
  return true;
}

bool read_peer(Words& words, std::string_view arrow, Op& op) {
  return words.take(arrow) && read(number(words.next(), kMaxRanks), op.peer);
}

bool read_operands(Words& words, Op& op) {
  switch (op.kind) {
    case OpKind::send: return read_region(words.next(), op.src) && read_peer(words, "->", op);
    case OpKind::recv: return read_region(words.next(), op.dst) && read_peer(words, "<-", op);
    case OpKind::copy:
      return read_region(words.next(), op.dst) && words.take("=") &&
             read_region(words.next(), op.src);
    case OpKind::reduce: return read_reduce(words, op);
  }
  return false;
}

bool read_kind(std::string_view word, OpKind& kind) {
#define TUTTI_OP(name)   \
  if (word == #name) {   \
    kind = OpKind::name; \
    return true;         \
  }
#include "schedule/ops.def"
#undef TUTTI_OP
  return false;
}

bool read_op(Words& words, Program& program) {
  Op op;
  const std::string_view step = words.next();
  if (!step.starts_with('@') || !read(number(step.substr(1), ~0u), op.step)) return false;
  if (!read_kind(words.next(), op.kind) || !read_operands(words, op)) return false;
  program.ops.push_back(std::move(op));
  return words.done();
}

bool read_scratch(Words& words, Program& program) {
  while (!words.done()) {
    if (!read(number(words.next(), ~0ull), program.scratch.emplace_back())) return false;
  }
  return true;
}

bool read_header(Words& words, Program& program) {
  const auto collective = parse_collective(words.next());
  const auto algorithm = parse_algorithm(words.next());
  if (!collective || !algorithm) return false;
  program.collective = *collective;
  program.algorithm = *algorithm;
  const auto field = [&](std::string_view word, auto& into, std::uint64_t most) {
    return words.take(word) && read(number(words.next(), most), into);
  };
  if (!field("rank", program.rank, kMaxRanks) || !field("of", program.size, kMaxRanks) ||
      !field("root", program.root, kMaxRanks) || !field("cut", program.cut, kMaxChunks)) {
    return false;
  }
  program.in_place = words.take("in_place");
  return words.done();
}

bool read_line(std::string_view line, std::vector<Program>& programs) {
  Words words(line);
  if (words.done() || words.peek().starts_with('#')) return true;
  if (words.take("program")) return read_header(words, programs.emplace_back());
  if (programs.empty()) return false;
  if (words.take("scratch")) return read_scratch(words, programs.back());
  return read_op(words, programs.back());
}

}  // namespace

Result<std::vector<Program>> parse(std::string_view text) {
  std::vector<Program> programs;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!read_line(line, programs)) {
      return Status(Code::invalid_argument,
                    fmt::format("line {} is no part of a schedule: '{}' (docs/formats/schedule.md)",
                                line_number, line));
    }
  }
  return programs;
}

}  // namespace tutti::schedule
