#include "tools/bench/tokenizer/suite.h"

#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/runfile.h"
#include "tools/texts/document_reader.h"
#include "tools/texts/text_files.h"

namespace tandem {
namespace {

constexpr char kAdvice[] =
    "\nPython's side needs: pip install tokenizers tiktoken "
    "'sentencepiece<0.2'; "
    "--python=PATH, or TANDEM_PEER_PYTHON, says which Python";

absl::StatusOr<std::string> InputOfFlag(const std::string& given) {
  if (!given.empty()) return UserPath(given);
  TANDEM_ASSIGN_OR_RETURN(const std::string page,
                          Runfile("docs/token_files.md"));
  return std::filesystem::path(page).parent_path().string();
}

absl::StatusOr<std::vector<std::string>> Documents(const std::string& given) {
  TANDEM_ASSIGN_OR_RETURN(const std::string input, InputOfFlag(given));
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

// It needs no torch.
std::string PythonFor(const std::string& given) {
  if (absl::StrContains(given, '/')) return UserPath(given);
  if (!given.empty()) return given;
  return Environment::OfProcess().Get("TANDEM_PEER_PYTHON").value_or("python3");
}

absl::StatusOr<TokenizerBench> BenchOf(const BenchFlags& flags,
                                       const std::string& folder) {
  TokenizerBench bench;
  bench.folder = folder;
  bench.vocabulary = flags.vocabulary;
  bench.rounds = flags.rounds.value_or(bench.rounds);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("vocabulary", flags.vocabulary, 512));
  TANDEM_ASSIGN_OR_RETURN(bench.documents, Documents(flags.input));
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/text_tokens.py"));
  bench.peer = {"/usr/bin/env", PythonFor(flags.python), script};
  if (!flags.tokenizer.empty()) bench.tokenizer = UserPath(flags.tokenizer);
  return bench;
}

}  // namespace

std::vector<Table> TokenizerTables(
    const std::vector<TokenizerResult>& results) {
  Table cases = {"cases",
                 {{"name"},
                  {"peer"},
                  {"bytes"},
                  {"tokens"},
                  {"ours", "ms", 1},
                  {"ours", "MB/s", 2},
                  {"peer", "ms", 1},
                  {"peer", "MB/s", 2},
                  {"ratio", "", 2},
                  {"ratio_min", "", 2},
                  {"ratio_max", "", 2}}};
  Table failures = {"failures", {{"name"}, {"peer"}, {"reason"}}};
  for (const TokenizerResult& each : results) {
    if (!each.failure.empty()) {
      failures.Add({each.name, each.peer, each.failure});
      continue;
    }
    const Ratio ratio = RatioOf(each.peer_ms, each.ours_ms);
    cases.Add(
        {each.name, each.peer, each.bytes, each.tokens, Median(each.ours_ms),
         MegabytesPerSecond(each.bytes, each.ours_ms), Median(each.peer_ms),
         MegabytesPerSecond(each.bytes, each.peer_ms), ratio.ratio, ratio.min,
         ratio.max});
  }
  return {cases, failures};
}

absl::StatusOr<SuiteReport> RunTokenizerSuite(const BenchFlags& flags,
                                              const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const TokenizerBench bench, BenchOf(flags, folder));
  const auto results = CompareTokenizers(bench);
  if (absl::IsAborted(results.status())) {
    return absl::AbortedError(
        absl::StrCat(results.status().message(), kAdvice));
  }
  TANDEM_RETURN_IF_ERROR(results.status());
  SuiteReport report;
  report.tables = TokenizerTables(*results);
  for (const TokenizerResult& each : *results) {
    if (each.failure.empty()) continue;
    report.status = absl::InternalError("some tokens are not the same");
  }
  return report;
}

}  // namespace tandem
