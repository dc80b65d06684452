// tutti data - tokens to train on, from text.
#include "tool/command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "core/json.hpp"
#include "tool/bench/progress.hpp"
#include "tool/data/documents.hpp"
#include "tool/data/indexed_writer.hpp"
#include "tool/data/tokenizer.hpp"
#include "tool/interruption.hpp"

namespace tutti::tool {

namespace {

struct BuildOptions {
  std::vector<std::string> files;
  std::string tokenizer = "bytes", prefix, end, field = "text";
  bool no_end = false, json = false;
};

// What ends a document; -1: nothing does.
Result<std::int64_t> end_of_document(const Tokenizer& tokenizer, const BuildOptions& options) {
  if (options.no_end) return std::int64_t{-1};
  if (options.end.empty() && tokenizer.end_of_document() >= 0) return tokenizer.end_of_document();
  if (options.end.empty())
    return Status(Code::invalid_argument,
                  "--tokenizer " + options.tokenizer +
                      " does not say which token ends a document; name it by --eod, or say "
                      "--no-eod");
  const std::int64_t token = tokenizer.find(options.end);
  if (token < 0)
    return Status(Code::invalid_argument,
                  "--eod '" + options.end + "' is no token of --tokenizer " + options.tokenizer);
  return token;
}

Status tokenize(Documents& documents, Tokenizer& tokenizer, std::int64_t end,
                IndexedWriter& writer) {
  constexpr std::uint64_t kSteps = 1000;
  BenchProgress progress(::isatty(STDERR_FILENO) ? "/dev/tty" : "", kSteps);
  const auto add = [&](std::span<const std::int32_t> tokens) {
    return interruption() == 0 ? writer.add(tokens) : Status(Code::aborted, "interrupted");
  };
  const std::int32_t ending[] = {static_cast<std::int32_t>(end)};
  while (interruption() == 0) {
    const std::uint64_t all = std::max<std::uint64_t>(documents.bytes(), 1);
    progress.show(std::min(documents.read() * kSteps / all, kSteps),
                  fmt::format("{} documents", writer.documents()));
    auto text = documents.next();
    if (!text.ok()) return text.status();
    if (!text->has_value()) return {};
    Status status = tokenizer.encode(**text, add);
    if (status.ok() && end >= 0) status = add(ending);
    if (status.ok()) status = writer.end_document();
    if (!status.ok()) return interruption() == 0 ? status : Status();
  }
  return {};
}

// Its name without folders: the file may lie elsewhere tomorrow.
std::string about(const Tokenizer& tokenizer, const std::string& name, std::int64_t end) {
  return fmt::format("vocab_size {}\nend_of_document {}\ntokenizer {}\n", tokenizer.vocabulary(),
                     end, name.substr(name.rfind('/') + 1));
}

void tell(const BuildOptions& options, const Documents& documents, const IndexedWriter& writer,
          const Tokenizer& tokenizer, double seconds) {
  const auto read = static_cast<double>(documents.bytes()),
             made = static_cast<double>(writer.tokens());
  if (options.json) {
    fmt::print("{}\n", Json{{"prefix", options.prefix},
                            {"documents", writer.documents()},
                            {"tokens", writer.tokens()},
                            {"vocab_size", tokenizer.vocabulary()},
                            {"bytes_read", documents.bytes()},
                            {"bytes_written", writer.bytes()},
                            {"seconds", seconds}}
                           .dump());
    return;
  }
  fmt::print(
      "{}.bin, .idx: {} documents, {} tokens of {}, {:.2f} bytes of text each, {:.1f} MB/s\n",
      options.prefix, writer.documents(), writer.tokens(), tokenizer.vocabulary(),
      made > 0 ? read / made : 0, read / 1e6 / std::max(seconds, 1e-9));
}

Status build(const BuildOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  auto tokenizer = open_tokenizer(options.tokenizer);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto end = end_of_document(**tokenizer, options);
  if (!end.ok()) return end.status();
  auto documents = Documents::open(options.files, options.field);
  if (!documents.ok()) return documents.status();
  auto writer = IndexedWriter::open(options.prefix, (*tokenizer)->vocabulary());
  if (!writer.ok()) return writer.status();
  if (Status status = tokenize(*documents, **tokenizer, *end, *writer); !status.ok()) return status;
  if (interruption() != 0) return {};
  if (writer->documents() == 0)
    return {Code::invalid_argument,
            options.files[0] + (options.files.size() > 1 ? " and the others hold" : " holds") +
                " no documents"};
  if (Status status = writer->finish(about(**tokenizer, options.tokenizer, *end)); !status.ok())
    return status;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  tell(options, *documents, *writer, **tokenizer, spent.count());
  return {};
}

int run_build(const BuildOptions& options) {
  catch_interruptions();
  if (Status status = build(options); !status.ok()) {
    const bool given = status.code() == Code::io || status.code() == Code::corrupt ||
                       status.code() == Code::unsupported;
    return given ? complain("data build", status.message(), kBadInput)
                 : complain("data build", status);
  }
  if (interruption() == 0) return finish_output(kDone);
  fmt::print(stderr, "tutti data build: interrupted; {}.bin was not written\n", options.prefix);
  return 128 + interruption();
}

}  // namespace

Command make_data(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("data", "make tokens to train on from text");
  parser->require_subcommand(1);
  parser->footer("Example:\n  tutti data build --tokenizer tokenizer.json -o books books.jsonl\n");
  CLI::App* built =
      parser->add_subcommand("build", "tokenize text files into PREFIX.bin and PREFIX.idx");
  auto options = std::make_shared<BuildOptions>();
  built
      ->add_option("files", options->files,
                   "text files, each a document; of FILE.jsonl each line is one")
      ->required();
  built
      ->add_option("-o,--output-prefix", options->prefix,
                   "PREFIX of what is written: .bin, .idx and .tokens")
      ->required();
  built->add_option(
      "--tokenizer", options->tokenizer,
      "bytes; a SentencePiece FILE.model; or a tokenizer.json of Hugging Face (byte-level BPE)");
  built->add_option("--json-key", options->field, "the field of a line's object that has the text");
  built->add_option("--eod", options->end,
                    "the token that ends a document, where the tokenizer does not say it");
  built->add_flag("--no-eod", options->no_end, "documents without an end");
  built->add_flag("--json", options->json, "what was made, as JSON");
  built->footer(
      "Example: a set of tokens, and training on it\n"
      "  tutti data build --tokenizer tokenizer.json -o books books.jsonl\n"
      "  tutti run -n 4 pretrain_gpt --data-path books --preset llama3-8b --num-layers 4 --hidden-size 256 \\\n"
      "      --num-attention-heads 8 --num-query-groups 4 --ffn-hidden-size 704 --seq-length 256\n");
  return {parser, [built, options] { return built->parsed() ? run_build(*options) : kBadInput; }};
}

}  // namespace tutti::tool
