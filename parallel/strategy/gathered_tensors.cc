#include "parallel/strategy/gathered_tensors.h"

#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_shard.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/comm/pending_collective.h"

namespace tandem {
namespace {

std::string Purpose() { return "gathering the model's state"; }

// What a rank has of a tensor.
struct Owned {
  TensorInfo info;  // of the tensor
  int rank;
  at::Tensor values;           // undefined: another rank's
  std::vector<int64_t> sizes;  // theirs
  // Where they lie in the tensor, of which other ranks have the rest; none: it
  // is all of it.
  std::optional<TensorSlice> slice;
};

// A line a tensor: name, dtype, sizes, and of a slice where it lies.
std::string Describe(const StatePart& part) {
  return absl::StrJoin(
      part.tensors, "\n", [&](std::string* out, const auto& each) {
        absl::StrAppend(out, each.first, "\t",
                        static_cast<int>(each.second.scalar_type()), "\t",
                        absl::StrJoin(each.second.sizes(), ","));
        const auto slice = part.slices.find(each.first);
        if (slice == part.slices.end()) return;
        absl::StrAppend(out, "\t", FormatSlice(slice->second), "\t",
                        FormatShard(slice->second.shard));
      });
}

absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &sizes.emplace_back())) {
      return absl::InternalError(absl::StrCat("not a size: ", word));
    }
  }
  return sizes;
}

// What such a line of another rank says.
absl::StatusOr<Owned> ParseLine(int rank, absl::string_view line) {
  const std::vector<std::string> parts = absl::StrSplit(line, '\t');
  int dtype = 0;
  const bool is_slice = parts.size() == 5;
  if ((parts.size() != 3 && !is_slice) || !absl::SimpleAtoi(parts[1], &dtype)) {
    return absl::InternalError(
        absl::StrCat("not the description of a tensor: ", line));
  }
  Owned owned = {{}, rank, at::Tensor(), {}, std::nullopt};
  TANDEM_ASSIGN_OR_RETURN(owned.sizes, ParseSizes(parts[2]));
  owned.info = {parts[0], static_cast<c10::ScalarType>(dtype), owned.sizes};
  if (!is_slice) return owned;
  TensorSlice& slice = owned.slice.emplace();
  if (!ParseSlice(parts[3], &slice) || !ParseShard(parts[4], &slice.shard)) {
    return absl::InternalError(absl::StrCat("not a slice: ", line));
  }
  owned.info.sizes = slice.sizes;
  return owned;
}

// Slices of one tensor in the order of ranks.
void Sort(const TensorSink& sink, std::vector<Owned>* tensors) {
  std::sort(
      tensors->begin(), tensors->end(), [&](const Owned& a, const Owned& b) {
        return a.info.name == b.info.name ? a.rank < b.rank
                                          : sink.ComesBefore(a.info, b.info);
      });
}

std::vector<Owned> OwnedBy(int rank, const StatePart& mine) {
  std::vector<Owned> tensors;
  for (const auto& [name, tensor] : mine.tensors) {
    Owned& owned =
        tensors.emplace_back(Owned{MakeTensorInfo(name, tensor), rank, tensor,
                                   tensor.sizes().vec(), std::nullopt});
    const auto slice = mine.slices.find(name);
    if (slice == mine.slices.end()) continue;
    owned.slice = slice->second;
    owned.info.sizes = slice->second.sizes;
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
                            return at::empty(tensor.sizes, tensor.info.dtype);
                          }));
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective coming,
      group.StartReceive(values, tensor.rank, /*tag=*/0, Purpose));
  TANDEM_RETURN_IF_ERROR(coming.Wait());
  return values;
}

absl::StatusOr<at::Tensor> ValuesOf(const Owned& tensor, Communicator& group) {
  if (tensor.values.defined()) return tensor.values;
  return Receive(tensor, group);
}

// Slices that make up a tensor, one at a time.
using OwnedIterator = std::vector<Owned>::const_iterator;
absl::StatusOr<at::Tensor> Join(OwnedIterator begin, OwnedIterator end,
                                Communicator& group) {
  const TensorInfo& info = begin->info;
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor whole, CatchTorchOr([&] {
                            return at::empty(info.sizes, info.dtype);
                          }));
  int64_t elements = 0;
  for (OwnedIterator each = begin; each != end; ++each) {
    CHECK(each->slice.has_value()) << info.name;
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, ValuesOf(*each, group));
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      CopySlice(*each->slice, HostValues(values), WholeShard(info.sizes),
                whole);
    }));
    elements += values.numel();
  }
  if (elements == whole.numel()) return whole;
  return absl::DataLossError(absl::StrCat(info.name, " is not complete: of ",
                                          whole.numel(),
                                          " elements, ranks have ", elements));
}

absl::Status TakeAll(std::vector<Owned> tensors, Communicator& group,
                     TensorSink& sink) {
  Sort(sink, &tensors);
  std::vector<TensorInfo> infos;
  for (const Owned& each : tensors) {
    const bool is_first = infos.empty() || infos.back().name != each.info.name;
    if (is_first) infos.push_back(each.info);
  }
  TANDEM_RETURN_IF_ERROR(sink.Begin(std::move(infos)));
  for (OwnedIterator end, begin = tensors.begin(); begin != tensors.end();
       begin = end) {
    end = std::find_if(begin, tensors.cend(), [&](const Owned& each) {
      return each.info.name != begin->info.name;
    });
    CHECK(begin->slice.has_value() || end == begin + 1) << begin->info.name;
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor values,
                            begin->slice.has_value() ? Join(begin, end, group)
                                                     : ValuesOf(*begin, group));
    TANDEM_RETURN_IF_ERROR(sink.Add(values));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StreamToRank0(const StatePart& mine, Communicator& group,
                           TensorSink& sink) {
  std::vector<Owned> tensors = OwnedBy(group.rank(), mine);
  if (group.size() == 1) return TakeAll(std::move(tensors), group, sink);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          group.AllGatherString(Describe(mine), Purpose));
  if (group.rank() != 0) return SendAll(std::move(tensors), group, sink);
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string& theirs = all[static_cast<size_t>(rank)];
    for (const auto line : absl::StrSplit(theirs, '\n', absl::SkipEmpty())) {
      TANDEM_ASSIGN_OR_RETURN(tensors.emplace_back(), ParseLine(rank, line));
    }
  }
  return TakeAll(std::move(tensors), group, sink);
}

}  // namespace tandem
