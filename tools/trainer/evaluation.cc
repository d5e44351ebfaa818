#include "tools/trainer/evaluation.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/instrument/fault_point.h"
#include "core/model/batch.h"
#include "core/program/interrupt.h"
#include "datasets/distributed_sampler.h"
#include "datasets/loader.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/stop_agreement.h"

namespace tandem {
namespace {

int64_t BatchSize(const Job& job) {
  return EvaluationBatchSize(job.options, job.batch_size_per_replica,
                             *job.data.test);
}

absl::StatusOr<std::unique_ptr<Loader>> TestLoader(const Job& job) {
  DistributedSamplerOptions sampling;
  sampling.num_replicas = job.mesh.data();
  sampling.rank = job.data_rank();
  sampling.shuffle = false;
  sampling.even = false;
  TANDEM_ASSIGN_OR_RETURN(
      std::shared_ptr<DistributedSampler> sampler,
      DistributedSampler::Create(job.data.test->size(), sampling));
  LoaderOptions loading;
  loading.batch_size = BatchSize(job);
  loading.parts = {job.strategy->takes_inputs(), job.strategy->takes_targets()};
  loading.workers = job.options.workers;
  return Loader::Create(job.data.test, std::move(sampler), loading);
}

// Batches of the replica that has the most.
int64_t MostBatches(const Job& job) {
  const int64_t replicas = job.mesh.data();
  const int64_t samples = (job.data.test->size() + replicas - 1) / replicas;
  return (samples + BatchSize(job) - 1) / BatchSize(job);
}

// Where a signal asked to: all ranks after as many batches. One that left alone
// would break off a sum of the others, and what they have yet to write. Workers
// of servers stop alone.
absl::Status StopIfAsked(const Job& job, StopAgreement* stop, int64_t done) {
  int signal = InterruptSignal();
  if (ServersOf(job.options) == 0) {
    TANDEM_ASSIGN_OR_RETURN(signal, stop->SignalAfter(done));
  }
  return signal == 0 ? absl::OkStatus() : InterruptError();
}

}  // namespace

absl::StatusOr<EvaluationReport> EvaluateTestSet(Job& job, Report& report) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Loader> loader, TestLoader(job));
  loader->StartEpoch();
  const int64_t batches = MostBatches(job);
  report.StartProgress("evaluation", batches);
  StopAgreement stop(job.world.get(), "in an evaluation, after batch ");
  Score mine;
  for (int64_t done = 0; done < batches; ++done) {
    TANDEM_RETURN_IF_ERROR(FaultPoint("evaluate", done));
    TANDEM_RETURN_IF_ERROR(StopIfAsked(job, &stop, done));
    TANDEM_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader->Next());
    if (!batch.has_value()) break;  // another replica has one more
    TANDEM_ASSIGN_OR_RETURN(const Score score, job.strategy->Evaluate(*batch));
    mine += score;
    report.ShowProgress(done + 1, "");
  }
  report.EndProgress();
  EvaluationReport all;
  TANDEM_ASSIGN_OR_RETURN(all.score, job.strategy->Sum(mine));
  TANDEM_ASSIGN_OR_RETURN(all.sums, job.strategy->TakeEvaluationSums());
  return all;
}

}  // namespace tandem
