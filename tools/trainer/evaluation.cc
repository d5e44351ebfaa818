#include "tools/trainer/evaluation.h"

#include <memory>
#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "core/model/batch.h"
#include "core/program/interrupt.h"
#include "datasets/distributed_sampler.h"
#include "datasets/loader.h"

namespace tandem {
namespace {

// Big enough to keep the cores busy, small enough to fit beside a model.
constexpr int64_t kBatchSize = 256;

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
  loading.batch_size = kBatchSize;
  loading.parts = {job.strategy->takes_inputs(), job.strategy->takes_targets()};
  loading.workers = job.options.workers;
  return Loader::Create(job.data.test, std::move(sampler), loading);
}

}  // namespace

absl::StatusOr<EvaluationReport> EvaluateTestSet(Job& job, Report& report) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Loader> loader, TestLoader(job));
  loader->StartEpoch();
  report.StartProgress("evaluation", loader->num_batches());
  Score mine;
  for (int64_t done = 1;; ++done) {
    TANDEM_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader->Next());
    if (!batch.has_value()) break;
    if (InterruptSignal() != 0) return InterruptError();
    TANDEM_ASSIGN_OR_RETURN(const Score score, job.strategy->Evaluate(*batch));
    mine += score;
    report.ShowProgress(done, "");
  }
  report.EndProgress();
  EvaluationReport all;
  TANDEM_ASSIGN_OR_RETURN(all.score, job.strategy->Sum(mine));
  TANDEM_ASSIGN_OR_RETURN(all.sums, job.strategy->TakeEvaluationSums());
  return all;
}

}  // namespace tandem
