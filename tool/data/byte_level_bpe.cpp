// Byte-level BPE, as tokenizer.json of GPT-2, Llama 3 and their like have it: a pattern cuts text into words, each byte
// of a word is written as a printable letter, and neighbours merge, the earliest merge of the list first.
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "core/json.hpp"
#include "tool/data/tokenizer.hpp"
#include "tool/data/word_splitter.hpp"

namespace tutti::tool {

namespace {

constexpr std::size_t kMostTokenizerBytes = std::size_t{256} << 20;
constexpr std::size_t kMostRemembered = 1 << 20;  // words
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Latin-1's printable bytes stand for themselves, the others for letters from U+0100 on.
std::array<std::string, 256> letters_of_bytes() {
  std::array<std::string, 256> letters;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const unsigned code = printable ? byte : next++;
    if (code < 0x80)
      letters[byte] = static_cast<char>(code);
    else
      letters[byte] = {static_cast<char>(0xc0 | code >> 6),
                       static_cast<char>(0x80 | (code & 0x3f))};
  }
  return letters;
}

using Token = std::int32_t;

struct Merge {
  std::uint32_t rank = std::numeric_limits<std::uint32_t>::max();
  Token into = -1;
};

std::uint64_t pair_of(Token left, Token right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

class ByteLevelBpe final : public Tokenizer {
 public:
  // What of the file is not known here, by name.
  Status read(const Json& file) {
    if (!file["normalizer"].is_null()) return unknown("normalizer", file["normalizer"]);
    const Json& model = file["model"];
    if (model["type"].string() != "BPE") return unknown("model", model);
    for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& value = model[field];
          !value.is_null() && value.string().size() + (value.number() != 0) > 0)
        return {Code::invalid_argument,
                fmt::format("its model has {} {}, which is not known here", field, value.dump())};
    if (model["byte_fallback"].boolean())
      return {Code::invalid_argument,
              "its model has byte_fallback: it is not byte-level (take the .model file)"};
    ignores_merges_ = model["ignore_merges"].boolean();
    if (Status status = read_words(file["pre_tokenizer"]); !status.ok()) return status;
    if (Status status = read_vocabulary(model["vocab"]); !status.ok()) return status;
    if (Status status = read_merges(model["merges"]); !status.ok()) return status;
    return read_added(file["added_tokens"]);
  }

  Status encode(std::string_view text, const Take& take) override {
    constexpr std::size_t kAtOnce = 1 << 16;
    std::string spaced;
    if (adds_space_ && !text.empty() && text[0] != ' ') text = spaced = " " + std::string(text);
    std::vector<Token> tokens;
    const Status status = words_->split(text, [&](std::string_view word) -> Status {
      append(word, tokens);
      if (tokens.size() < kAtOnce) return {};
      Status taken = take(tokens);
      tokens.clear();
      return taken;
    });
    return status.ok() ? take(tokens) : status;
  }
  std::int64_t vocabulary() const override { return size_; }
  std::int64_t end_of_document() const override { return end_; }
  std::int64_t find(const std::string& word) const override {
    const auto found = vocabulary_.find(word);
    return found == vocabulary_.end() ? -1 : found->second;
  }

 private:
  static Status unknown(const char* what, const Json& value) {
    return {Code::invalid_argument,
            fmt::format("its {} is of the kind '{}', which is not known here", what,
                        value["type"].string())};
  }

  // ByteLevel, or a sequence of one Split by a pattern and ByteLevel.
  Status read_words(const Json& given) {
    std::optional<std::string> pattern;
    const bool is_sequence = given["type"].string() == "Sequence";
    const Json one = Json::array({given});
    const Json& parts = is_sequence ? given["pretokenizers"] : one;
    bool byte_level = false;
    for (const Json& part : parts.items()) {
      const std::string& type = part["type"].string();
      if (type == "Split" && !pattern && !byte_level && part["behavior"].string() == "Isolated" &&
          !part["invert"].boolean() && part["pattern"].find("Regex") != nullptr) {
        pattern = part["pattern"]["Regex"].string();
      } else if (type == "ByteLevel" && !byte_level) {
        byte_level = true;
        adds_space_ = part["add_prefix_space"].boolean() && !pattern;
        const Json* regex = part.find("use_regex");
        if (regex == nullptr || regex->boolean()) {
          if (pattern)
            return {Code::invalid_argument, "its pre_tokenizer cuts text by two patterns"};
          pattern = kGpt2Words;
        }
      } else {
        return unknown("pre_tokenizer", part);
      }
    }
    if (!byte_level) return {Code::invalid_argument, "its pre_tokenizer is not byte-level"};
    auto words = WordSplitter::create(pattern.value_or(R"([\s\S]+)"));
    if (!words.ok()) return words.status();
    words_.emplace(*std::move(words));
    return {};
  }

  Status read_vocabulary(const Json& given) {
    for (const auto& [word, number] : given.fields())
      if (Status status = add(word, number); !status.ok()) return status;
    const auto letters = letters_of_bytes();
    for (std::size_t byte = 0; byte < letters.size(); ++byte) {
      const auto found = vocabulary_.find(letters[byte]);
      if (found == vocabulary_.end())
        return {Code::invalid_argument,
                fmt::format("its vocabulary has no token for byte {}: it is not byte-level", byte)};
      tokens_of_bytes_[byte] = found->second;
      letters_[byte] = letters[byte];
    }
    return {};
  }

  Status add(const std::string& word, const Json& number) {
    const auto token = number.whole();
    if (!token || *token < 0 || *token >= 1 << 30)
      return {Code::invalid_argument,
              fmt::format("its token '{}' has the number {}", word, number.dump())};
    vocabulary_[word] = static_cast<Token>(*token);
    size_ = std::max(size_, *token + 1);
    return {};
  }

  // "a b", or ["a", "b"].
  Status read_merges(const Json& given) {
    std::uint32_t rank = 0;
    for (const Json& merge : given.items()) {
      std::string left = merge[std::size_t{0}].string(), right = merge[std::size_t{1}].string();
      if (merge.kind() == Json::Kind::string) {
        const std::string& both = merge.string();
        const std::size_t space = both.find(' ');
        left = both.substr(0, space);
        right = space == both.npos ? "" : both.substr(space + 1);
      }
      const std::int64_t a = find(left), b = find(right), into = find(left + right);
      if (a < 0 || b < 0 || into < 0)
        return {
            Code::invalid_argument,
            fmt::format("its merge {} is of tokens that are not in its vocabulary", merge.dump())};
      merges_[pair_of(static_cast<Token>(a), static_cast<Token>(b))] = {rank++,
                                                                        static_cast<Token>(into)};
    }
    return {};
  }

  Status read_added(const Json& given) {
    for (const Json& token : given.items()) {
      const std::string& word = token["content"].string();
      if (!token["special"].boolean())
        return {
            Code::invalid_argument,
            fmt::format("its added token '{}' is no special one, which is not known here", word)};
      if (Status status = add(word, token["id"]); !status.ok()) return status;
      for (const char* end : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
        if (word == end && end_ < 0) end_ = find(word);
    }
    return {};
  }

  void append(std::string_view word, std::vector<Token>& tokens) {
    const auto known = remembered_.find(std::string(word));
    if (known != remembered_.end()) {
      tokens.insert(tokens.end(), known->second.begin(), known->second.end());
      return;
    }
    const std::vector<Token> made = merged(word);
    tokens.insert(tokens.end(), made.begin(), made.end());
    if (remembered_.size() < kMostRemembered && word.size() <= 64) remembered_.emplace(word, made);
  }

  std::vector<Token> merged(std::string_view word) const {
    Chain chain;
    std::string spelt;
    for (const char letter : word) {
      const auto byte = static_cast<unsigned char>(letter);
      chain.push_back({tokens_of_bytes_[byte], chain.size(), chain.size() + 2});
      spelt += letters_[byte];
    }
    if (ignores_merges_)
      if (const std::int64_t whole = find(spelt); whole >= 0) return {static_cast<Token>(whole)};
    merge(chain);
    std::vector<Token> tokens;
    for (std::size_t at = 0; at < chain.size(); at = chain[at].next - 1)
      tokens.push_back(chain[at].token);
    return tokens;
  }

  // The tokens of a word. Links count from 1: 0 lies before the first, size() + 1 behind the last.
  struct Link {
    Token token;
    std::size_t previous, next;
  };
  using Chain = std::vector<Link>;

  struct Candidate {
    std::uint32_t rank;
    std::size_t left;
    std::uint64_t pair;  // as it was found: what has merged since is none any more
    Token into;
    bool operator<(const Candidate& other) const {
      return std::tie(other.rank, other.left) <
             std::tie(rank, left);  // the queue gives the largest first
    }
  };

  // The earliest merge of the list first, from left to right.
  void merge(Chain& chain) const {
    std::priority_queue<Candidate> queue;
    const auto offer = [&](std::size_t left) {
      if (left >= chain.size() || chain[left].next > chain.size()) return;
      const auto found =
          merges_.find(pair_of(chain[left].token, chain[chain[left].next - 1].token));
      if (found != merges_.end())
        queue.push({found->second.rank, left, found->first, found->second.into});
    };
    for (std::size_t left = 0; left < chain.size(); ++left) offer(left);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Link& left = chain[best.left];
      if (left.token < 0 || left.next > chain.size()) continue;
      Link& right = chain[left.next - 1];
      if (pair_of(left.token, right.token) != best.pair) continue;
      left.token = best.into;
      left.next = right.next;
      right.token = -1;
      if (right.next <= chain.size()) chain[right.next - 1].previous = best.left + 1;
      if (left.previous > 0) offer(left.previous - 1);
      offer(best.left);
    }
  }

  std::optional<WordSplitter> words_;
  bool adds_space_ = false;
  bool ignores_merges_ = false;
  std::unordered_map<std::string, Token> vocabulary_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::array<Token, 256> tokens_of_bytes_{};
  std::array<std::string, 256> letters_;
  std::unordered_map<std::string, std::vector<Token>> remembered_;
  std::int64_t size_ = 0, end_ = -1;
};

Result<std::string> read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char chunk[65536];
  while (file.read(chunk, sizeof chunk) || file.gcount() > 0) {
    text.append(chunk, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMostTokenizerBytes)
      return Status(Code::io, fmt::format("--tokenizer {} is larger than {} MiB", path,
                                          kMostTokenizerBytes >> 20));
  }
  if (!file.is_open() || file.bad())
    return Status(Code::io, "--tokenizer " + path + " cannot be read");
  return text;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> open_byte_level_bpe(const std::string& path) {
  auto text = read_whole(path);
  if (!text.ok()) return text.status();
  auto file = Json::parse(*text);
  if (!file.ok()) return file.status().annotate("--tokenizer " + path);
  auto tokenizer = std::make_unique<ByteLevelBpe>();
  if (Status status = tokenizer->read(*file); !status.ok())
    return status.annotate("--tokenizer " + path);
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace tutti::tool
