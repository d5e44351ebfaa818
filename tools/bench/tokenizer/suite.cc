#include "tools/bench/tokenizer/suite.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/digest/sha256.h"
#include "core/files/user_path.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/side.h"
#include "tools/texts/document_reader.h"
#include "tools/texts/text_files.h"

namespace tandem {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kTimeout(10);  // training takes the longest
constexpr double kRoundMs = 100;

// One tokenizer, in the file that each side reads.
struct Contest {
  std::string name;
  std::string file;
  std::string library;
  std::string peer_file;
};

std::vector<Contest> Contests(const TokenizerBench& bench) {
  const std::string& given = bench.tokenizer;
  if (!given.empty()) {
    const bool is_json = absl::EndsWith(given, ".json");
    return {{given, given, is_json ? "tokenizers" : "sentencepiece", given}};
  }
  const auto file = [&](const char* name) {
    return absl::StrCat(bench.folder, "/", name);
  };
  return {
      {"gpt2", file("gpt2.json"), "tokenizers", file("gpt2.json")},
      {"llama3", file("llama3.json"), "tokenizers", file("llama3.json")},
      {"llama3", file("llama3.json"), "tiktoken", file("llama3.tiktoken")},
      {"unigram", file("unigram.model"), "sentencepiece",
       file("unigram.model")},
      {"bpe", file("bpe.model"), "sentencepiece", file("bpe.model")},
  };
}

// A JSON string a line.
absl::StatusOr<std::string> WriteDocuments(const TokenizerBench& bench) {
  const std::string path = bench.folder + "/documents.jsonl";
  std::ofstream file(path);
  for (const std::string& document : bench.documents) {
    file << json(document).dump(-1, ' ', /*ensure_ascii=*/true,
                                json::error_handler_t::replace)
         << "\n";
  }
  file.close();
  if (file) return path;
  return absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<std::unique_ptr<Side>> StartPeer(const TokenizerBench& bench) {
  TANDEM_ASSIGN_OR_RETURN(const std::string documents, WriteDocuments(bench));
  std::vector<std::string> command = bench.peer;
  command.push_back("--documents=" + documents);
  return StartPython(std::move(command), "RAYON_NUM_THREADS", bench.folder);
}

// Whatever special tokens there are, texts are ordinary.
absl::StatusOr<std::vector<uint32_t>> Encode(const Tokenizer& tokenizer,
                                             const std::string& document) {
  return tokenizer.Encode(document, SpecialTokensInText::kOrdinary);
}

// Each time by a tokenizer that has seen no text yet: what one remembers of
// words is part of encoding a new text, and not of having encoded it before.
absl::StatusOr<double> OurTime(const std::string& file,
                               const std::vector<std::string>& documents,
                               int repeats) {
  std::chrono::duration<double, std::milli> taken(0);
  for (int i = 0; i < repeats; ++i) {
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            OpenTokenizer(file));
    const auto start = Clock::now();
    for (const std::string& document : documents) {
      TANDEM_RETURN_IF_ERROR(Encode(*tokenizer, document).status());
    }
    taken += Clock::now() - start;
  }
  return taken.count() / repeats;
}

absl::StatusOr<double> PeerTime(Side& peer, int repeats) {
  TANDEM_ASSIGN_OR_RETURN(const json answer,
                          peer.AskAlone({"time", repeats}, kTimeout));
  return answer["ms"].get<double>();
}

absl::Status CheckTokens(const Tokenizer& tokenizer,
                         const std::vector<std::string>& documents, Side& peer,
                         TokenizerResult& result) {
  Sha256 hash;
  for (const std::string& document : documents) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens,
                            Encode(tokenizer, document));
    hash.Update(tokens.data(), tokens.size() * sizeof(uint32_t));
    result.tokens += static_cast<int64_t>(tokens.size());
    result.bytes += static_cast<int64_t>(document.size());
  }
  TANDEM_ASSIGN_OR_RETURN(const json theirs,
                          peer.AskAlone(json::array({"tokens"}), kTimeout));
  if (theirs["sha256"] != hash.HexDigest()) {
    result.failure =
        absl::StrCat(result.tokens, " tokens, but ", result.peer, " has ",
                     theirs["count"].dump(), ", or others");
  }
  return absl::OkStatus();
}

// Measures as often as the slower side needs to fill a round.
absl::Status Measure(const std::string& file,
                     const std::vector<std::string>& documents, int rounds,
                     Side& peer, TokenizerResult& result) {
  TANDEM_ASSIGN_OR_RETURN(const double ours, OurTime(file, documents, 1));
  TANDEM_ASSIGN_OR_RETURN(const double theirs, PeerTime(peer, 1));
  const double least = std::max(1e-3, std::min(ours, theirs));
  const int repeats = 1 + static_cast<int>(kRoundMs / least);
  return TakeTurns(
      rounds, [&] { return OurTime(file, documents, repeats); },
      [&] { return PeerTime(peer, repeats); }, result.ours_ms, result.peer_ms);
}

absl::StatusOr<TokenizerResult> Compare(const Contest& contest,
                                        const TokenizerBench& bench,
                                        Side& peer) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          OpenTokenizer(contest.file));
  TANDEM_ASSIGN_OR_RETURN(
      const json opened,
      peer.AskAlone({"open", contest.library, contest.peer_file}, kTimeout));
  TokenizerResult result;
  result.name = contest.name;
  result.peer = opened["version"].get<std::string>();
  TANDEM_RETURN_IF_ERROR(
      CheckTokens(*tokenizer, bench.documents, peer, result));
  if (!result.failure.empty()) return result;
  TANDEM_RETURN_IF_ERROR(
      Measure(contest.file, bench.documents, bench.rounds, peer, result));
  return result;
}

constexpr char kAdvice[] =
    "\nPython's side needs: pip install tokenizers tiktoken "
    "'sentencepiece<0.2'; "
    "--python=PATH, or TANDEM_PEER_PYTHON, says which Python";

absl::StatusOr<std::string> InputFromFlag(const std::string& given) {
  if (!given.empty()) return UserPath(given);
  TANDEM_ASSIGN_OR_RETURN(const std::string page,
                          Runfile("docs/large_models.md"));
  return std::filesystem::path(page).parent_path().string();
}

absl::StatusOr<std::vector<std::string>> Documents(const std::string& given) {
  TANDEM_ASSIGN_OR_RETURN(const std::string input, InputFromFlag(given));
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

absl::StatusOr<TokenizerBench> BenchFromFlags(const BenchFlags& flags,
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

absl::StatusOr<std::vector<TokenizerResult>> CompareTokenizers(
    const TokenizerBench& bench) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Side> peer, StartPeer(bench));
  TANDEM_RETURN_IF_ERROR(BindToCore(CoreNumber(0, 1)));
  if (bench.tokenizer.empty()) {
    TANDEM_RETURN_IF_ERROR(
        peer->AskAlone({"make", bench.folder, bench.vocabulary}, kTimeout)
            .status());
  }
  std::vector<TokenizerResult> results;
  for (const Contest& contest : Contests(bench)) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(),
                            Compare(contest, bench, *peer));
  }
  return results;
}

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
    const Ratio ratio = PairedRatio(each.peer_ms, each.ours_ms);
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
  TANDEM_ASSIGN_OR_RETURN(const TokenizerBench bench,
                          BenchFromFlags(flags, folder));
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
