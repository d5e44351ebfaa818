#include "tools/bench/job/run.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "tools/bench/process/metrics.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::chrono::minutes kTimeout(30);

// When each part of a job was over, in seconds since 1970.
struct Moments {
  double started = 0;
  double began = 0;  // to ask for batches
  double trained = 0;
  double saved = 0;
  double evaluated = 0;
  double ended = 0;
};

void TakeParts(const Moments& at, JobRun& run) {
  run.whole_s = at.ended - at.started;
  run.start_s = at.began - at.started;
  run.training_s = at.trained - at.began;
  run.checkpoint_s = at.saved - at.trained;
  run.evaluation_s = at.evaluated - at.saved;
  run.end_s = at.ended - at.evaluated;
}

// What it said on stdout; says when it started and ended.
absl::StatusOr<std::string> Run(const std::vector<std::string>& command,
                                const JobSetup& setup, Moments& at) {
  const std::chrono::duration<double> now =
      std::chrono::system_clock::now().time_since_epoch();
  TANDEM_ASSIGN_OR_RETURN(
      JobEnd end, RunJob(command, SideEnvironment(setup.options), kTimeout));
  at.started = now.count();
  at.ended = at.started + end.seconds;
  return std::move(end.out);
}

// A path that nothing is at.
std::string NewPath(const JobSetup& setup, const char* name) {
  std::string path = absl::StrCat(setup.options.folder, "/", name);
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  return path;
}

// What both sides take alike.
std::vector<std::string> Flags(const JobPlan& plan, const JobSetup& setup) {
  return {"--model=" + plan.workload.model,
          "--data_dir=" + setup.data_dir,
          absl::StrCat("--batch_size=", plan.workload.batch_size),
          absl::StrCat("--learning_rate=", plan.workload.learning_rate),
          absl::StrCat("--max_steps=", plan.steps),
          absl::StrCat("--log_every=", plan.log_every)};
}

absl::StatusOr<std::vector<std::string>> TrainCommand(
    const JobPlan& plan, const JobSetup& setup, const std::string& metrics) {
  TANDEM_ASSIGN_OR_RETURN(const std::string train, Runfile("tools/train"));
  std::vector<std::string> command = {
      train, "--metrics_file=" + metrics,
      "--save_dir=" + NewPath(setup, "saves"),
      // One of the benchmark's own, which its first job fills.
      absl::StrCat("--kernel_cache=", setup.options.folder, "/kernels")};
  if (plan.ranks > 1) {
    command.push_back(absl::StrCat("--nproc_per_node=", plan.ranks));
  }
  for (std::string& flag : Flags(plan, setup)) {
    command.push_back(std::move(flag));
  }
  return command;
}

// What tandem's job came to, by its events; `at` says when it started and
// ended.
absl::StatusOr<JobRun> RunInMetrics(const std::string& path, Moments at) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> steps,
                          MetricsEvents(path, "step"));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> evaluations,
                          MetricsEvents(path, "eval"));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> summaries,
                          MetricsEvents(path, "summary"));
  const json& summary = summaries.back();
  const json& evaluation = evaluations.back();
  at.trained = steps.back().at("time");
  at.began = at.trained - summary.at("samples").get<double>() /
                              summary.at("samples_per_s").get<double>();
  at.saved = at.trained + summary.at("save_stall_ms").get<double>() / 1e3;
  at.evaluated = evaluation.at("time");
  JobRun run;
  TakeParts(at, run);
  run.steps = steps.back().at("step");
  run.floor_s = static_cast<double>(run.steps) *
                summary.at("step_ms_median").get<double>() / 1e3;
  for (const json& step : steps) run.losses.push_back(step.at("loss"));
  run.test_loss = evaluation.at("loss");
  run.test_accuracy = evaluation.at("accuracy");
  return run;
}

// The last line, which is the figures.
absl::StatusOr<json> FiguresIn(const std::string& out) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(out), '\n');
  json figures = json::parse(lines.back(), nullptr, /*allow_exceptions=*/false);
  if (figures.is_object()) return figures;
  return absl::InternalError(absl::StrCat(
      "the peer's last line has no figures: '", lines.back(), "'"));
}

}  // namespace

absl::StatusOr<JobRun> RunTandem(const JobPlan& plan, const JobSetup& setup) {
  const std::string metrics = NewPath(setup, "metrics.jsonl");
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> command,
                          TrainCommand(plan, setup, metrics));
  Moments at;
  TANDEM_RETURN_IF_ERROR(Run(command, setup, at).status());
  return RunInMetrics(metrics, at);
}

absl::StatusOr<JobRun> RunPeer(const JobPlan& plan, int workers,
                               const JobSetup& setup) {
  std::vector<std::string> command = setup.peer;
  for (std::string& flag : Flags(plan, setup)) {
    command.push_back(std::move(flag));
  }
  for (const std::string& flag :
       {absl::StrCat("--inputs=", setup.options.folder, "/inputs.safetensors"),
        absl::StrCat("--ranks=", plan.ranks),
        absl::StrCat("--workers=", workers),
        "--rendezvous=" + NewPath(setup, "rendezvous"),
        "--checkpoint=" + NewPath(setup, "peer.pt")}) {
    command.push_back(flag);
  }
  Moments at;
  TANDEM_ASSIGN_OR_RETURN(const std::string out, Run(command, setup, at));
  TANDEM_ASSIGN_OR_RETURN(const json figures, FiguresIn(out));
  at.began = figures.at("began");
  at.trained = figures.at("trained");
  at.saved = figures.at("saved");
  at.evaluated = figures.at("evaluated");
  JobRun run;
  TakeParts(at, run);
  run.steps = figures.at("steps");
  run.floor_s =
      static_cast<double>(run.steps) * figures.at("step_s").get<double>();
  run.losses = figures.at("losses").get<std::vector<double>>();
  run.test_loss = figures.at("test_loss");
  run.test_accuracy = figures.at("test_accuracy");
  return run;
}

}  // namespace tandem
