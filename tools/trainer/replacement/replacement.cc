#include "tools/trainer/replacement/replacement.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>

#include <chrono>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/some_of.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/program/interrupt.h"
#include "core/run/setup_failure.h"
#include "parallel/strategy/strategy.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// Within which a launcher says that a rank has died, or another rank that it
// goes on.
constexpr milliseconds kNewsTime = std::chrono::seconds(10);

// What a process takes once, whatever generations come.
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
  job.options.ddp.shard_optimizer = "off";
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
  if (first.world_size == 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        given, " has other ranks go on when one dies, but this job has one ",
        "alone: give --nproc_per_node=2 or more, or --max_restarts"));
  }
  if (first.launcher != "tandem" || first.nnodes > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        given, " is for ranks that one launcher of this program's own starts ",
        "(--nproc_per_node), but they were started by ",
        first.nnodes > 1 ? absl::StrCat(first.nnodes, " launchers")
                         : first.launcher,
        ": leave it out, and use --max_restarts"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Replacement>> Replacement::Enter(
    const TrainOptions& options, const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const int life, LifeOf(Environment::OfProcess()));
  const auto timeout =
      milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  TANDEM_ASSIGN_OR_RETURN(JobMember member,
                          JobMember::Create(launch, life, timeout));
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
  const std::vector<int> ranks = member_.generation().Ranks();
  lines.push_back(absl::StrCat(
      RankList(ranks, ranks.size()), " of ", launched_,
      ranks.size() == 1 ? " goes" : " go", " on after step ", step, ", with ",
      job.batch_size_per_replica * static_cast<int64_t>(ranks.size()),
      " samples a step"));
  return lines;
}

absl::StatusOr<std::vector<std::string>> Replacement::Begin(Job& job,
                                                            JobStand* stand) {
  const Generation& now = member_.generation();
  if (now.number == 0) {
    TANDEM_RETURN_IF_ERROR(member_.NoteBegun());
    return std::vector<std::string>();
  }
  const int source = now.Source().value_or(0);
  const std::string from = absl::StrCat(
      "the state of rank ", now.members[static_cast<size_t>(source)].rank);
  TANDEM_ASSIGN_OR_RETURN(
      const KeptState state,
      ShareState(kept_.value_or(KeptState()), source, *job.world));
  TANDEM_RETURN_IF_ERROR(LoadState(state, from, job));
  // Until all have it, each keeps what it had.
  TANDEM_RETURN_IF_ERROR(
      job.world->Barrier([] { return "until all have the job's state"; }));
  kept_.reset();
  *stand = state.stand();
  return Describe(job, stand->position.step);
}

absl::Status Replacement::BeginStep(const Job& job) {
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    buffers_.clear();
    for (const auto& each : job.strategy->Buffers()) {
      buffers_.emplace_back(each.second, each.second.clone());
    }
  });
}

absl::Status Replacement::Keep(const Job& job, const JobStand& stand) {
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    const at::NoGradGuard no_grad;
    for (auto& [live, before] : buffers_) live.copy_(before);
    buffers_.clear();
  }));
  TANDEM_ASSIGN_OR_RETURN(kept_, KeepState(job, stand));
  return absl::OkStatus();
}

absl::StatusOr<bool> Replacement::GoOn(const absl::Status& error) {
  if (InterruptSignal() != 0) return error;
  if (!lets_in_) {
    if (IsOwnFault(error)) return error;
    TANDEM_ASSIGN_OR_RETURN(const bool ended, member_.HasEnded(kNewsTime));
    if (!ended) return error;
  }
  lets_in_ = false;
  return member_.GoOn(kept_ ? kept_->progress.step : kNoState);
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
