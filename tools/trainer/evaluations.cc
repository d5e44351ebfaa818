#include "tools/trainer/evaluations.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/comm/group_agreement.h"
#include "core/files/atomic_file.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/model/batch.h"
#include "core/program/interrupt.h"
#include "core/tensorboard/summary.h"
#include "datasets/dataset.h"
#include "datasets/distributed_sampler.h"
#include "datasets/loader.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer_files.h"
#include "tools/trainer/evaluation/text_bytes.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/stop_agreement.h"

namespace tandem {
namespace {

int64_t BatchSize(const Job& job) {
  return EvaluationBatchSize(job.options, job.batch_size_per_replica,
                             *job.data.test);
}

// The samples of the test set that count, its first ones: as many whatever the
// number of replicas.
int64_t EvaluatedSamples(const Job& job) {
  const int64_t all = job.data.test->size();
  const int64_t batches = job.options.eval_batches;
  const int64_t batch = ResolvedBatchSize(job.options);
  return batches == 0 || batches > all / batch ? all : batches * batch;
}

// The first samples of a data set (torch.utils.data.Subset).
class FirstOf : public Dataset {
 public:
  FirstOf(std::shared_ptr<const Dataset> whole, int64_t size)
      : whole_(std::move(whole)), size_(size) {}

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override {
    return whole_->input_shape();
  }
  bool tokens() const override { return whole_->tokens(); }
  int64_t classes() const override { return whole_->classes(); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    return whole_->Get(indices, parts);
  }

 private:
  const std::shared_ptr<const Dataset> whole_;
  const int64_t size_;
};

absl::StatusOr<std::unique_ptr<Loader>> TestLoader(const Job& job) {
  DistributedSamplerOptions sampling;
  sampling.num_replicas = job.mesh.replicas();
  sampling.rank = job.data_rank();
  sampling.shuffle = false;
  sampling.even = false;
  TANDEM_ASSIGN_OR_RETURN(
      std::shared_ptr<DistributedSampler> sampler,
      DistributedSampler::Create(EvaluatedSamples(job), sampling));
  LoaderOptions loading;
  loading.batch_size = BatchSize(job);
  loading.parts = {job.strategy->takes_inputs(), job.strategy->takes_targets()};
  loading.workers = job.options.workers;
  return Loader::Create(
      std::make_shared<FirstOf>(job.data.test, EvaluatedSamples(job)),
      std::move(sampler), loading);
}

// The number of batches of the replica that has the most.
int64_t MostBatches(const Job& job) {
  const int64_t replicas = job.mesh.replicas();
  const int64_t samples = (EvaluatedSamples(job) + replicas - 1) / replicas;
  return (samples + BatchSize(job) - 1) / BatchSize(job);
}

// After a signal all ranks stop after the same batch: a rank that left alone
// would break a sum of the others, and what they have yet to write. Workers of
// servers stop alone.
absl::Status StopIfAsked(const Job& job, StopAgreement* stop, int64_t done) {
  int signal = InterruptSignal();
  if (ParameterServerCount(job.options) == 0) {
    TANDEM_ASSIGN_OR_RETURN(signal, stop->SignalAfter(done));
  }
  return signal == 0 ? absl::OkStatus() : InterruptError();
}

// Evaluates the test set, which must not be empty: each sample counts exactly
// once, on any number of ranks. The same on every rank. Collective.
absl::StatusOr<EvaluationReport> EvaluateTestSet(Job& job, Report& report) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Loader> loader, TestLoader(job));
  loader->StartEpoch();
  const int64_t batches = MostBatches(job);
  report.StartProgress("evaluation", batches);
  StopAgreement stop(job.world.get(), "in an evaluation, after batch ");
  int64_t begun = 0;
  const auto next = [&]() -> absl::StatusOr<std::optional<Batch>> {
    if (begun > 0) report.ShowProgress(begun, "");
    if (begun == batches) return std::nullopt;
    TANDEM_RETURN_IF_ERROR(FaultPoint("evaluate", begun));
    TANDEM_RETURN_IF_ERROR(StopIfAsked(job, &stop, begun));
    // Another replica may have one more.
    TANDEM_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader->Next());
    ++begun;
    return batch;
  };
  TANDEM_ASSIGN_OR_RETURN(const Score mine,
                          job.strategy->EvaluateBatches(next));
  report.EndProgress();
  EvaluationReport all;
  TANDEM_ASSIGN_OR_RETURN(all.score, job.strategy->Sum(mine));
  TANDEM_ASSIGN_OR_RETURN(all.sums, job.strategy->TakeEvaluationSums());
  return all;
}

absl::StatusOr<EvaluationReport> Evaluate(Job& job, RunReport& report,
                                          const EvaluationPoint& point) {
  const TraceScope slice(kHostTrack, "evaluate");
  TANDEM_RETURN_IF_ERROR(job.strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(EvaluationReport evaluation,
                          EvaluateTestSet(job, report.report()));
  evaluation.epoch = point.epoch + 1;
  evaluation.is_alone = job.options.eval_only;
  evaluation.within_epoch = point.within_epoch;
  evaluation.step = point.step;
  evaluation.samples = point.samples;
  evaluation.tokens = report.TokenCount(point.samples);
  evaluation.is_text = job.data.train->tokens();
  return evaluation;
}

// The bytes of the text that is evaluated; 0: nobody knows its tokenizer.
absl::StatusOr<int64_t> EvaluatedBytes(const Job& job) {
  const std::string source = JobTokenizer(job.options);
  if (!job.data.test->tokens() || source.empty()) return 0;
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          OpenTokenizer(source));
  return PredictedBytes(*job.data.test, EvaluatedSamples(job), *tokenizer);
}

// On rank 0. The bytes are counted once for all evaluations: `bytes` has them
// then. A tokenizer that cannot be read costs no training.
void AddBitsPerByte(const Job& job, RunReport& report,
                    std::optional<int64_t>* bytes,
                    EvaluationReport* evaluation) {
  if (!job.is_rank_zero() || evaluation->score.count == 0) return;
  if (!bytes->has_value()) {
    const absl::StatusOr<int64_t> counted = EvaluatedBytes(job);
    if (!counted.ok()) {
      report.Say(absl::StrCat("no bits a byte: ", counted.status().message()));
    }
    *bytes = counted.value_or(0);
  }
  if (**bytes == 0) return;
  evaluation->bits_per_byte =
      BitsPerByte(evaluation->score.loss(), evaluation->score.count, **bytes);
}

// Null: nobody asked for them. Collective.
absl::StatusOr<std::unique_ptr<MisclassifiedImages>> MakeMisclassifiedImages(
    Job& job) {
  if (job.options.misclassified_images == 0) return nullptr;
  return MisclassifiedImages::Create(job, EvaluatedSamples(job));
}

// `images` may be null. Collective.
absl::Status ShowMisclassified(MisclassifiedImages* images, RunReport& report,
                               int64_t step) {
  if (images == nullptr) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const Summary found, images->Find());
  report.report().ShowValues(found, step);
  return absl::OkStatus();
}

BestBy RequestedBest(const TrainOptions& options) {
  return options.keep_best == "accuracy" ? BestBy::kAccuracy : BestBy::kLoss;
}

// The first flag that asks for evaluations; empty: none.
std::string FirstOfEvaluation(const TrainOptions& options) {
  if (options.eval_every > 0) {
    return absl::StrCat("--eval_every=", options.eval_every);
  }
  if (options.keep_best != "off") {
    return absl::StrCat("--keep_best=", options.keep_best);
  }
  return options.early_stopping_patience > 0
             ? absl::StrCat("--early_stopping_patience=",
                            options.early_stopping_patience)
             : "";
}

absl::StatusOr<std::string> HistoryText(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kHistoryFile);
  return IsRegularFile(path) ? ReadFile(path) : "";
}

}  // namespace

absl::StatusOr<Evaluations> Evaluations::Start(Job& job, RunReport& report,
                                               const JobStart& start) {
  const std::string flag = FirstOfEvaluation(job.options);
  if (!flag.empty() && !job.data.has_test()) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " evaluates the test set, which is empty: leave it out"));
  }
  Evaluations evaluations(job, report);
  evaluations.history_ = EvaluationHistory(RequestedBest(job.options));
  evaluations.done_ = start.stand.evaluated;
  std::string folder;
  if (job.takes_over()) {
    folder = job.options.save_dir;
  } else if (start.resumed) {
    folder = std::filesystem::path(start.checkpoint).parent_path().string();
  }
  if (evaluations.needs_history() && !folder.empty()) {
    TANDEM_RETURN_IF_ERROR(
        evaluations.ReadHistory(folder, start.stand.position.step));
  }
  if (job.options.sample_every > 0) {
    TANDEM_ASSIGN_OR_RETURN(evaluations.sampler_, TextSampler::Create(job));
  }
  TANDEM_ASSIGN_OR_RETURN(evaluations.misclassified_,
                          MakeMisclassifiedImages(job));
  return evaluations;
}

bool Evaluations::needs_history() const {
  return job_->options.keep_best != "off" ||
         job_->options.early_stopping_patience > 0;
}

// All ranks have the file that rank 0 sees.
absl::Status Evaluations::ReadHistory(const std::string& folder, int64_t step) {
  absl::StatusOr<std::string> mine = std::string();
  if (job_->is_rank_zero()) mine = HistoryText(folder);
  const std::string path = absl::StrCat(folder, "/", kHistoryFile);
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(mine.status(), absl::StrCat("read ", path), *job_->world));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      job_->world->AllGatherString(*mine, [] { return "evaluations so far"; }));
  auto history =
      EvaluationHistory::FromText(all[0], RequestedBest(job_->options));
  TANDEM_RETURN_IF_ERROR(Annotate(history.status(), path));
  history_ = *std::move(history);
  history_.DropAfter(step);
  return absl::OkStatus();
}

absl::Status Evaluations::WriteHistory() const {
  const std::string& folder = job_->options.save_dir;
  if (!job_->is_rank_zero() || !needs_history() || folder.empty()) {
    return absl::OkStatus();
  }
  return WriteFileAtomically(absl::StrCat(folder, "/", kHistoryFile),
                             history_.ToText());
}

absl::Status Evaluations::Run(const EvaluationPoint& point) {
  if (!job_->data.has_test()) {
    done_ = point.step;
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(EvaluationReport evaluation,
                          Evaluate(*job_, *report_, point));
  AddBitsPerByte(*job_, *report_, &bytes_, &evaluation);
  history_.Add(
      {point.step, evaluation.score.loss(), evaluation.score.accuracy()});
  evaluation.is_best = needs_history() && history_.last_is_best();
  const absl::Status written = WriteHistory();
  if (!written.ok()) {
    report_->Say(absl::StrCat("warning: ", written.message(),
                              ": a job that goes on will not know of it"));
  }
  TANDEM_RETURN_IF_ERROR(
      ShowMisclassified(misclassified_.get(), *report_, point.step));
  TANDEM_RETURN_IF_ERROR(report_->ShowEvaluation(evaluation));
  done_ = point.step;
  return absl::OkStatus();
}

bool Evaluations::keeps_last() const {
  return job_->options.keep_best != "off" && history_.last_is_best();
}

bool Evaluations::stops() const {
  const int64_t patience = job_->options.early_stopping_patience;
  return patience > 0 && history_.count_since_best() >= patience;
}

std::string Evaluations::DescribeStop() const {
  const Evaluation* const best = history_.best();
  const int64_t count = history_.count_since_best();
  return absl::StrFormat(
      "%s no better%s (--early_stopping_patience)",
      count == 1 ? "1 evaluation was"
                 : absl::StrFormat("%d evaluations in a row were", count),
      best == nullptr
          ? ""
          : absl::StrFormat(" than the one after step %d", best->step));
}

std::optional<BestReport> Evaluations::best() const {
  const Evaluation* const best = history_.best();
  if (!needs_history() || best == nullptr) return std::nullopt;
  BestReport report = {best->step, best->loss, best->accuracy, ""};
  if (job_->options.keep_best != "off") {
    report.checkpoint = absl::StrCat(job_->options.save_dir, "/", kBestLink);
  }
  return report;
}

absl::Status Evaluations::ShowSample(int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, sampler_->Sample());
  report_->report().ShowSample({step, text});
  return absl::OkStatus();
}

absl::Status EvaluateOnce(Job& job, RunReport& report,
                          const EvaluationPoint& point) {
  if (!job.data.has_test()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MisclassifiedImages> misclassified,
      MakeMisclassifiedImages(job));
  TANDEM_ASSIGN_OR_RETURN(EvaluationReport evaluation,
                          Evaluate(job, report, point));
  std::optional<int64_t> bytes;
  AddBitsPerByte(job, report, &bytes, &evaluation);
  TANDEM_RETURN_IF_ERROR(
      ShowMisclassified(misclassified.get(), report, point.step));
  return report.ShowEvaluation(evaluation);
}

}  // namespace tandem
