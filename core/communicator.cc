#include "core/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/backend.h"
#include "core/roll_call.h"
#include "core/status_macros.h"
#include "core/store.h"
#include "core/straggler_watch.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

using TensorList = std::vector<at::Tensor>;

// The tensor's own bytes: backends know few dtypes, and moving needs none.
at::Tensor Bytes(const at::Tensor& tensor) {
  return tensor.detach().view({-1}).view(at::kByte);
}

std::string TypeOf(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), " on ",
                      tensor.device().str());
}

bool Serves(const c10d::ProcessGroup& group, const at::Tensor& tensor) {
  for (const c10::Device& device : group.getDeviceTypes()) {
    if (device.type() == tensor.device().type()) return true;
  }
  return false;
}

// Rank `me` of the group must be in `ranks`, each of [0, size) once at most.
absl::Status CheckRanks(absl::Span<const int> ranks, int me, int size) {
  const std::set<int> unique(ranks.begin(), ranks.end());
  if (!unique.empty() && unique.size() == ranks.size() &&
      *unique.begin() >= 0 && *unique.rbegin() < size &&
      unique.count(me) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "ranks {", absl::StrJoin(ranks, ", "), "} must be different, in 0 .. ",
      size - 1, ", and this rank, ", me, ", one of them"));
}

}  // namespace

Communicator::Communicator(StorePtr store, int rank, int size, std::string name,
                           CommunicatorOptions options)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      name_(std::move(name)),
      options_(std::move(options)) {}

Communicator::~Communicator() = default;

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::ForLaunch(
    const Launch& launch, CommunicatorOptions options) {
  options.all_local = launch.nnodes == 1;
  options.master_host = launch.rendezvous.host;
  TANDEM_ASSIGN_OR_RETURN(StorePtr store, OpenStore(launch, options.timeout));
  return Create(std::move(store), launch.rank, launch.world_size, "world",
                options);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    StorePtr store, int rank, int size, const std::string& name,
    const CommunicatorOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("group \"", name, "\": there is no rank ", rank, " of ",
                     size, "; ranks count from 0"));
  }
  auto group = std::unique_ptr<Communicator>(
      new Communicator(nullptr, rank, size, name, options));
  return Connect(std::move(store), std::move(group), name);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Connect(
    StorePtr store, std::unique_ptr<Communicator> group,
    const std::string& key) {
  Communicator& g = *group;
  g.store_ = c10::make_intrusive<c10d::PrefixStore>(key, std::move(store));
  if (g.size_ == 1) return group;
  const std::string what =
      absl::StrCat("group \"", g.name_, "\", rank ", g.rank_, " of ", g.size_);
  const absl::Status met =
      MeetAtStore(g.store_, g.rank_, g.size_, g.options_.timeout);
  if (!met.ok()) return Annotate(met, what);
  auto made = MakeProcessGroup(g.store_, g.rank_, g.size_, g.options_);
  if (!made.ok()) return Annotate(made.status(), what);
  g.process_group_ = *std::move(made);
  g.process_group_->setGroupName(key);
  if (g.options_.straggler_warning.count() > 0) {
    g.straggler_watch_ = std::make_unique<StragglerWatch>(
        g.store_, g.name_, g.rank_, g.size_, g.options_.straggler_warning);
  }
  return group;
}

absl::Status Communicator::CheckTensor(absl::string_view operation,
                                       const at::Tensor& tensor) const {
  std::string fault;
  if (!tensor.defined()) {
    fault = "the tensor is undefined";
  } else if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    fault = "the tensor must be dense and contiguous: call contiguous() first";
  } else if (process_group_ && !Serves(*process_group_, tensor)) {
    fault = absl::StrCat("backend ", options_.backend, " does not take ",
                         TypeOf(tensor));
  } else {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", name_, "\": ", fault));
}

absl::Status Communicator::AllReduceSum(at::Tensor tensor,
                                        const CollectivePurpose& purpose) {
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      StartAllReduceSum(std::move(tensor), /*factor=*/1, purpose));
  return pending.Wait();
}

absl::StatusOr<PendingCollective> Communicator::StartAllReduceSum(
    at::Tensor tensor, double factor, const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor("all-reduce", tensor));
  if (tensor.scalar_type() == at::kBool || tensor.is_complex()) {
    return absl::InvalidArgumentError(
        absl::StrCat("all-reduce of group \"", name_, "\": cannot sum ",
                     TypeOf(tensor), "; convert it first"));
  }
  if (tensor.numel() == 0) return PendingCollective();
  c10d::AllreduceOptions options;
  if (factor != 1 && size_ > 1 && BackendMultiplies(options_.backend)) {
    options.reduceOp = c10d::makeNCCLPreMulSum(factor);
  } else if (factor != 1) {
    tensor.detach().mul_(factor);
  }
  if (size_ == 1) return PendingCollective();
  TensorList tensors = {tensor.detach()};
  // Not through c10d's dispatcher: it takes longer than a small all-reduce.
  return Start("all-reduce", purpose, [&] {
    return process_group_->getBackend(tensors[0].device().type())
        ->allreduce(tensors, options);
  });
}

absl::StatusOr<at::Tensor> Communicator::NewBuffer(
    int64_t numel, const at::TensorOptions& options) {
  return CatchTorchOr([&] {
    if (process_group_ != nullptr && numel > 0 && options.device().is_cpu()) {
      const auto backend = process_group_->getBackend(c10::DeviceType::CPU);
      if (backend->supportsTensorAlloc(-1)) {
        return backend->allocateTensor(numel, options);
      }
    }
    return at::zeros({numel}, options);
  });
}

absl::Status Communicator::Broadcast(at::Tensor tensor, int root,
                                     const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor("broadcast", tensor));
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast of group \"", name_, "\": there is no rank ",
                     root, " among ", size_));
  }
  if (size_ == 1 || tensor.numel() == 0) return absl::OkStatus();
  TensorList tensors = {Bytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return Collective("broadcast", purpose, [&] {
    return process_group_->broadcast(tensors, options);
  });
}

absl::StatusOr<TensorList> Communicator::AllGather(
    const at::Tensor& tensor, const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor("all-gather", tensor));
  const at::Tensor mine = tensor.detach();
  TensorList all;
  for (int r = 0; r < size_; ++r) all.push_back(at::empty_like(mine));
  if (size_ == 1 || mine.numel() == 0) {
    for (at::Tensor& one : all) one.copy_(mine);
    return all;
  }
  TensorList in = {Bytes(mine)};
  std::vector<TensorList> out(1);
  for (at::Tensor& one : all) out[0].push_back(Bytes(one));
  TANDEM_RETURN_IF_ERROR(Collective("all-gather", purpose, [&] {
    return process_group_->allgather(out, in);
  }));
  return all;
}

absl::StatusOr<std::vector<std::string>> Communicator::AllGatherString(
    const std::string& mine, const CollectivePurpose& purpose) {
  // The lengths first, then all strings in blocks of the longest.
  TANDEM_ASSIGN_OR_RETURN(
      TensorList lengths,
      AllGather(at::full({1}, static_cast<int64_t>(mine.size()), at::kLong),
                purpose));
  int64_t longest = 0;
  for (const at::Tensor& length : lengths) {
    longest = std::max(longest, *length.const_data_ptr<int64_t>());
  }
  at::Tensor block = at::zeros({longest}, at::kByte);
  if (!mine.empty()) std::memcpy(block.data_ptr(), mine.data(), mine.size());
  TANDEM_ASSIGN_OR_RETURN(TensorList blocks, AllGather(block, purpose));
  std::vector<std::string> strings;
  for (int r = 0; r < size_; ++r) {
    strings.emplace_back(static_cast<const char*>(blocks[r].const_data_ptr()),
                         *lengths[r].const_data_ptr<int64_t>());
  }
  return strings;
}

absl::Status Communicator::Barrier(const CollectivePurpose& purpose) {
  if (size_ == 1) return absl::OkStatus();
  return Collective("barrier", purpose,
                    [&] { return process_group_->barrier(); });
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Subgroup(
    absl::Span<const int> ranks, const std::string& name) {
  absl::Status checked = CheckRanks(ranks, rank_, size_);
  if (!checked.ok()) {
    return Annotate(checked, absl::StrCat("subgroup \"", name, "\""));
  }
  // Other subgroups of this name may stand beside this one, or come after it.
  const std::string members =
      absl::StrCat(name, "/", absl::StrJoin(ranks, ","));
  const std::string key =
      absl::StrCat("sub/", members, "/", subgroups_[members]++);
  const int rank = static_cast<int>(
      std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  auto group = std::unique_ptr<Communicator>(new Communicator(
      nullptr, rank, static_cast<int>(ranks.size()), name, options_));
  return Connect(store_, std::move(group), key);
}

}  // namespace tandem
