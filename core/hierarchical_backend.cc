#include "core/hierarchical_backend.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <map>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/communicator.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

StorePtr Prefixed(const StorePtr& store, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

// What leaders do with their hosts' results, in which factors are in already.
ReduceOp AmongHosts(const ReduceOp& op) {
  return op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM
             ? ReduceOp(ReduceOp::SUM)
             : op;
}

ReduceOp InsideHost(const ReduceOp& op) {
  return op.op_ == ReduceOp::AVG ? ReduceOp(ReduceOp::SUM) : op;
}

// Runs a collective of Gloo's to its end.
void AmongLeaders(
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> collective) {
  c10::intrusive_ptr<c10d::Work> work;
  {
    absl::MutexLock lock(&Communicator::IssueMutex());
    work = collective();
  }
  work->wait();
}

}  // namespace

HostLayout::HostLayout(const std::vector<std::string>& host_of_rank) {
  std::map<std::string, int> number;
  for (size_t r = 0; r < host_of_rank.size(); ++r) {
    const int next = static_cast<int>(number.size());
    const int h = number.try_emplace(host_of_rank[r], next).first->second;
    if (h == next) ranks.emplace_back();
    host.push_back(h);
    local.push_back(static_cast<int>(ranks[h].size()));
    ranks[h].push_back(static_cast<int>(r));
  }
}

absl::StatusOr<c10::intrusive_ptr<HierarchicalBackend>>
HierarchicalBackend::Create(const StorePtr& store, int rank,
                            const HostLayout& layout,
                            std::chrono::milliseconds timeout,
                            const std::vector<int>& names, MakeGloo make_gloo) {
  const int host = layout.host[rank];
  const std::vector<int>& ranks = layout.ranks[host];
  std::vector<int> local_names;
  for (int each : ranks) {
    local_names.push_back(names.empty() ? each : names[each]);
  }
  TANDEM_ASSIGN_OR_RETURN(
      c10::intrusive_ptr<ShmBackend> local,
      ShmBackend::Create(Prefixed(store, absl::StrCat("host ", host)),
                         layout.local[rank], static_cast<int>(ranks.size()),
                         timeout, std::move(local_names)));
  BackendPtr leaders;
  if (layout.local[rank] == 0) {
    TANDEM_ASSIGN_OR_RETURN(leaders, make_gloo(Prefixed(store, "leaders"), host,
                                               layout.host_count()));
  }
  TANDEM_ASSIGN_OR_RETURN(BackendPtr all,
                          make_gloo(Prefixed(store, "all"), rank,
                                    static_cast<int>(layout.host.size())));
  return c10::make_intrusive<HierarchicalBackend>(
      rank, layout, std::move(local), std::move(leaders), std::move(all));
}

HierarchicalBackend::HierarchicalBackend(int rank, HostLayout layout,
                                         c10::intrusive_ptr<ShmBackend> local,
                                         BackendPtr leaders, BackendPtr all)
    : Backend(rank, static_cast<int>(layout.host.size())),
      layout_(std::move(layout)),
      local_(std::move(local)),
      leaders_(std::move(leaders)),
      all_(std::move(all)) {}

HierarchicalBackend::~HierarchicalBackend() = default;

void HierarchicalBackend::Abort(const std::string& reason) {
  local_->Abort(reason);
  if (leaders_ != nullptr) leaders_->abort();
  all_->abort();
}

HierarchicalBackend::WorkPtr HierarchicalBackend::Run(
    OpType type, Tensors outputs, std::function<void()> steps) {
  ++issued_;
  auto work = c10::make_intrusive<FunctionWork>(
      type, std::move(outputs), [this, steps = std::move(steps)] {
        try {
          steps();
        } catch (const std::exception& failure) {
          local_->Abort(CleanTorchMessage(failure.what()));
          throw;
        }
      });
  thread_.Add(work);
  return work;
}

HierarchicalBackend::WorkPtr HierarchicalBackend::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1, "one tensor a collective");
  return Run(OpType::ALLREDUCE, tensors, [this, one = tensors, options] {
    Tensors tensors = one;
    c10d::AllreduceOptions step = options;
    step.reduceOp = InsideHost(options.reduceOp);
    // One that is alone on its host has its host's result, but for a factor.
    if (!AloneOnHost() || step.reduceOp.op_ == ReduceOp::PREMUL_SUM) {
      local_->allreduce(tensors, step)->wait();
    }
    if (leaders_ != nullptr) {
      step.reduceOp = AmongHosts(options.reduceOp);
      AmongLeaders([&] { return leaders_->allreduce(tensors, step); });
    }
    if (!AloneOnHost()) {
      c10d::BroadcastOptions broadcast;
      broadcast.timeout = options.timeout;
      local_->broadcast(tensors, broadcast)->wait();
    }
    if (options.reduceOp.op_ == ReduceOp::AVG) tensors[0].div_(size_);
  });
}

HierarchicalBackend::WorkPtr HierarchicalBackend::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  TORCH_CHECK(options.rootRank >= 0 && options.rootRank < size_,
              "there is no rank ", options.rootRank, " among ", size_);
  const int root = static_cast<int>(options.rootRank);
  return Run(OpType::BROADCAST, tensors, [this, one = tensors, options, root] {
    Tensors tensors = one;
    c10d::BroadcastOptions step = options;
    if (SameHost(root) && !AloneOnHost()) {
      step.rootRank = layout_.local[root];
      local_->broadcast(tensors, step)->wait();
    }
    if (leaders_ != nullptr) {
      step.rootRank = layout_.host[root];
      AmongLeaders([&] { return leaders_->broadcast(tensors, step); });
    }
    if (!SameHost(root) && !AloneOnHost()) {
      step.rootRank = 0;
      local_->broadcast(tensors, step)->wait();
    }
  });
}

HierarchicalBackend::WorkPtr HierarchicalBackend::barrier(
    const c10d::BarrierOptions& options) {
  return Run(OpType::BARRIER, {}, [this, options] {
    if (!AloneOnHost()) local_->barrier(options)->wait();
    if (leaders_ != nullptr) {
      AmongLeaders([&] { return leaders_->barrier(options); });
    }
    if (!AloneOnHost()) local_->barrier(options)->wait();
  });
}

HierarchicalBackend::WorkPtr HierarchicalBackend::send(Tensors& tensors, int to,
                                                       int tag) {
  TORCH_CHECK(to >= 0 && to < size_, "there is no rank ", to);
  return SameHost(to) ? local_->send(tensors, layout_.local[to], tag)
                      : all_->send(tensors, to, tag);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::recv(Tensors& tensors,
                                                       int from, int tag) {
  TORCH_CHECK(from >= 0 && from < size_, "there is no rank ", from);
  return SameHost(from) ? local_->recv(tensors, layout_.local[from], tag)
                        : all_->recv(tensors, from, tag);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::reduce(
    Tensors& tensors, const c10d::ReduceOptions& options) {
  return all_->reduce(tensors, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return all_->allgather(outputs, inputs, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  return all_->_allgather_base(output, input, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::gather(
    std::vector<Tensors>& outputs, Tensors& inputs,
    const c10d::GatherOptions& options) {
  return all_->gather(outputs, inputs, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::scatter(
    Tensors& outputs, std::vector<Tensors>& inputs,
    const c10d::ScatterOptions& options) {
  return all_->scatter(outputs, inputs, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs,
    const c10d::ReduceScatterOptions& options) {
  return all_->reduce_scatter(outputs, inputs, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  return all_->_reduce_scatter_base(output, input, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return all_->alltoall(outputs, inputs, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return all_->alltoall_base(output, input, output_splits, input_splits,
                             options);
}

}  // namespace tandem
