// Tokenizers beside Python's tokenizers, tiktoken and sentencepiece.
// docs/token_files.md, or --help.

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/runfile.h"
#include "tools/bench/tokenizer/report.h"
#include "tools/bench/tokenizer/run.h"
#include "tools/texts/document_reader.h"
#include "tools/texts/text_files.h"

ABSL_FLAG(std::string, input, "",
          "A text, a .jsonl file with texts in their field \"text\", or a "
          "folder of such. Empty: tandem's own documentation.");
ABSL_FLAG(std::string, tokenizer, "",
          "A tokenizer.json or a sentencepiece model. Empty: tokenizers of "
          "each kind, made of the texts.");
ABSL_FLAG(int, vocabulary, 8000, "Tokens of those that are made.");
ABSL_FLAG(int, rounds, 7, "How often the sides take turns.");
ABSL_FLAG(std::string, python, "",
          "A Python with tokenizers, tiktoken and sentencepiece; empty: "
          "$TANDEM_PEER_PYTHON, else python3.");
ABSL_FLAG(std::string, json, "", "File for the figures.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Times tandem's tokenizers and Python's, on the same texts, in turns, on\n"
    "one core. Their tokens must be the same first.\n\n"
    "  bench_tokenize                          tokenizers made of the texts\n"
    "  bench_tokenize --input=book.txt --tokenizer=MODEL/tokenizer.json\n";

constexpr char kAdvice[] =
    "\nPython's side needs: pip install tokenizers tiktoken "
    "'sentencepiece<0.2'; "
    "--python=PATH, or TANDEM_PEER_PYTHON, says which Python";

absl::StatusOr<std::string> InputFromFlag() {
  const std::string given = absl::GetFlag(FLAGS_input);
  if (!given.empty()) return UserPath(given);
  TANDEM_ASSIGN_OR_RETURN(const std::string page,
                          Runfile("docs/token_files.md"));
  return std::filesystem::path(page).parent_path().string();
}

absl::StatusOr<std::vector<std::string>> Documents() {
  TANDEM_ASSIGN_OR_RETURN(const std::string input, InputFromFlag());
  TANDEM_ASSIGN_OR_RETURN(const TextFiles found, FindTextFiles(input));
  std::vector<std::string> documents;
  const auto take = [&](const DocumentPiece& piece) {
    if (piece.first) documents.emplace_back();
    documents.back().append(piece.text.data(), piece.text.size());
    return absl::OkStatus();
  };
  for (const TextFile& file : found.files) {
    TANDEM_RETURN_IF_ERROR(ReadDocuments(file, ReadDocumentsOptions(), take));
  }
  return documents;
}

std::string PythonFromFlag() {
  const std::string given = absl::GetFlag(FLAGS_python);
  if (absl::StrContains(given, '/')) return UserPath(given);
  if (!given.empty()) return given;
  return Environment::OfProcess().Get("TANDEM_PEER_PYTHON").value_or("python3");
}

absl::Status Run(const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("rounds", absl::GetFlag(FLAGS_rounds), 1));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("vocabulary", absl::GetFlag(FLAGS_vocabulary), 512));
  TokenizerBench bench;
  TANDEM_ASSIGN_OR_RETURN(bench.documents, Documents());
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/text_tokens.py"));
  bench.peer = {"/usr/bin/env", PythonFromFlag(), script};
  bench.folder = folder;
  bench.vocabulary = absl::GetFlag(FLAGS_vocabulary);
  bench.rounds = absl::GetFlag(FLAGS_rounds);
  if (!absl::GetFlag(FLAGS_tokenizer).empty()) {
    bench.tokenizer = UserPath(absl::GetFlag(FLAGS_tokenizer));
  }
  const auto results = CompareTokenizers(bench);
  if (absl::IsAborted(results.status())) {
    return absl::AbortedError(
        absl::StrCat(results.status().message(), kAdvice));
  }
  TANDEM_RETURN_IF_ERROR(results.status());
  absl::PrintF("%s", TokenizerTable(*results));
  TANDEM_RETURN_IF_ERROR(
      WriteJson(absl::GetFlag(FLAGS_json), TokenizerJson(*results)));
  for (const TokenizerResult& each : *results) {
    if (each.failure.empty()) continue;
    return absl::InternalError("some tokens are not the same");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_tokenize", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
