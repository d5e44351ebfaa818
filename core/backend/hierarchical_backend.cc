#include "core/backend/hierarchical_backend.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <map>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend/host_works.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {

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

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// Chunks begin on lines of the cache.
constexpr int64_t kLine = 64;

// Chunks have equal sizes as far as possible: a rest of a few bytes would cost
// as much as a small message.
std::vector<Tensors> Cut(const Tensors& tensors, int64_t chunk_bytes) {
  if (tensors.size() != 1 || !tensors[0].is_contiguous()) return {tensors};
  const at::Tensor& tensor = tensors[0];
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  if (bytes <= chunk_bytes) return {tensors};
  const int64_t count = (bytes + chunk_bytes - 1) / chunk_bytes;
  const int64_t lines = (bytes + count * kLine - 1) / (count * kLine);
  const int64_t step = lines * kLine / tensor.element_size();
  const at::Tensor flat = tensor.detach().view({-1});
  std::vector<Tensors> chunks;
  for (int64_t begin = 0; begin < flat.numel(); begin += step) {
    chunks.push_back(
        {flat.narrow(0, begin, std::min(step, flat.numel() - begin))});
  }
  return chunks;
}

// A chunk on its way.
struct Chunk {
  Tensors tensors;
  WorkPtr work;  // of the phase that it is in

  void Enter(const ThreePhases::Start& phase) {
    if (work != nullptr) work->wait();
    work = phase ? phase(tensors) : nullptr;
  }
};

}  // namespace

void RunInChunks(const Tensors& tensors, int64_t chunk_bytes,
                 const ThreePhases& phases) {
  std::vector<Chunk> chunks;
  for (Tensors& each : Cut(tensors, chunk_bytes)) {
    chunks.push_back({std::move(each), nullptr});
  }
  const size_t n = chunks.size();
  for (size_t i = 0; i < n + 2; ++i) {
    if (i < n) chunks[i].Enter(phases.up);
    if (i >= 1 && i <= n) chunks[i - 1].Enter(phases.across);
    if (i >= 2) chunks[i - 2].Enter(phases.down);
  }
  for (Chunk& chunk : chunks) chunk.Enter(nullptr);
}

namespace {

using c10d::OpType;
using c10d::ReduceOp;

// What leaders do with their hosts' results, in which factors are in already.
ReduceOp AmongHosts(const ReduceOp& op) {
  return op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM
             ? ReduceOp(ReduceOp::SUM)
             : op;
}

// Then there is nothing that chunks could overlap with.
bool AllAlone(const HostLayout& layout) {
  return layout.ranks.size() == layout.host.size();
}

ReduceOp InsideHost(const ReduceOp& op) {
  return op.op_ == ReduceOp::AVG ? ReduceOp(ReduceOp::SUM) : op;
}

// Starts a collective of Gloo's.
c10::intrusive_ptr<c10d::Work> AmongLeaders(
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> collective) {
  absl::MutexLock lock(&IssueMutex());
  return collective();
}

StorePtr Prefixed(const StorePtr& store, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

}  // namespace

HierarchicalBackend::HierarchicalBackend(int rank, HostLayout layout,
                                         c10::intrusive_ptr<ShmBackend> local,
                                         BackendPtr leaders, BackendPtr all,
                                         int64_t chunk_bytes)
    : Backend(rank, static_cast<int>(layout.host.size())),
      layout_(std::move(layout)),
      chunk_bytes_(AllAlone(layout_) ? std::numeric_limits<int64_t>::max()
                                     : chunk_bytes),
      local_(std::move(local)),
      leaders_(std::move(leaders)),
      all_(std::move(all)) {}

HierarchicalBackend::~HierarchicalBackend() = default;

void HierarchicalBackend::setTimeout(std::chrono::milliseconds timeout) {
  local_->setTimeout(timeout);
  if (leaders_ != nullptr) leaders_->setTimeout(timeout);
  all_->setTimeout(timeout);
}

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
  return Run(OpType::ALLREDUCE, tensors, [this, tensors, options] {
    RunInChunks(tensors, chunk_bytes_, AllReducePhases(options));
    if (options.reduceOp.op_ == ReduceOp::AVG) {
      at::Tensor(tensors[0]).div_(size_);
    }
  });
}

ThreePhases HierarchicalBackend::AllReducePhases(
    const c10d::AllreduceOptions& options) {
  ThreePhases phases;
  // One that is alone on its host has its host's result, but for a factor.
  if (!AloneOnHost() || options.reduceOp.op_ == ReduceOp::PREMUL_SUM) {
    c10d::ReduceOptions step;
    step.reduceOp = InsideHost(options.reduceOp);
    step.timeout = options.timeout;
    phases.up = [this, step](Tensors& chunk) {
      return local_->reduce(chunk, step);
    };
  }
  c10d::AllreduceOptions step = options;
  step.reduceOp = AmongHosts(options.reduceOp);
  if (leaders_ != nullptr) {
    phases.across = [this, step](Tensors& chunk) {
      return AmongLeaders([&] { return leaders_->allreduce(chunk, step); });
    };
  }
  if (!AloneOnHost()) phases.down = BroadcastInside(0, options.timeout);
  return phases;
}

ThreePhases::Start HierarchicalBackend::BroadcastInside(
    int root, std::chrono::milliseconds timeout) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = timeout;
  return [this, options](Tensors& chunk) {
    return local_->broadcast(chunk, options);
  };
}

HierarchicalBackend::WorkPtr HierarchicalBackend::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  TORCH_CHECK(options.rootRank >= 0 && options.rootRank < size_,
              "there is no rank ", options.rootRank, " among ", size_);
  return Run(OpType::BROADCAST, tensors, [this, tensors, options] {
    RunInChunks(tensors, chunk_bytes_, BroadcastPhases(options));
  });
}

ThreePhases HierarchicalBackend::BroadcastPhases(
    const c10d::BroadcastOptions& options) {
  const int root = static_cast<int>(options.rootRank);
  ThreePhases phases;
  if (!AloneOnHost() && SameHost(root)) {
    phases.up = BroadcastInside(layout_.local[root], options.timeout);
  } else if (!AloneOnHost()) {
    phases.down = BroadcastInside(0, options.timeout);
  }
  if (leaders_ != nullptr) {
    c10d::BroadcastOptions step = options;
    step.rootRank = layout_.host[root];
    phases.across = [this, step](Tensors& chunk) {
      return AmongLeaders([&] { return leaders_->broadcast(chunk, step); });
    };
  }
  return phases;
}

HierarchicalBackend::WorkPtr HierarchicalBackend::barrier(
    const c10d::BarrierOptions& options) {
  return Run(OpType::BARRIER, {}, [this, options] {
    if (!AloneOnHost()) local_->barrier(options)->wait();
    if (leaders_ != nullptr) {
      AmongLeaders([&] { return leaders_->barrier(options); })->wait();
    }
    if (!AloneOnHost()) local_->barrier(options)->wait();
  });
}

void HierarchicalBackend::monitoredBarrier(const c10d::BarrierOptions& options,
                                           bool wait_all_ranks) {
  all_->monitoredBarrier(options, wait_all_ranks);
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

HierarchicalBackend::WorkPtr HierarchicalBackend::all_gather_single(
    at::Tensor& output, at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK(output.is_contiguous() && input.is_contiguous() &&
                  output.scalar_type() == input.scalar_type() &&
                  output.numel() == size_ * input.numel(),
              "an all-gather takes a contiguous tensor that has room for the ",
              size_, " ranks' parts");
  if (AllAlone(layout_)) {
    return all_->all_gather_single(output, input, options);
  }
  return Run(OpType::_ALLGATHER_BASE, {output}, [this, output, input, options] {
    const at::Tensor parts = output.detach().view({size_, -1});
    GatherInside(parts, input.detach().view({-1}), options);
    // Neighbours of one host go together.
    for (int begin = 0, end = 0; begin < size_; begin = end) {
      const int host = layout_.host[begin];
      while (end < size_ && layout_.host[end] == host) ++end;
      RunInChunks({parts.narrow(0, begin, end - begin)}, chunk_bytes_,
                  FromHost(host, options.timeout));
    }
  });
}

void HierarchicalBackend::GatherInside(const at::Tensor& parts,
                                       const at::Tensor& input,
                                       const c10d::AllgatherOptions& options) {
  std::vector<Tensors> outputs(1);
  for (const int rank : layout_.ranks[layout_.host[rank_]]) {
    outputs[0].push_back(parts[rank]);
  }
  Tensors inputs = {input};
  if (!AloneOnHost()) {
    local_->allgather(outputs, inputs, options)->wait();
  } else if (outputs[0][0].const_data_ptr() != input.const_data_ptr()) {
    outputs[0][0].copy_(input);
  }
}

ThreePhases HierarchicalBackend::FromHost(int host,
                                          std::chrono::milliseconds timeout) {
  ThreePhases phases;
  if (leaders_ != nullptr) {
    c10d::BroadcastOptions step;
    step.rootRank = host;
    step.timeout = timeout;
    phases.across = [this, step](Tensors& chunk) {
      return AmongLeaders([&] { return leaders_->broadcast(chunk, step); });
    };
  }
  if (!AloneOnHost() && host != layout_.host[rank_]) {
    phases.down = BroadcastInside(0, timeout);
  }
  return phases;
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

HierarchicalBackend::WorkPtr HierarchicalBackend::reduce_scatter_single(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  return all_->reduce_scatter_single(output, input, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return all_->alltoall(outputs, inputs, options);
}

HierarchicalBackend::WorkPtr HierarchicalBackend::all_to_all_single(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return all_->all_to_all_single(output, input, output_splits, input_splits,
                                 options);
}

absl::StatusOr<c10::intrusive_ptr<HierarchicalBackend>>
HierarchicalBackend::Create(const StorePtr& store, int rank,
                            const HostLayout& layout,
                            std::chrono::milliseconds timeout,
                            const std::vector<int>& names, MakeGloo make_gloo,
                            int64_t chunk_bytes) {
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
      rank, layout, std::move(local), std::move(leaders), std::move(all),
      chunk_bytes);
}

}  // namespace tandem
