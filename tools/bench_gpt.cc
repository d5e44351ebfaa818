// A GPT's tokens a second beside PyTorch's, eager and compiled, in every
// layout. docs/performance.md, or --help.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/status_macros.h"
#include "tools/bench/comparison/flags.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/gpt/cases.h"
#include "tools/bench/gpt/report.h"
#include "tools/bench/process/program.h"

ABSL_FLAG(std::vector<std::string>, cases, {"gpt_baby"},
          "Which cases: MODEL/LAYOUT, or MODEL for all of its layouts, of "
          "gpt_tiny, gpt_baby, gpt2 and 1x1, 2x1 (replicas x devices of each), "
          "1x2, 2x2 (two ranks of two devices), 2x2_ranks (four ranks).");
ABSL_FLAG(std::vector<std::string>, peers, {},
          "What tandem is compared with: eager; compile, the same under "
          "torch.compile. With replicas it is under DistributedDataParallel, "
          "in stages under torch.distributed.pipelining, over Gloo. Empty: "
          "eager, and compile where it runs. A peer that is named must run.");
ABSL_FLAG(int64_t, batch_size, 0,
          "Of all replicas together. 0: as the cases say.");
ABSL_FLAG(int64_t, tokens, 0, "Of a sample. 0: the model's context.");
ABSL_FLAG(int, rounds, 7, "How often the sides take turns.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains a GPT with tandem and with PyTorch, from the same weights on the\n"
    "same batches, in turns, and compares tokens a second and a rank's "
    "memory.\n\n"
    "  bench_gpt                              gpt_baby in all layouts\n"
    "  bench_gpt --cases=gpt_baby/2x1         replicas beside each other\n"
    "  bench_gpt --cases=gpt2/1x1 --tokens=256 --batch_size=1 --dtypes=bf16\n";

struct Peers {
  std::vector<std::string> names = {"eager", "compile"};
  bool wanted = false;  // by name
};

absl::StatusOr<Peers> PeersFromFlags() {
  Peers peers;
  const std::vector<std::string> named = absl::GetFlag(FLAGS_peers);
  if (!named.empty()) peers = {named, /*wanted=*/true};
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", peers.names, {"eager", "compile"}));
  return peers;
}

// A case's files are its own: ranks that meet through a file want a new one.
absl::StatusOr<CaseResult> RunInOwnFolder(const Case& bench, const Peers& peers,
                                          ComparisonOptions options) {
  const std::string name = absl::StrReplaceAll(bench.name, {{"/", "_"}});
  TANDEM_ASSIGN_OR_RETURN(options.folder, FolderFor(name, options.folder));
  return RunCase(bench, GptPeers(bench, peers.names, peers.wanted),
                 KnownLosses(bench.workload.dtype), options);
}

absl::Status Run(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const Peers peers, PeersFromFlags());
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Case> cases,
      CasesFromFlags(GptCases({absl::GetFlag(FLAGS_batch_size),
                               absl::GetFlag(FLAGS_tokens)}),
                     absl::GetFlag(FLAGS_cases)));
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(absl::GetFlag(FLAGS_rounds)));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  options.folder = folder;
  std::vector<CaseResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(),
                            RunInOwnFolder(bench, peers, options));
    // As soon as it is known: a run of all takes a while.
    absl::PrintF("\n%s", GptTable({results.back()}));
    std::fflush(stdout);
  }
  absl::PrintF("\n%s", GptTable(results));
  return WriteFigures(GptJson(results));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_gpt", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
