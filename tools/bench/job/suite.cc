#include "tools/bench/job/suite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/program/process.h"
#include "core/program/progress.h"
#include "datasets/mnist.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

constexpr int kUsualRounds = 5;

// Sums in another order move two trainings apart, step by step: after an epoch
// of cnn its losses differ by up to 5 %.
constexpr double kFirstEndTolerance = 1e-3;
constexpr double kEndTolerance = 0.1;

Case JobCase(const Workload& workload, int ranks) {
  Case made;
  made.name = absl::StrCat(workload.model, "/", ranks, "x1");
  made.workload = workload;
  made.layout.replicas = ranks;
  return made;
}

std::string Workers(int count) {
  return absl::StrCat("Python with ", count, " workers");
}

// A case, and how both sides run it.
class Contest {
 public:
  Contest(const Case& bench, const std::vector<int>& workers, JobSetup setup,
          Progress& progress)
      : bench_(bench),
        workers_(workers),
        setup_(std::move(setup)),
        progress_(progress) {}

  absl::StatusOr<JobResult> Run() {
    TANDEM_RETURN_IF_ERROR(WriteInputs(bench_, setup_.options));
    TANDEM_RETURN_IF_ERROR(CompareFirstSteps());
    TANDEM_RETURN_IF_ERROR(ChooseWorkers());
    std::vector<double> our_s;
    std::vector<double> peer_s;
    TANDEM_RETURN_IF_ERROR(TakeTurns(
        setup_.options.rounds,
        [&] { return TimeOf(Ours(Whole()), result_.ours); },
        [&] {
          return TimeOf(Peers(Whole(), result_.peer_workers), result_.peer);
        },
        our_s, peer_s));
    return result_;
  }

 private:
  JobPlan Whole() const {
    JobPlan plan;
    plan.workload = bench_.workload;
    plan.ranks = bench_.layout.ranks();
    plan.steps = setup_.options.StepsPerRound(bench_.workload);
    return plan;
  }

  absl::StatusOr<JobRun> Ours(const JobPlan& plan) {
    progress_.BeginPart(absl::StrCat(bench_.name, ", tandem"));
    return RunTandem(plan, setup_);
  }

  absl::StatusOr<JobRun> Peers(const JobPlan& plan, int workers) {
    progress_.BeginPart(absl::StrCat(bench_.name, ", ", Workers(workers)));
    return RunPeer(plan, workers, setup_);
  }

  absl::Status CompareFirstSteps() {
    JobPlan plan = Whole();
    plan.log_every = 1;
    const int64_t compared = bench_.workload.compared_steps;
    plan.steps = plan.steps == 0 ? compared : std::min(plan.steps, compared);
    TANDEM_ASSIGN_OR_RETURN(const JobRun ours, Ours(plan));
    for (const int workers : workers_) {
      TANDEM_ASSIGN_OR_RETURN(const JobRun peer, Peers(plan, workers));
      TANDEM_RETURN_IF_ERROR(CompareLosses(ours.losses, Workers(workers),
                                           peer.losses, LossTolerance("fp32")));
    }
    return absl::OkStatus();
  }

  // Ours chooses its kernels meanwhile.
  absl::Status ChooseWorkers() {
    TANDEM_ASSIGN_OR_RETURN(const JobRun ours, Ours(Whole()));
    double least_s = std::numeric_limits<double>::infinity();
    for (const int workers : workers_) {
      TANDEM_ASSIGN_OR_RETURN(const JobRun peer, Peers(Whole(), workers));
      TANDEM_RETURN_IF_ERROR(
          CompareEnds(bench_.name, ours, peer, kEndTolerance));
      if (peer.whole_s >= least_s) continue;
      least_s = peer.whole_s;
      result_.peer_workers = workers;
    }
    result_.name = bench_.name;
    return absl::OkStatus();
  }

  static absl::StatusOr<double> TimeOf(const absl::StatusOr<JobRun>& run,
                                       std::vector<JobRun>& runs) {
    TANDEM_RETURN_IF_ERROR(run.status());
    runs.push_back(*run);
    return run->whole_s;
  }

  const Case& bench_;
  const std::vector<int>& workers_;
  const JobSetup setup_;
  Progress& progress_;
  JobResult result_;
};

std::vector<double> Values(const std::vector<JobRun>& runs,
                           double JobRun::*value) {
  std::vector<double> values;
  for (const JobRun& each : runs) values.push_back(each.*value);
  return values;
}

void AddSide(const std::string& name, const char* side,
             const std::vector<JobRun>& runs, Table& parts, Table& ends) {
  parts.Add({name, side, Median(Values(runs, &JobRun::start_s)),
             Median(Values(runs, &JobRun::training_s)),
             Median(Values(runs, &JobRun::checkpoint_s)),
             Median(Values(runs, &JobRun::evaluation_s)),
             Median(Values(runs, &JobRun::end_s))});
  const JobRun& last = runs.back();
  ends.Add(
      {name, side, last.losses.back(), last.test_loss, last.test_accuracy});
}

absl::Status Differs(const std::string& name, const char* what, double ours,
                     double peers) {
  return absl::InternalError(absl::StrFormat(
      "%s: tandem's %s is %.6g, its peer's is %.6g: they do not do the same, "
      "so their times say nothing",
      name, what, ours, peers));
}

}  // namespace

std::vector<Case> JobCases() {
  Workload cnn = *WorkloadNamed("cnn");
  cnn.steps = 0;
  Workload resnet = *WorkloadNamed("resnet18");
  resnet.input_shape = cnn.input_shape;
  resnet.batch_size = cnn.batch_size;
  resnet.steps = 100;
  return {JobCase(cnn, 1), JobCase(cnn, 2), JobCase(resnet, 1)};
}

absl::Status CompareEnds(const std::string& name, const JobRun& ours,
                         const JobRun& peer, double tolerance) {
  if (ours.steps != peer.steps || ours.losses.size() != peer.losses.size()) {
    return Differs(name, "number of steps", static_cast<double>(ours.steps),
                   static_cast<double>(peer.steps));
  }
  // False for NaN.
  const auto alike = [&](double one, double other, double scale) {
    return std::abs(one - other) <= tolerance * std::abs(scale);
  };
  if (!alike(ours.losses.back(), peer.losses.back(), peer.losses.back())) {
    return Differs(name, "last loss", ours.losses.back(), peer.losses.back());
  }
  if (!alike(ours.test_loss, peer.test_loss, peer.test_loss)) {
    return Differs(name, "test loss", ours.test_loss, peer.test_loss);
  }
  if (!alike(ours.test_accuracy, peer.test_accuracy, 1)) {
    return Differs(name, "test accuracy", ours.test_accuracy,
                   peer.test_accuracy);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JobResult>> CompareJobs(const JobBench& bench) {
  const auto before = 2 * (1 + bench.peer_workers.size());
  Progress progress(
      "jobs",
      static_cast<int64_t>(bench.cases.size() *
                           (before + 2 * bench.setup.options.rounds)),
      Progress::ToStderr());
  std::vector<JobResult> results;
  for (const Case& each : bench.cases) {
    JobSetup setup = bench.setup;
    TANDEM_ASSIGN_OR_RETURN(setup.options,
                            InOwnFolder(setup.options, each.name));
    CoreSharing sharing;
    sharing.ranks = each.layout.ranks();
    setup.options.threads = IntraOpThreads(/*requested=*/0, sharing);
    TANDEM_ASSIGN_OR_RETURN(
        results.emplace_back(),
        Contest(each, bench.peer_workers, std::move(setup), progress).Run());
  }
  return results;
}

std::vector<Table> JobTables(const std::vector<JobResult>& results) {
  Table jobs = {"jobs",
                {{"name"},
                 {"steps"},
                 {"ours", "s", 2},
                 {"peer", "s", 2},
                 {"ratio", "", 2},
                 {"ratio_min", "", 2},
                 {"ratio_max", "", 2},
                 {"our_floor", "s", 2},
                 {"peer_floor", "s", 2},
                 {"peer_workers"}}};
  Table parts = {"parts",
                 {{"name"},
                  {"side"},
                  {"start", "s", 2},
                  {"training", "s", 2},
                  {"checkpoint", "s", 2},
                  {"evaluation", "s", 2},
                  {"end", "s", 2}}};
  Table ends = {
      "ends", {{"name"}, {"side"}, {"loss"}, {"test_loss"}, {"test_accuracy"}}};
  for (const JobResult& result : results) {
    const std::vector<double> our_s = Values(result.ours, &JobRun::whole_s);
    const std::vector<double> peer_s = Values(result.peer, &JobRun::whole_s);
    const Ratio ratio = PairedRatio(peer_s, our_s);
    jobs.Add({result.name, result.ours.back().steps, Median(our_s),
              Median(peer_s), ratio.ratio, ratio.min, ratio.max,
              Median(Values(result.ours, &JobRun::floor_s)),
              Median(Values(result.peer, &JobRun::floor_s)),
              result.peer_workers});
    AddSide(result.name, "tandem", result.ours, parts, ends);
    AddSide(result.name, "peer", result.peer, parts, ends);
  }
  return {jobs, parts, ends};
}

absl::StatusOr<SuiteReport> RunJobSuite(const BenchFlags& flags,
                                        const std::string& folder) {
  JobBench bench;
  TANDEM_ASSIGN_OR_RETURN(bench.cases, CasesNamed(JobCases(), flags.cases));
  TANDEM_ASSIGN_OR_RETURN(bench.setup.options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  TANDEM_ASSIGN_OR_RETURN(const std::string python, bench.setup.options.python);
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/job.py"));
  bench.setup.peer = {"/usr/bin/env", python, script};
  TANDEM_ASSIGN_OR_RETURN(bench.setup.data_dir, BundledFashionMnist());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<JobResult> results,
                          CompareJobs(bench));
  return SuiteReport{JobTables(results)};
}

}  // namespace tandem
