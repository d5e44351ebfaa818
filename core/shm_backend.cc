#include "core/shm_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <utility>

#include "core/shm_collectives.h"
#include "core/shm_reduction.h"
#include "core/shm_work.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

void Check(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.device().is_cpu() &&
                  tensor.layout() == at::kStrided && tensor.is_contiguous(),
              "shm takes dense contiguous tensors on the CPU");
}

// For operations that c10d declares for several devices' tensors.
template <typename T>
const T& Single(const std::vector<T>& list) {
  TORCH_CHECK(list.size() == 1, "shm takes one tensor a collective, not ",
              list.size());
  return list[0];
}

ConstBytes In(const at::Tensor& tensor) {
  Check(tensor);
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          tensor.nbytes()};
}

MutableBytes Out(const at::Tensor& tensor) {
  Check(tensor);
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

template <typename Bytes>
std::vector<Bytes> Each(const Tensors& tensors, size_t count,
                        Bytes (*of)(const at::Tensor&)) {
  TORCH_CHECK(tensors.size() == count, "a tensor for each of ", count,
              " ranks is needed, not ", tensors.size());
  std::vector<Bytes> all;
  for (const at::Tensor& tensor : tensors) all.push_back(of(tensor));
  return all;
}

template <typename Bytes>
void CheckSizes(const std::vector<Bytes>& each, size_t bytes) {
  for (const Bytes& one : each) {
    TORCH_CHECK(one.size == bytes, "tensors differ in size: ", one.size,
                " and ", bytes, " bytes");
  }
}

// Cuts a tensor in equal parts, or in splits of rows.
template <typename Bytes>
std::vector<Bytes> Cut(const Bytes& whole, size_t count,
                       const std::vector<int64_t>& splits = {},
                       int64_t rows = 0) {
  TORCH_CHECK(!splits.empty() || whole.size % count == 0,
              "cannot be divided among ", count, " ranks");
  TORCH_CHECK(splits.empty() || splits.size() == count,
              "one split for each of ", count, " ranks is needed");
  std::vector<Bytes> parts;
  size_t begin = 0;
  for (size_t r = 0; r < count; ++r) {
    const size_t bytes = splits.empty() ? whole.size / count
                         : rows == 0    ? 0
                                        : whole.size / rows * splits[r];
    TORCH_CHECK(bytes <= whole.size - begin, "splits exceed the tensor");
    parts.push_back({whole.data + begin, bytes});
    begin += bytes;
  }
  TORCH_CHECK(begin == whole.size, "splits do not add up to the tensor");
  return parts;
}

int64_t Rows(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? 1 : tensor.size(0);
}

int CheckRoot(int64_t root, int size) {
  TORCH_CHECK(root >= 0 && root < size, "there is no rank ", root, " among ",
              size);
  return static_cast<int>(root);
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<ShmBackend>> ShmBackend::Create(
    const StorePtr& store, int rank, int size,
    std::chrono::milliseconds timeout) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<ShmGroup> group,
                          ShmGroup::Create(store, rank, size, timeout));
  return c10::make_intrusive<ShmBackend>(std::move(group), timeout);
}

ShmBackend::ShmBackend(std::shared_ptr<ShmGroup> group,
                       std::chrono::milliseconds timeout)
    : Backend(group->rank(), group->size()),
      group_(std::move(group)),
      timeout_(timeout) {}

ShmBackend::~ShmBackend() { group_->Close(); }

ShmBackend::WorkPtr ShmBackend::Issue(OpType type, ShmCollectivePtr collective,
                                      std::chrono::milliseconds timeout,
                                      Tensors outputs, Tensors inputs) {
  ++issued_;
  using Held = std::pair<Tensors, Tensors>;
  auto task = group_->queue().Issue(
      std::move(collective), std::make_shared<Held>(outputs, std::move(inputs)),
      timeout == c10d::kUnsetTimeout ? timeout_ : timeout);
  return c10::make_intrusive<ShmWork>(
      type, std::shared_ptr<ShmQueue>(group_, &group_->queue()),
      std::move(task), std::move(outputs));
}

ShmBackend::WorkPtr ShmBackend::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = Single(tensors);
  const MutableBytes bytes = Out(tensor);
  const Reduction reduction =
      ReductionOf(options.reduceOp, tensor.scalar_type(), size_);
  const int64_t offset =
      group_->arena().OffsetOf(bytes.data, bytes.size).value_or(-1);
  return Issue(OpType::ALLREDUCE,
               MakeAllReduce(bytes, offset, reduction, SumOf(reduction)),
               options.timeout, tensors);
}

ShmBackend::WorkPtr ShmBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK(!tensors.empty(), "no tensors are given");
  // In order, and when one fails all later ones do: the last tells of all.
  WorkPtr last;
  for (const at::Tensor& tensor : tensors) {
    Tensors one = {tensor};
    last = allreduce(one, options);
  }
  return last;
}

ShmBackend::WorkPtr ShmBackend::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  return Issue(
      OpType::BROADCAST,
      MakeBroadcast(Out(Single(tensors)), CheckRoot(options.rootRank, size_)),
      options.timeout, tensors);
}

ShmBackend::WorkPtr ShmBackend::reduce(Tensors& tensors,
                                       const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = Single(tensors);
  const Reduction reduction =
      ReductionOf(options.reduceOp, tensor.scalar_type(), size_);
  return Issue(OpType::REDUCE,
               MakeReduce(Out(tensor), CheckRoot(options.rootRank, size_),
                          reduction, SumOf(reduction)),
               options.timeout, tensors);
}

ShmBackend::WorkPtr ShmBackend::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  const ConstBytes input = In(Single(inputs));
  std::vector<MutableBytes> each = Each(Single(outputs), size_, &Out);
  CheckSizes(each, input.size);
  return Issue(OpType::ALLGATHER, MakeAllGather(input, std::move(each)),
               options.timeout, outputs[0], inputs);
}

ShmBackend::WorkPtr ShmBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  std::vector<MutableBytes> each = Cut(Out(output), size_);
  CheckSizes(each, In(input).size);
  return Issue(OpType::_ALLGATHER_BASE,
               MakeAllGather(In(input), std::move(each)), options.timeout,
               {output}, {input});
}

ShmBackend::WorkPtr ShmBackend::gather(std::vector<Tensors>& outputs,
                                       Tensors& inputs,
                                       const c10d::GatherOptions& options) {
  const ConstBytes input = In(Single(inputs));
  const int root = CheckRoot(options.rootRank, size_);
  std::vector<MutableBytes> each;
  Tensors held;
  if (rank_ == root) {
    held = Single(outputs);
    each = Each(held, size_, &Out);
  }
  CheckSizes(each, input.size);
  return Issue(OpType::GATHER, MakeGather(input, std::move(each), root),
               options.timeout, std::move(held), inputs);
}

ShmBackend::WorkPtr ShmBackend::scatter(Tensors& outputs,
                                        std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& options) {
  const MutableBytes output = Out(Single(outputs));
  const int root = CheckRoot(options.rootRank, size_);
  std::vector<ConstBytes> each;
  Tensors held;
  if (rank_ == root) {
    held = Single(inputs);
    each = Each(held, size_, &In);
  }
  CheckSizes(each, output.size);
  return Issue(OpType::SCATTER,
               MakeScatter(std::move(each), output, root, size_),
               options.timeout, outputs, std::move(held));
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs,
    const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = Single(outputs);
  std::vector<ConstBytes> each = Each(Single(inputs), size_, &In);
  CheckSizes(each, output.nbytes());
  const Reduction reduction =
      ReductionOf(options.reduceOp, output.scalar_type(), size_);
  return Issue(OpType::REDUCE_SCATTER,
               MakeReduceScatter(std::move(each), Out(output), reduction,
                                 SumOf(reduction)),
               options.timeout, outputs, inputs[0]);
}

ShmBackend::WorkPtr ShmBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  std::vector<ConstBytes> each = Cut(In(input), size_);
  CheckSizes(each, output.nbytes());
  const Reduction reduction =
      ReductionOf(options.reduceOp, output.scalar_type(), size_);
  return Issue(OpType::_REDUCE_SCATTER_BASE,
               MakeReduceScatter(std::move(each), Out(output), reduction,
                                 SumOf(reduction)),
               options.timeout, {output}, {input});
}

ShmBackend::WorkPtr ShmBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllToAllOptions& options) {
  return Issue(
      OpType::ALLTOALL,
      MakeAllToAll(Each(inputs, size_, &In), Each(outputs, size_, &Out)),
      options.timeout, outputs, inputs);
}

ShmBackend::WorkPtr ShmBackend::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return Issue(
      OpType::ALLTOALL_BASE,
      MakeAllToAll(Cut(In(input), size_, input_splits, Rows(input)),
                   Cut(Out(output), size_, output_splits, Rows(output))),
      options.timeout, {output}, {input});
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return Issue(OpType::BARRIER, MakeBarrier(), options.timeout, {});
}

ShmBackend::WorkPtr ShmBackend::send(Tensors& tensors, int to, int tag) {
  return c10::make_intrusive<ShmMailWork>(
      OpType::SEND, std::shared_ptr<ShmMail>(group_, &group_->mail()),
      group_->mail().Send(In(Single(tensors)), CheckRoot(to, size_), tag,
                          std::make_shared<Tensors>(tensors)),
      timeout_);
}

ShmBackend::WorkPtr ShmBackend::recv(Tensors& tensors, int from, int tag) {
  return c10::make_intrusive<ShmMailWork>(
      OpType::RECV, std::shared_ptr<ShmMail>(group_, &group_->mail()),
      group_->mail().Receive(Out(Single(tensors)), CheckRoot(from, size_), tag,
                             std::make_shared<Tensors>(tensors)),
      timeout_);
}

at::Tensor ShmBackend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK(options.device().is_cpu(), "shm allocates CPU tensors");
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  const size_t bytes = size * c10::elementSize(dtype);
  if (bytes == 0) return at::from_blob(nullptr, {size}, options);
  std::shared_ptr<ShmArena> arena = group_->shared_arena();
  const absl::StatusOr<void*> data = arena->Allocate(bytes);
  TORCH_CHECK(data.ok(), "not enough memory: ", data.status().message());
  return at::from_blob(
      *data, {size}, [arena](void* freed) { arena->Free(freed); }, options);
}

void ShmBackend::Abort(const std::string& reason) {
  group_->queue().GiveUp(reason);
}

}  // namespace tandem
