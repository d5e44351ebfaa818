// Makes token files from texts. --help.

#include "tools/texts/tokenize.h"

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"

ABSL_FLAG(std::string, tokenizer, "bytes",
          "bytes; or a tokenizer.json, a file of tiktoken's ranks, or a folder "
          "with tokenizer.json or with vocab.json and merges.txt.");
ABSL_FLAG(std::string, input, "",
          "A text, a .jsonl file, or a folder of .txt, .md and .jsonl files.");
ABSL_FLAG(std::string, output, "",
          "Folder for train.bin, val.bin and the tokenizer.");
ABSL_FLAG(std::string, column, "text",
          "Of .jsonl files: the field that has the text.");
ABSL_FLAG(double, validation_fraction, 0.1,
          "How much is held out, as val.bin: documents by a hash of their "
          "text; of a single text the end.");
ABSL_FLAG(bool, end_of_text, true,
          "Put the tokenizer's marks around each document.");
ABSL_FLAG(bool, special_tokens, false,
          "Take special tokens that are written out in texts for those.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Makes token files, which train takes as --dataset=tokens, from texts.\n"
    "\n"
    "  tokenize --tokenizer=bytes --input=book.txt --output=book\n"
    "  tokenize --tokenizer=gpt2/ --input=pages.jsonl --output=pages\n";

class Meter {
 public:
  void operator()(const TokenizeProgress& now) {
    const absl::Time time = absl::Now();
    if (time - said_ < absl::Seconds(2)) return;
    said_ = time;
    const double seconds = absl::ToDoubleSeconds(time - begin_);
    std::cerr << absl::StrFormat(
        "%d %%: %.1f of %.1f MB, %.1f million tokens, %.2f million a second\n",
        now.all_bytes > 0 ? 100 * now.bytes / now.all_bytes : 100,
        1e-6 * static_cast<double>(now.bytes),
        1e-6 * static_cast<double>(now.all_bytes),
        1e-6 * static_cast<double>(now.tokens),
        1e-6 * static_cast<double>(now.tokens) / seconds);
  }

 private:
  const absl::Time begin_ = absl::Now();
  absl::Time said_ = begin_;
};

absl::Status Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers,
                          ParseCommandLine(argc, argv, kUsage));
  if (!leftovers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", leftovers.front(), "' is no flag"));
  }
  TokenizeOptions options;
  options.tokenizer = absl::GetFlag(FLAGS_tokenizer);
  if (options.tokenizer != "bytes") {
    options.tokenizer = UserPath(options.tokenizer);
  }
  options.input = UserPath(absl::GetFlag(FLAGS_input));
  options.output = UserPath(absl::GetFlag(FLAGS_output));
  options.column = absl::GetFlag(FLAGS_column);
  options.validation_fraction = absl::GetFlag(FLAGS_validation_fraction);
  options.end_of_text = absl::GetFlag(FLAGS_end_of_text);
  options.special_tokens = absl::GetFlag(FLAGS_special_tokens);
  TANDEM_ASSIGN_OR_RETURN(const TokenizeResult result,
                          Tokenize(options, Meter()));
  std::cout << absl::StrFormat(
      "%s: vocabulary %d\n"
      "train.bin  %d tokens in %d documents\n"
      "val.bin    %d tokens in %d documents\n",
      options.output, result.vocabulary, result.train_tokens,
      result.train_documents, result.validation_tokens,
      result.validation_documents);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::Status status = tandem::Run(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "tokenize: " << status.message() << "\n";
  return 1;
}
