#include "tool/data/word_splitter.hpp"

#ifdef TUTTI_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

#include <utility>

namespace tutti::tool {

#ifdef TUTTI_HAVE_PCRE2
namespace {

std::string words_of(int error) {
  PCRE2_UCHAR words[256];
  pcre2_get_error_message(error, words, sizeof words);
  return reinterpret_cast<const char*>(words);
}

}  // namespace

struct WordSplitter::State {
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, pcre2_code_free};
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match{nullptr,
                                                                            pcre2_match_data_free};
};

Result<WordSplitter> WordSplitter::create(const std::string& pattern) {
  int error = 0;
  std::size_t at = 0;
  auto state = std::make_unique<State>();
  state->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at,
                                  nullptr));
  if (!state->code)
    return Status(Code::invalid_argument, "pattern '" + pattern + "' cannot be read at " +
                                              std::to_string(at) + ": " + words_of(error));
  pcre2_jit_compile(state->code.get(), PCRE2_JIT_COMPLETE);  // where it cannot, matching is slower
  state->match.reset(pcre2_match_data_create_from_pattern(state->code.get(), nullptr));
  return WordSplitter(std::move(state));
}

Status WordSplitter::split(std::string_view text,
                           const std::function<Status(std::string_view)>& take) const {
  std::size_t done = 0, from = 0;
  while (from < text.size()) {
    const int found = pcre2_match(state_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), from, PCRE2_NOTEMPTY, state_->match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return {Code::corrupt, "text cannot be cut into words: " + words_of(found)};
    const std::size_t* where = pcre2_get_ovector_pointer(state_->match.get());
    if (where[0] > done)
      if (Status status = take(text.substr(done, where[0] - done)); !status.ok()) return status;
    if (Status status = take(text.substr(where[0], where[1] - where[0])); !status.ok())
      return status;
    done = from = where[1];
  }
  return done < text.size() ? take(text.substr(done)) : Status();
}
#else
struct WordSplitter::State {};

Result<WordSplitter> WordSplitter::create(const std::string&) {
  return Status(Code::unsupported,
                "this tutti was built without PCRE2, which cuts text into words");
}
Status WordSplitter::split(std::string_view, const std::function<Status(std::string_view)>&) const {
  return {};
}
#endif

WordSplitter::WordSplitter(std::unique_ptr<State> state) : state_(std::move(state)) {}
WordSplitter::WordSplitter(WordSplitter&&) noexcept = default;
WordSplitter& WordSplitter::operator=(WordSplitter&&) noexcept = default;
WordSplitter::~WordSplitter() = default;

}  // namespace tutti::tool
