#include "core/checkpoint/row_parts.h"

#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_shard.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"

namespace tandem {
namespace {

// Whether `name` is `parameter`, or a state of it; `state` is what follows.
bool BelongsTo(absl::string_view name, absl::string_view parameter,
               absl::string_view* state) {
  *state = name;
  return absl::ConsumePrefix(state, parameter) &&
         (state->empty() || absl::StartsWith(*state, "."));
}

StoredTensor StoredRows(const StoredTensor& stored, const std::string& name,
                        const RowPart& part) {
  StoredTensor rows = stored;
  if (IsDivided(stored.info)) {
    TensorShard shard = WholeShard(stored.info.sizes);
    shard[0] = {{part.first, part.rows}};
    rows = StoredShard(stored, shard);
  }
  rows.info.name = name;
  return rows;
}

}  // namespace

std::optional<PartName> FindPart(absl::string_view name,
                                 const RowParts& parts) {
  const bool is_state = IsOptimizerStateName(name);
  const std::string of_model =
      is_state ? OptimizerStateName(name) : std::string(name);
  for (const auto& [parameter, part] : parts) {
    absl::string_view state;
    if (!BelongsTo(of_model, parameter, &state)) continue;
    const std::string whole = absl::StrCat(part.weight, state);
    return PartName{&part, is_state ? CheckpointNameOfState(whole) : whole};
  }
  return std::nullopt;
}

bool IsDivided(const TensorInfo& info) { return !info.sizes.empty(); }

TensorInfo WholeTensorInfo(const TensorInfo& info, const PartName& name) {
  TensorInfo whole = info;
  whole.name = name.whole;
  if (IsDivided(info)) whole.sizes[0] = name.part->all;
  return whole;
}

std::vector<TensorInfo> WithoutParts(const std::vector<TensorInfo>& tensors,
                                     const RowParts& parts) {
  std::vector<TensorInfo> whole;
  std::set<std::string> known;
  for (const TensorInfo& each : tensors) {
    const auto part = FindPart(each.name, parts);
    TensorInfo info = part ? WholeTensorInfo(each, *part) : each;
    if (known.insert(info.name).second) whole.push_back(std::move(info));
  }
  return whole;
}

StoredTensors DivideRows(const StoredTensors& stored, const RowParts& parts) {
  StoredTensors divided;
  for (const StoredTensor& each : stored) {
    bool is_whole = true;
    for (const auto& [parameter, part] : parts) {
      absl::string_view state;
      if (!BelongsTo(each.info.name, part.weight, &state)) continue;
      if (IsDivided(each.info) && each.info.sizes[0] != part.all) continue;
      divided.Add(StoredRows(each, absl::StrCat(parameter, state), part));
      is_whole = false;
    }
    if (is_whole) divided.Add(each);
  }
  return divided;
}

bool JoinedRows::ComesBefore(const TensorInfo& a, const TensorInfo& b) const {
  const auto of_a = FindPart(a.name, parts_);
  const auto of_b = FindPart(b.name, parts_);
  if (of_a && of_b && of_a->whole == of_b->whole) {
    return of_a->part->first < of_b->part->first;
  }
  return sink_.ComesBefore(of_a ? WholeTensorInfo(a, *of_a) : a,
                           of_b ? WholeTensorInfo(b, *of_b) : b);
}

absl::Status JoinedRows::Begin(std::vector<TensorInfo> infos) {
  left_.assign(infos.size(), 0);
  for (size_t i = infos.size(); i-- > 1;) {
    const auto mine = FindPart(infos[i].name, parts_);
    const auto before = FindPart(infos[i - 1].name, parts_);
    if (mine && before && mine->whole == before->whole) {
      left_[i - 1] = left_[i] + 1;
    }
  }
  return sink_.Begin(WithoutParts(infos, parts_));
}

absl::Status JoinedRows::Add(const at::Tensor& values) {
  const size_t left = left_[added_++];
  if (left == 0 && joining_.empty()) return sink_.Add(values);
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { joining_.push_back(values.detach().cpu()); }));
  if (left > 0) return absl::OkStatus();
  const std::vector<at::Tensor> parts = std::exchange(joining_, {});
  if (parts[0].dim() == 0) return sink_.Add(parts[0]);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor whole,
                          CatchTorchOr([&] { return at::cat(parts); }));
  return sink_.Add(whole);
}

}  // namespace tandem
