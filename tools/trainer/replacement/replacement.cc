#include "tools/trainer/replacement/replacement.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Device.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/dtype_names.h"
#include "core/base/environment.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/instrument/fault_point.h"
#include "core/program/interrupt.h"
#include "core/run/setup_failure.h"
#include "parallel/optim/optimizer.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/checkpoints/resume.h"

namespace tandem {
namespace {

// All of a state but the tensors' values, as fields: numbers of things before
// them.
std::string EncodeInfos(const KeptState& state) {
  std::string text;
  const auto add = [&text](const auto& field) {
    AppendField(absl::StrCat(field), &text);
  };
  const SafetensorsMetadata metadata = CheckpointMetadata(state.progress);
  add(state.evaluated);
  add(metadata.size());
  for (const auto& [key, value] : metadata) {
    add(key);
    add(value);
  }
  for (const auto& [name, tensor] : state.tensors) {
    add(name);
    add(DtypeName(tensor.scalar_type()));
    add(tensor.dim());
    for (const int64_t size : tensor.sizes()) add(size);
  }
  return text;
}

// Reads what EncodeInfos wrote; `ok` until something else stands there.
class InfoReader {
 public:
  explicit InfoReader(absl::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  bool at_end() const { return text_.empty(); }

  std::string Text() {
    const auto field = TakeField(&text_);
    ok_ = ok_ && field.has_value();
    return ok_ ? std::string(*field) : std::string();
  }
  int64_t Number() {
    int64_t number = 0;
    ok_ = absl::SimpleAtoi(Text(), &number) && number >= 0 && ok_;
    return ok_ ? number : 0;
  }

 private:
  absl::string_view text_;
  bool ok_ = true;
};

at::Tensor ReadTensor(InfoReader& reader) {
  const auto dtype = DtypeOfName(reader.Text());
  std::vector<int64_t> sizes;
  const int64_t dim = reader.Number();
  for (int64_t i = 0; i < dim && reader.ok(); ++i) {
    sizes.push_back(reader.Number());
  }
  if (!dtype || !reader.ok()) return at::Tensor();
  return at::empty(sizes, at::TensorOptions(*dtype));
}

// The state that EncodeInfos described; its tensors have no values yet.
absl::StatusOr<KeptState> DecodeInfos(const std::string& from,
                                      absl::string_view text) {
  InfoReader reader(text);
  KeptState state;
  SafetensorsMetadata metadata;
  state.evaluated = reader.Number();
  const int64_t entries = reader.Number();
  for (int64_t i = 0; i < entries && reader.ok(); ++i) {
    const std::string key = reader.Text();
    metadata[key] = reader.Text();
  }
  while (reader.ok() && !reader.at_end()) {
    const std::string name = reader.Text();
    state.tensors.emplace_back(name, ReadTensor(reader));
    if (!state.tensors.back().second.defined()) {
      return absl::DataLossError(
          absl::StrCat(from, ": what it says of tensor '", name,
                       "' of its state cannot be read"));
    }
  }
  if (!reader.ok()) {
    return absl::DataLossError(
        absl::StrCat(from, ": what it says of its state cannot be read"));
  }
  TANDEM_ASSIGN_OR_RETURN(state.progress, ProgressOfCheckpoint(from, metadata));
  return state;
}

// Copies of what this rank has: replicas share nothing. Not collective: groups
// may be broken.
absl::StatusOr<KeptState> KeepState(const Job& job, const JobStand& stand) {
  const Strategy& strategy = *job.strategy;
  NamedTensors model = strategy.Parameters();
  for (auto& each : strategy.Buffers()) model.push_back(std::move(each));
  NamedTensors optimizer = strategy.OptimizerState();
  for (auto& each : strategy.OptimizerStateOfCopies()) {
    optimizer.push_back(std::move(each));
  }
  KeptState state = {CurrentProgress(job, stand.position), stand.evaluated, {}};
  TANDEM_ASSIGN_OR_RETURN(state.tensors, CheckpointTensors(model, optimizer));
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    for (auto& each : state.tensors) {
      each.second = each.second.detach()
                        .to(at::kCPU, /*non_blocking=*/false, /*copy=*/true)
                        .contiguous();
    }
  }));
  return state;
}

// The state of rank `source` of `group`, which passes it as `mine`; others'
// `mine` is not looked at. `from`: whose it is, for messages. TANDEM_FAULT's
// point "take_over:I" comes before tensor I. Collective.
absl::StatusOr<KeptState> ShareState(const KeptState& mine, int source,
                                     const std::string& from,
                                     Communicator& group) {
  const bool is_mine = group.rank() == source;
  const CollectivePurpose purpose = [] { return "the state of the job"; };
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> infos,
      group.AllGatherString(is_mine ? EncodeInfos(mine) : "", purpose));
  KeptState state = mine;
  if (!is_mine) {
    TANDEM_ASSIGN_OR_RETURN(
        state, DecodeInfos(from, infos[static_cast<size_t>(source)]));
  }
  int64_t index = 0;
  for (const auto& each : state.tensors) {
    TANDEM_RETURN_IF_ERROR(FaultPoint("take_over", index++));
    TANDEM_RETURN_IF_ERROR(group.Broadcast(each.second, source, purpose));
  }
  return state;
}

using SizesByName = std::map<std::string, std::vector<int64_t>>;

// The whole sizes of parameters of which this rank has a part.
absl::StatusOr<SizesByName> SizesOfDivided(const Strategy& strategy) {
  SizesByName sizes;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TensorInfo> whole,
                          strategy.WholeTensors());
  for (const TensorInfo& each : whole) sizes[each.name] = each.sizes;
  for (const auto& [name, tensor] : strategy.Parameters()) {
    const auto found = sizes.find(name);
    if (found != sizes.end() && tensor.sizes() == found->second) {
      sizes.erase(found);
    }
  }
  return sizes;
}

// A tensor as one that is stored: of a divided one this rank's part, which is
// what it reads of it.
StoredTensor MakeStored(const std::string& name, const at::Tensor& values,
                        const SizesByName& divided) {
  StoredTensor stored;
  stored.info = MakeTensorInfo(name, values);
  stored.read = [values]() -> absl::StatusOr<at::Tensor> { return values; };
  const auto whole = divided.find(IsOptimizerStateName(name)
                                      ? ParameterName(OptimizerStateName(name))
                                      : name);
  if (whole == divided.end() || values.dim() == 0) return stored;
  stored.info.sizes = whole->second;
  stored.read_shard = [values](const TensorShard& /*mine*/,
                               const at::Tensor& target) {
    return CatchTorch([&] { target.copy_(values); });
  };
  return stored;
}

// Puts the job's strategy into the state. `from`: whose it is, for messages.
absl::Status LoadState(const KeptState& state, const std::string& from,
                       Job& job) {
  StoredCheckpoint checkpoint;
  checkpoint.progress = state.progress;
  TANDEM_ASSIGN_OR_RETURN(const SizesByName divided,
                          SizesOfDivided(*job.strategy));
  for (const auto& [name, values] : state.tensors) {
    AddStored(MakeStored(name, values, divided), &checkpoint);
  }
  return LoadCheckpoint(checkpoint, from, job);
}

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

JobStand KeptState::stand() const {
  return {SavedPosition(progress), evaluated};
}

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
    lines.push_back(absl::StrCat(
        RankList(left_out, left_out.size()),
        left_out.size() == 1 ? " waits for lost ranks of its replica"
                             : " wait for lost ranks of their replicas"));
  }
  const std::vector<int> ranks = member_.generation().Ranks();
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
  const std::string from = absl::StrCat(
      "the state of rank ", now.members[static_cast<size_t>(source)].rank);
  TANDEM_ASSIGN_OR_RETURN(
      const KeptState state,
      ShareState(Mine(), job.mesh.ReplicaIndex(source), from, *replicas));
  TANDEM_RETURN_IF_ERROR(LoadState(state, from, job));
  // Each rank keeps its own state until all have the new one.
  TANDEM_RETURN_IF_ERROR(
      job.world->Barrier([] { return "until all have the job's state"; }));
  kept_.reset();
  kept_next_.reset();
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
