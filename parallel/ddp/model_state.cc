#include "parallel/ddp/model_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/digest/sha256.h"

namespace tandem {
namespace {

using StoredByName = std::map<std::string, const StoredTensor*>;

// By its hash, the same answer everywhere: of a large model on many ranks all
// texts would be gigabytes on each.
absl::StatusOr<bool> IsSameOnAll(const std::string& text,
                                 Communicator& communicator) {
  Sha256 hash;
  hash.Update(text);
  const Sha256::Digest digest = hash.Finish();
  at::Tensor mine = at::empty({Sha256::kDigestBytes}, at::kByte);
  std::memcpy(mine.data_ptr(), digest.data(), digest.size());
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<at::Tensor> all,
      communicator.AllGather(mine, [] { return "is the model the same"; }));
  return std::all_of(all.begin(), all.end(), [&](const at::Tensor& other) {
    return std::memcmp(other.const_data_ptr(), all[0].const_data_ptr(),
                       digest.size()) == 0;
  });
}

// What one broadcast serves, in order of first appearance, which is the same on
// all ranks: devices have other numbers on each.
std::vector<std::vector<at::Tensor>> ByDeviceAndDtype(
    const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> groups;
  for (const at::Tensor& tensor : tensors) {
    const auto same = absl::c_find_if(groups, [&](const auto& group) {
      return group[0].device() == tensor.device() &&
             group[0].scalar_type() == tensor.scalar_type();
    });
    if (same == groups.end()) {
      groups.push_back({tensor});
    } else {
      same->push_back(tensor);
    }
  }
  return groups;
}

// Precisions of one number: what mixed precision has made of a buffer, say.
bool CanBecome(c10::ScalarType theirs, c10::ScalarType ours) {
  return theirs == ours ||
         (at::isFloatingType(theirs) && at::isFloatingType(ours));
}

}  // namespace

absl::Status CheckModelState(const StoredTensors& state,
                             const NamedTensors& model) {
  StoredByName given;
  for (const StoredTensor& each : state) given[each.info.name] = &each;
  std::set<std::string> known;
  for (const auto& [name, tensor] : model) {
    known.insert(name);
    const auto source = given.find(name);
    if (source == given.end() && state.kept().count(name) > 0) continue;
    if (source == given.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model state lacks ", name, " (", DescribeTensor(tensor), ")"));
    }
    const TensorInfo& info = source->second->info;
    if (info.sizes != tensor.sizes() ||
        !CanBecome(info.dtype, tensor.scalar_type())) {
      return absl::InvalidArgumentError(
          absl::StrCat("model state ", name, ": expected ",
                       DescribeTensor(tensor), ", got ", Describe(info)));
    }
  }
  for (const StoredTensor& each : state) {
    if (known.count(each.info.name) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("model state ", each.info.name,
                       " has no place in the model: is it another model's?"));
    }
  }
  for (const StoredTensor& each : state) TANDEM_RETURN_IF_ERROR(Verify(each));
  return absl::OkStatus();
}

absl::Status CopyModelState(const StoredTensors& state,
                            const NamedTensors& model) {
  TANDEM_RETURN_IF_ERROR(CheckModelState(state, model));
  at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> known(model.begin(), model.end());
  for (const StoredTensor& each : state) {
    TANDEM_RETURN_IF_ERROR(ReadInto(each, known.at(each.info.name)));
  }
  return absl::OkStatus();
}

// Names hold no line breaks.
std::string DescribeModel(const NamedTensors& model) {
  std::string text;
  for (const auto& [name, tensor] : model) {
    absl::StrAppend(&text, name, ": ", DescribeTensor(tensor),
                    tensor.requires_grad() ? "" : " without gradient");
    // Channels-last, say: flat buffers are broadcast as they lie.
    if (!tensor.is_contiguous()) {
      absl::StrAppend(&text, " of strides [",
                      absl::StrJoin(tensor.strides(), ", "), "]");
    }
    text += '\n';
  }
  return text;
}

absl::Status ModelsDiffer(int rank, const std::string& theirs, int first,
                          const std::string& firsts) {
  const std::vector<std::string> a = absl::StrSplit(firsts, '\n');
  const std::vector<std::string> b = absl::StrSplit(theirs, '\n');
  const size_t at =
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  const auto line = [at](const std::vector<std::string>& lines) {
    return at < lines.size() && !lines[at].empty() ? lines[at]
                                                   : std::string("no more");
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "the model of rank ", rank, " differs from that of rank ", first,
      ": tensor ", at, " is ", line(b), " there, ", line(a), " on rank ", first,
      "; every rank must build the same model: by the same flags, and by code "
      "that does not go by the rank"));
}

absl::Status CheckSameModel(const NamedTensors& model,
                            Communicator& communicator) {
  const std::string text = DescribeModel(model);
  TANDEM_ASSIGN_OR_RETURN(const bool same, IsSameOnAll(text, communicator));
  if (same) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          communicator.AllGatherString(text));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return ModelsDiffer(communicator.NameOf(static_cast<int>(rank)), all[rank],
                        communicator.NameOf(0), all[0]);
  }
  return absl::OkStatus();
}

absl::Status BroadcastFrom(int root, const std::vector<at::Tensor>& tensors,
                           Communicator& communicator,
                           const CollectivePurpose& purpose) {
  if (communicator.size() == 1) return absl::OkStatus();
  at::NoGradGuard no_grad;
  for (const std::vector<at::Tensor>& same : ByDeviceAndDtype(tensors)) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& tensor : same) flat.push_back(tensor.flatten());
    const at::Tensor all = at::cat(flat);
    TANDEM_RETURN_IF_ERROR(communicator.Broadcast(all, root, purpose));
    int64_t at = 0;
    for (const at::Tensor& tensor : same) {
      // Not counted as a change: what an earlier forward saved for its backward
      // (BatchNorm's statistics, which backward does not read) stays good.
      tensor.variable_data().copy_(
          all.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
