#include "tools/trainer/replacement/kept_state.h"

#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/instrument/fault_point.h"
#include "parallel/optim/optimizer.h"
#include "parallel/strategy/strategy.h"
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

}  // namespace

JobStand KeptState::stand() const {
  return {SavedPosition(progress), evaluated};
}

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

absl::Status ShareProgress(int source, const std::string& from,
                           Communicator& world, KeptState* state) {
  const bool is_mine = world.rank() == source;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> infos,
      world.AllGatherString(
          is_mine ? EncodeInfos({state->progress, state->evaluated, {}}) : "",
          [] { return "the progress of the job"; }));
  if (is_mine) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      const KeptState taken,
      DecodeInfos(from, infos[static_cast<size_t>(source)]));
  state->progress = taken.progress;
  state->evaluated = taken.evaluated;
  return absl::OkStatus();
}

namespace {

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

}  // namespace

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

}  // namespace tandem
