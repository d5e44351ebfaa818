#include "tools/trainer/replacement/replacement.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/program/interrupt.h"
#include "core/run/setup_failure.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/checkpoints/job_progress.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// How long to wait for a launcher to say that a rank has died, or for another
// rank to say that it goes on.
constexpr milliseconds kNewsTime = std::chrono::seconds(10);

// What a process sets up once, for all generations.
struct Host {
  std::vector<c10::Device> devices;
  int intra_op_threads = 1;
  std::string job;  // its id
};

// Nothing of the job lives when this returns.
absl::Status RunOne(const Job& first, const RunGeneration& run,
                    Replacement& replacement, Host* host) {
  Job job;
  job.options = first.options;
  // Each rank must have all of the state that another may take over.
  job.options.ddp.shard = "off";
  job.restarts = first.restarts;
  job.launch = replacement.LaunchNow();
  job.present = replacement.RanksNow();
  job.devices = host->devices;
  job.intra_op_threads = host->intra_op_threads;
  job.id = host->job;
  absl::Status done = run(job, &replacement);
  *host = {job.devices, job.intra_op_threads, job.id};
  return done;
}

}  // namespace

absl::Status CheckReplacement(const TrainOptions& options,
                              const Launch& first) {
  if (options.replace_replicas == 0) return absl::OkStatus();
  const std::string given =
      absl::StrCat("--replace_replicas=", options.replace_replicas);
  const int64_t ranks = RanksOfReplica(options.pipeline);
  return CheckRules({
      {first.world_size <= ranks,
       absl::StrCat(given,
                    " has other replicas go on when a rank dies, but this job "
                    "has one alone: give --nproc_per_node=",
                    2 * ranks, " or more, or --max_restarts")},
      {first.launcher != "tandem" || first.nnodes > 1,
       absl::StrCat(given,
                    " is for ranks that one launcher of this program's own "
                    "starts (--nproc_per_node), but they were started by ",
                    first.nnodes > 1 ? absl::StrCat(first.nnodes, " launchers")
                                     : first.launcher,
                    ": leave it out, and use --max_restarts")},
  });
}

absl::StatusOr<std::unique_ptr<Replacement>> Replacement::Enter(
    const TrainOptions& options, const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const int life, RankLife(Environment::OfProcess()));
  const auto timeout =
      milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  const auto ranks = static_cast<int>(RanksOfReplica(options.pipeline));
  TANDEM_ASSIGN_OR_RETURN(JobMember member,
                          JobMember::Create(launch, life, timeout, ranks));
  TANDEM_ASSIGN_OR_RETURN(const bool is_in, member.Enter());
  if (!is_in) return std::unique_ptr<Replacement>();
  return absl::WrapUnique(
      new Replacement(std::move(member), launch.world_size));
}

PresentRanks Replacement::RanksNow() const {
  const Generation& now = member_.generation();
  return {launched_, now.Ranks(), /*is_first=*/now.number == 0};
}

std::vector<std::string> Replacement::Describe(const Job& job,
                                               int64_t step) const {
  std::vector<std::string> lines;
  for (const std::string& each : member_.lost()) {
    lines.push_back(absl::StrCat("lost ", each));
  }
  const std::vector<int>& left_out = member_.left_out();
  if (!left_out.empty()) {
    lines.push_back(absl::StrCat(RankList(left_out, left_out.size()),
                                 left_out.size() == 1 ? " waits" : " wait",
                                 " for others to make a replica with"));
  }
  std::vector<int> ranks = member_.generation().Ranks();
  std::sort(ranks.begin(), ranks.end());
  lines.push_back(absl::StrCat(RankList(ranks, ranks.size()), " of ", launched_,
                               ranks.size() == 1 ? " goes" : " go",
                               " on after step ", step, ", with ",
                               job.batch_size(), " samples a step"));
  return lines;
}

const KeptState& Replacement::Mine() const {
  static const auto* const none = new KeptState();
  const int64_t step = member_.generation().Step();
  if (kept_next_ && kept_next_->progress.step == step) return *kept_next_;
  return kept_ ? *kept_ : *none;
}

absl::StatusOr<std::vector<std::string>> Replacement::Begin(Job& job,
                                                            JobStand* stand) {
  const Generation& now = member_.generation();
  if (now.number == 0) {
    TANDEM_RETURN_IF_ERROR(member_.NoteBegun());
    return std::vector<std::string>();
  }
  // The ranks that have the same of the model as this one.
  TANDEM_ASSIGN_OR_RETURN(
      const auto replicas,
      job.world->Subgroup(job.mesh.RanksOfReplicas(job.world->rank()),
                          "replicas' states"));
  const int source = now.Source(job.world->rank()).value_or(0);
  const auto state_of = [&](int place) {
    return absl::StrCat("the state of rank ",
                        now.members[static_cast<size_t>(place)].rank);
  };
  const std::string from = state_of(source);
  TANDEM_ASSIGN_OR_RETURN(
      KeptState state,
      ShareState(Mine(), job.mesh.ReplicaIndex(source), from, *replicas));
  const int first = now.Source(0).value_or(0);
  TANDEM_RETURN_IF_ERROR(
      ShareProgress(first, state_of(first), *job.world, &state));
  TANDEM_RETURN_IF_ERROR(LoadState(state, from, job));
  // Each rank keeps its own state until all have the new one.
  TANDEM_RETURN_IF_ERROR(
      job.world->Barrier([] { return "until all have the job's state"; }));
  kept_next_.reset();
  *stand = state.stand();
  // What comes before the first step may be broken off, too.
  kept_ = std::move(state);
  return Describe(job, stand->position.step);
}

absl::Status Replacement::BeginStep(const Job& job) {
  kept_.reset();
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    buffers_.clear();
    for (const auto& each : job.strategy->Buffers()) {
      buffers_.emplace_back(each.second, each.second.clone());
    }
  });
}

absl::Status Replacement::Keep(const Job& job, const JobStand& stand,
                               const JobStand& next) {
  std::vector<at::Tensor> after;  // buffers
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    const at::NoGradGuard no_grad;
    for (auto& [live, before] : buffers_) {
      after.push_back(live.clone());
      live.copy_(before);
    }
  }));
  TANDEM_ASSIGN_OR_RETURN(kept_, KeepState(job, stand));
  TANDEM_ASSIGN_OR_RETURN(const bool has_next, job.strategy->EndBrokenStep());
  if (has_next) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < after.size(); ++i) {
        buffers_[i].first.copy_(after[i]);
      }
    }));
    TANDEM_ASSIGN_OR_RETURN(kept_next_, KeepState(job, next));
  }
  buffers_.clear();
  return absl::OkStatus();
}

absl::StatusOr<bool> Replacement::GoOn(const absl::Status& error) {
  if (InterruptSignal() != 0) return error;
  if (!admits_) {
    if (IsOwnFault(error)) return error;
    TANDEM_ASSIGN_OR_RETURN(const bool ended, member_.HasEnded(kNewsTime));
    if (!ended) return error;
  }
  admits_ = false;
  return member_.GoOn(kept_ ? kept_->progress.step : kNoState,
                      kept_next_.has_value());
}

absl::Status RunGenerations(Job first, const RunGeneration& run) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Replacement> replacement,
                          Replacement::Enter(first.options, first.launch));
  Host host;
  bool goes_on = replacement != nullptr;
  while (goes_on) {
    const absl::Status done = RunOne(first, run, *replacement, &host);
    if (done.ok()) return replacement->Finish();
    TANDEM_ASSIGN_OR_RETURN(goes_on, replacement->GoOn(done));
  }
  return absl::OkStatus();
}

}  // namespace tandem
