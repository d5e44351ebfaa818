#include "tools/bench/tokenizer/run.h"

#include <algorithm>
#include <chrono>
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
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/process/side.h"

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
  SideOptions side;
  side.name = "Python";
  side.command = bench.peer;
  side.command.push_back("--documents=" + documents);
  side.environment = Environment::OfProcess();
  side.environment.Set("RAYON_NUM_THREADS", "1");
  side.environment.Set("PYTHONDONTWRITEBYTECODE", "1");
  side.folder = bench.folder;
  return Side::Start(side);
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

// As often as the slower side needs to fill a round.
absl::Status Measure(const std::string& file,
                     const std::vector<std::string>& documents, int rounds,
                     Side& peer, TokenizerResult& result) {
  TANDEM_ASSIGN_OR_RETURN(const double ours, OurTime(file, documents, 1));
  TANDEM_ASSIGN_OR_RETURN(const double theirs, PeerTime(peer, 1));
  const double least = std::max(1e-3, std::min(ours, theirs));
  const int repeats = 1 + static_cast<int>(kRoundMs / least);
  for (int round = 0; round < rounds; ++round) {
    for (const bool is_ours : {round % 2 == 0, round % 2 != 0}) {
      TANDEM_ASSIGN_OR_RETURN(const double ms,
                              is_ours ? OurTime(file, documents, repeats)
                                      : PeerTime(peer, repeats));
      (is_ours ? result.ours_ms : result.peer_ms).push_back(ms);
    }
  }
  return absl::OkStatus();
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

}  // namespace

absl::StatusOr<std::vector<TokenizerResult>> CompareTokenizers(
    const TokenizerBench& bench) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Side> peer, StartPeer(bench));
  TANDEM_RETURN_IF_ERROR(BindToCore(CoreOf(0, 1)));
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

}  // namespace tandem
