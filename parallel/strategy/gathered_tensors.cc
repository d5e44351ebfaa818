#include "parallel/strategy/gathered_tensors.h"

#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/pending_collective.h"

namespace tandem {
namespace {

std::string Purpose() { return "gathering the model's state"; }

// A tensor and who has it.
struct Owned {
  TensorInfo info;
  int rank;
  at::Tensor values;  // undefined: another rank's
};

// A line a tensor: name, dtype, sizes.
std::string Describe(const NamedTensors& tensors) {
  return absl::StrJoin(tensors, "\n", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.first, "\t",
                    static_cast<int>(each.second.scalar_type()), "\t",
                    absl::StrJoin(each.second.sizes(), ","));
  });
}

// What such a line says.
absl::StatusOr<TensorInfo> ParseForm(absl::string_view line) {
  const std::vector<std::string> parts = absl::StrSplit(line, '\t');
  int dtype = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &dtype)) {
    return absl::InternalError(
        absl::StrCat("not the description of a tensor: ", line));
  }
  TensorInfo info = {parts[0], static_cast<c10::ScalarType>(dtype), {}};
  for (const auto word : absl::StrSplit(parts[2], ',', absl::SkipEmpty())) {
    info.sizes.push_back(0);
    if (!absl::SimpleAtoi(word, &info.sizes.back())) {
      return absl::InternalError(absl::StrCat("not a size: ", word));
    }
  }
  return info;
}

void Sort(const TensorSink& sink, std::vector<Owned>* tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [&](const Owned& a, const Owned& b) {
              return sink.ComesBefore(a.info, b.info);
            });
}

std::vector<Owned> OwnedBy(int rank, const NamedTensors& mine) {
  std::vector<Owned> tensors;
  for (const auto& [name, tensor] : mine) {
    tensors.push_back({MakeTensorInfo(name, tensor), rank, tensor});
  }
  return tensors;
}

// Groups of several stages carry what lies on the host, where streams do not
// serve the devices of all.
at::Tensor Carried(const at::Tensor& values, const Communicator& group) {
  return group.backend_names().HasStreams(values.device().type())
             ? values.detach().cpu()
             : values.detach();
}

absl::Status SendAll(std::vector<Owned> mine, Communicator& group,
                     const TensorSink& sink) {
  Sort(sink, &mine);
  for (const Owned& each : mine) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor, CatchTorchOr([&] {
                              return Carried(each.values, group).contiguous();
                            }));
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective sent,
        group.StartSend(tensor, /*to=*/0, /*tag=*/0, Purpose));
    TANDEM_RETURN_IF_ERROR(sent.Wait());
  }
  return absl::OkStatus();
}

// Into the host's memory, where a sink wants it, wherever it comes from.
absl::StatusOr<at::Tensor> Receive(const Owned& tensor, Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(at::Tensor values, CatchTorchOr([&] {
                            return at::empty(tensor.info.sizes,
                                             tensor.info.dtype);
                          }));
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective coming,
      group.StartReceive(values, tensor.rank, /*tag=*/0, Purpose));
  TANDEM_RETURN_IF_ERROR(coming.Wait());
  return values;
}

absl::Status TakeAll(std::vector<Owned> tensors, Communicator& group,
                     TensorSink& sink) {
  Sort(sink, &tensors);
  std::vector<TensorInfo> infos;
  for (const Owned& each : tensors) infos.push_back(each.info);
  TANDEM_RETURN_IF_ERROR(sink.Begin(std::move(infos)));
  for (const Owned& each : tensors) {
    if (each.values.defined()) {
      TANDEM_RETURN_IF_ERROR(sink.Add(each.values));
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, Receive(each, group));
    TANDEM_RETURN_IF_ERROR(sink.Add(values));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StreamToRank0(const NamedTensors& mine, Communicator& group,
                           TensorSink& sink) {
  if (group.size() == 1) return StreamTensors(mine, sink);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          group.AllGatherString(Describe(mine), Purpose));
  std::vector<Owned> tensors = OwnedBy(group.rank(), mine);
  if (group.rank() != 0) return SendAll(std::move(tensors), group, sink);
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string& theirs = all[static_cast<size_t>(rank)];
    for (const auto line : absl::StrSplit(theirs, '\n', absl::SkipEmpty())) {
      TANDEM_ASSIGN_OR_RETURN(TensorInfo info, ParseForm(line));
      tensors.push_back({std::move(info), rank, at::Tensor()});
    }
  }
  return TakeAll(std::move(tensors), group, sink);
}

}  // namespace tandem
