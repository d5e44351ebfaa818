// Makes token files from texts. --help.

#include "tools/texts/tokenize.h"

#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "core/program/progress.h"

ABSL_FLAG(std::string, tokenizer, "bytes",
          "bytes; or a tokenizer.json, a sentencepiece model, a file of "
          "tiktoken's ranks, or a folder with tokenizer.json, with vocab.json "
          "and merges.txt, or with tokenizer.model.");
ABSL_FLAG(std::string, input, "",
          "A text, a .jsonl file, or a folder of .txt, .md and .jsonl files; "
          "any of them with .gz or .zst behind its name, as gzip or zstd packs "
          "it.");
ABSL_FLAG(std::string, output, "",
          "Folder for train.bin, val.bin and the tokenizer.");
ABSL_FLAG(std::string, column, "text",
          "Field of .jsonl files that has the text.");
ABSL_FLAG(double, validation_fraction, 0.1,
          "How much is held out, as val.bin: documents by a hash of their "
          "text; of a single text the end. 0: nothing, and train evaluates "
          "nothing.");
ABSL_FLAG(bool, end_of_text, true,
          "Put the tokenizer's marks around each document.");
ABSL_FLAG(bool, special_tokens, false,
          "Take special tokens that are written out in texts for those.");
ABSL_FLAG(bool, overwrite, false,
          "Replace the token files that --output has already.");

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
    if (progress_ == nullptr) {
      progress_ =
          std::make_shared<Progress>("tokenizing", now.all_bytes,
                                     Progress::ToStderr(ProgressUnit::kBytes));
    }
    const double millions = 1e-6 * static_cast<double>(now.tokens);
    const std::chrono::duration<double> taken = Clock::now() - begin_;
    progress_->Update(
        now.bytes, absl::StrFormat("%.1f million tokens, %.2f million a second",
                                   millions, millions / taken.count()));
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point begin_ = Clock::now();
  std::shared_ptr<Progress> progress_;  // copies of this share it
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
  options.overwrite = absl::GetFlag(FLAGS_overwrite);
  TANDEM_ASSIGN_OR_RETURN(const TokenizeResult result,
                          Tokenize(options, Meter()));
  std::cout << absl::StrFormat(
      "%s: vocabulary %d\n"
      "train.bin  %d tokens in %d documents\n"
      "val.bin    %d tokens in %d documents\n",
      options.output, result.vocabulary, result.train_tokens,
      result.train_documents, result.validation_tokens,
      result.validation_documents);
  if (!result.left_out.empty()) {
    // Endings of files are what others have written.
    std::cout << "left out   " << Printable(result.left_out)
              << " (texts are .txt, .md and .jsonl)\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Conclude("tokenize", tandem::Run(argc, argv));
}
