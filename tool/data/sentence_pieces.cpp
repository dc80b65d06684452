#ifdef TUTTI_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

#include "tool/data/tokenizer.hpp"

namespace tutti::tool {

#ifdef TUTTI_HAVE_SENTENCEPIECE
namespace {

class SentencePieces final : public Tokenizer {
 public:
  Status load(const std::string& path) {
    const auto loaded = pieces_.Load(path);
    if (loaded.ok()) return {};
    return {Code::io, "--tokenizer " + path +
                          " cannot be read as a SentencePiece model: " + loaded.ToString()};
  }
  Status encode(std::string_view text, const Take& take) override {
    std::vector<int> made;
    const auto encoded = pieces_.Encode({text.data(), text.size()}, &made);
    if (!encoded.ok()) return {Code::corrupt, encoded.ToString()};
    return take(made);
  }
  std::int64_t vocabulary() const override { return pieces_.GetPieceSize(); }
  std::int64_t end_of_document() const override { return pieces_.eos_id(); }
  std::int64_t find(const std::string& word) const override {
    const int piece = pieces_.PieceToId(word);
    return pieces_.IdToPiece(piece) == word ? piece
                                            : -1;  // what is unknown has a number of its own
  }

 private:
  sentencepiece::SentencePieceProcessor pieces_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> open_sentence_pieces(const std::string& path) {
  auto pieces = std::make_unique<SentencePieces>();
  if (Status status = pieces->load(path); !status.ok()) return status;
  return std::unique_ptr<Tokenizer>(std::move(pieces));
}
#else
Result<std::unique_ptr<Tokenizer>> open_sentence_pieces(const std::string& path) {
  return Status(Code::unsupported,
                "--tokenizer " + path + ": this tutti was built without SentencePiece");
}
#endif

}  // namespace tutti::tool
