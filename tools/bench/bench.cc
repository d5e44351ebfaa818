// Benchmarks beside others: suites of cases, whose figures are one kind of
// table. docs/performance.md, or --help.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "tools/bench/checkpoint/suite.h"
#include "tools/bench/data_parallel/suite.h"
#include "tools/bench/ddp/suite.h"
#include "tools/bench/fsdp/suite.h"
#include "tools/bench/gpt/suite.h"
#include "tools/bench/gpu/suite.h"
#include "tools/bench/hybrid/suite.h"
#include "tools/bench/job/suite.h"
#include "tools/bench/pipeline/suite.h"
#include "tools/bench/process/program.h"
#include "tools/bench/replacement/suite.h"
#include "tools/bench/safety/suite.h"
#include "tools/bench/suite/suite.h"
#include "tools/bench/suite/table.h"
#include "tools/bench/tensor/suite.h"
#include "tools/bench/tokenizer/suite.h"

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Measures tandem beside others, who take turns on the same machine, and\n"
    "must come to the same first. --suite=\n"
    "  ddp            DistributedDataParallel beside PyTorch's, over Gloo\n"
    "  fsdp           replicas that share parameters beside PyTorch's\n"
    "                 fully_shard, over Gloo\n"
    "  tensor         layers that ranks share beside PyTorch's\n"
    "                 parallelize_module, over Gloo\n"
    "  pipeline       pipelines beside torch.distributed.pipelining\n"
    "  hybrid         replicas of pipelines beside DistributedDataParallel\n"
    "                 around these, and what --reproducible costs\n"
    "  gpt            tokens a second and memory of a GPT beside PyTorch,\n"
    "                 eager and compiled, in every layout\n"
    "  gpu            models on one GPU beside PyTorch, eager, compiled and\n"
    "                 with CUDA graphs\n"
    "  data_parallel  DataParallel beside one device, LibTorch's\n"
    "                 data_parallel and DistributedDataParallel, on GPUs\n"
    "                 where there are enough, else on simulated devices\n"
    "  safety         what recorder, checks, reports and checkpoints cost a\n"
    "                 training; the first line is what two equal jobs differ\n"
    "                 by: up to an hour, with checkpoints in $TMPDIR, else "
    "/tmp\n"
    "  replacement    what a rank's death costs, by --replace_replicas and by\n"
    "                 --max_restarts\n"
    "  checkpoint     saves, loads (on our side with all checksums) and\n"
    "                 stalls beside torch.distributed.checkpoint, one rank\n"
    "                 each on one core: some minutes\n"
    "  tokenizer      tokenizers beside Python's, on one core\n"
    "  job            whole jobs from start to end beside Python's, with\n"
    "                 loading, evaluation and a checkpoint: some minutes\n\n"
    "  bench --suite=ddp                               all cases, both peers\n"
    "  bench --suite=ddp --cases=mlp_small --json=r    figures also in a file\n"
    "  bench --suite=pipeline --cases=gpt_tiny/1f1b\n"
    "  bench --suite=gpt --cases=gpt2/1x1 --tokens=256 --batch_size=1\n"
    "  bench --suite=gpu --device=cpu --cases=mlp_small      without a GPU\n"
    "  bench --suite=checkpoint --output=/dev/shm            without a disk\n\n"
    "Before a flag's words stand the suites that take it.";

struct Suite {
  const char* name;
  RunSuite* run;
};

constexpr Suite kSuites[] = {{"ddp", RunDdpSuite},
                             {"fsdp", RunFsdpSuite},
                             {"tensor", RunTensorSuite},
                             {"pipeline", RunPipelineSuite},
                             {"hybrid", RunHybridSuite},
                             {"gpt", RunGptSuite},
                             {"gpu", RunGpuSuite},
                             {"data_parallel", RunDataParallelSuite},
                             {"safety", RunSafetySuite},
                             {"replacement", RunReplacementSuite},
                             {"checkpoint", RunCheckpointSuite},
                             {"tokenizer", RunTokenizerSuite},
                             {"job", RunJobSuite}};

absl::StatusOr<RunSuite*> SuiteNamed(const std::string& name) {
  std::vector<std::string> known;
  for (const Suite& each : kSuites) {
    if (each.name == name) return each.run;
    known.push_back(each.name);
  }
  return CheckAmong("suite", {name}, known);
}

absl::Status Run(const std::string& folder) {
  const BenchFlags flags = BenchFlagsGiven();
  TANDEM_ASSIGN_OR_RETURN(RunSuite* const run, SuiteNamed(flags.suite));
  TANDEM_RETURN_IF_ERROR(CheckSuiteFlags(flags.suite));
  TANDEM_ASSIGN_OR_RETURN(const SuiteReport report, run(flags, folder));
  ShowTables(report.tables);
  TANDEM_RETURN_IF_ERROR(WriteJson(flags.json, TablesJson(report.tables)));
  return report.status;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
