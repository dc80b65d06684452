#include "tool/data/tokenizer.hpp"

#include <algorithm>

namespace tutti::tool {

namespace {

class Bytes final : public Tokenizer {
 public:
  Status encode(std::string_view text, const Take& take) override {
    constexpr std::size_t kAtOnce = 1 << 16;
    std::vector<std::int32_t> tokens;
    for (; !text.empty(); text.remove_prefix(std::min(kAtOnce, text.size()))) {
      tokens.clear();
      for (const char letter : text.substr(0, kAtOnce))
        tokens.push_back(static_cast<unsigned char>(letter));
      if (Status status = take(tokens); !status.ok()) return status;
    }
    return {};
  }
  std::int64_t vocabulary() const override { return 257; }
  std::int64_t end_of_document() const override { return 256; }
  std::int64_t find(const std::string& word) const override {
    return word.size() == 1 ? static_cast<unsigned char>(word[0]) : -1;
  }
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& name) {
  if (name == "bytes") return std::unique_ptr<Tokenizer>(std::make_unique<Bytes>());
  if (name.ends_with(".model")) return open_sentence_pieces(name);
  if (name.ends_with(".json")) return open_byte_level_bpe(name);
  return Status(Code::invalid_argument,
                "--tokenizer '" + name +
                    "' is neither bytes, nor a SentencePiece FILE.model, nor a tokenizer.json");
}

}  // namespace tutti::tool
