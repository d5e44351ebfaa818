#include "parallel/gathered_tensors.h"

#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/pending_collective.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

// A line a tensor: name, dtype, sizes.
std::string Describe(const NamedTensors& tensors) {
  return absl::StrJoin(tensors, "\n", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.first, "\t",
                    static_cast<int>(each.second.scalar_type()), "\t",
                    absl::StrJoin(each.second.sizes(), ","));
  });
}

// Memory for what such a text describes.
absl::StatusOr<NamedTensors> Allocate(const std::string& text,
                                      c10::Device device) {
  NamedTensors tensors;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    int dtype = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &dtype)) {
      return absl::InternalError(
          absl::StrCat("not the description of a tensor: ", line));
    }
    std::vector<int64_t> sizes;
    for (const auto word : absl::StrSplit(parts[2], ',', absl::SkipEmpty())) {
      sizes.push_back(0);
      if (!absl::SimpleAtoi(word, &sizes.back())) {
        return absl::InternalError(absl::StrCat("not a size: ", word));
      }
    }
    TANDEM_ASSIGN_OR_RETURN(
        at::Tensor tensor, CatchTorchOr([&] {
          return at::empty(sizes, at::device(device).dtype(
                                      static_cast<at::ScalarType>(dtype)));
        }));
    tensors.emplace_back(parts[0], std::move(tensor));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<NamedTensors> GatherOnRank0(const NamedTensors& mine,
                                           Communicator& group) {
  if (group.size() == 1) return mine;
  const auto purpose = [] { return "gathering the model's state"; };
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          group.AllGatherString(Describe(mine), purpose));
  if (group.rank() != 0) {
    for (const auto& each : mine) {
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor, CatchTorchOr([&] {
                                return each.second.detach().contiguous();
                              }));
      TANDEM_ASSIGN_OR_RETURN(
          PendingCollective sent,
          group.StartSend(tensor, /*to=*/0, /*tag=*/0, purpose));
      TANDEM_RETURN_IF_ERROR(sent.Wait());
    }
    return NamedTensors();
  }
  // What this group's backend moves lies where the ranks' tensors do.
  const c10::Device device =
      mine.empty() ? c10::Device(c10::kCPU) : mine.front().second.device();
  NamedTensors gathered = mine;
  for (int rank = 1; rank < group.size(); ++rank) {
    TANDEM_ASSIGN_OR_RETURN(NamedTensors its,
                            Allocate(all[static_cast<size_t>(rank)], device));
    for (auto& each : its) {
      TANDEM_ASSIGN_OR_RETURN(
          PendingCollective coming,
          group.StartReceive(each.second, rank, /*tag=*/0, purpose));
      TANDEM_RETURN_IF_ERROR(coming.Wait());
      gathered.emplace_back(each.first, each.second.cpu());
    }
  }
  return gathered;
}

}  // namespace tandem
