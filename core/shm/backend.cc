#include "core/shm/backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>

#include "core/base/status_macros.h"
#include "core/shm/collectives.h"
#include "core/shm/work.h"
#include "core/vector/sum.h"

namespace tandem {
namespace {

void CheckDense(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.device().is_cpu() &&
                  tensor.layout() == at::kStrided && tensor.is_contiguous(),
              "shm takes dense contiguous tensors on the CPU");
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(),
              "shm takes tensors as their memory has them: resolve_conj() and "
              "resolve_neg() come first");
}

}  // namespace

ConstBytes InputBytes(const at::Tensor& tensor) {
  CheckDense(tensor);
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          tensor.nbytes(), tensor.scalar_type()};
}

MutableBytes OutputBytes(const at::Tensor& tensor) {
  CheckDense(tensor);
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes(),
          tensor.scalar_type()};
}

void CheckDtypes(c10::ScalarType one, c10::ScalarType other) {
  TORCH_CHECK(one == other, "tensors differ in dtype: ", one, " and ", other);
}

void CheckSplits(const std::vector<int64_t>& splits, int64_t rows) {
  int64_t left = rows;
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0, "a split cannot be negative, but one is ", split);
    TORCH_CHECK(split <= left, "splits exceed the tensor, which has ", rows,
                " rows: they are ", splits);
    left -= split;
  }
  TORCH_CHECK(left == 0, "splits do not add up to the tensor, which has ", rows,
              " rows: they are ", splits);
}

int64_t RowCount(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? 1 : tensor.size(0);
}

int CheckIndex(const char* what, int64_t index, size_t size) {
  TORCH_CHECK(index >= 0 && index < static_cast<int64_t>(size), "there is no ",
              what, " ", index, " among ", size);
  return static_cast<int>(index);
}

namespace {

double PremultipliedFactor(const c10d::ReduceOp& op) {
  const auto* const supplement =
      dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "PREMUL_SUM needs a factor");
  return supplement->tensor_factor.defined()
             ? supplement->tensor_factor.item<double>()
             : supplement->double_factor;
}

ReduceKind ReduceKindFor(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceKind::kSum;
    case c10d::ReduceOp::PRODUCT:
      return ReduceKind::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceKind::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceKind::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceKind::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceKind::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceKind::kBitXor;
    default:
      TORCH_CHECK(false, "shm has no such reduction");
  }
}

// For `ranks` ranks. Throws c10::Error for what does not exist.
Reduction ToReduction(const c10d::ReduceOp& op, c10::ScalarType dtype,
                      int ranks) {
  Reduction reduction;
  reduction.dtype = dtype;
  reduction.kind = ReduceKindFor(op.op_);
  if (op.op_ == c10d::ReduceOp::AVG) reduction.divisor = ranks;
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM)
    reduction.factor = PremultipliedFactor(op);
  return reduction;
}

VectorSum MakeVectorSum(const Reduction& reduction) {
  absl::StatusOr<VectorSum> sum = VectorSum::Make(reduction);
  TORCH_CHECK(sum.ok(), sum.status().message());
  return *sum;
}

}  // namespace

using c10d::OpType;

absl::StatusOr<c10::intrusive_ptr<ShmBackend>> ShmBackend::Create(
    const StorePtr& store, int rank, int size,
    std::chrono::milliseconds timeout, std::vector<int> names) {
  TANDEM_ASSIGN_OR_RETURN(
      std::shared_ptr<ShmGroup> group,
      ShmGroup::Create(store, rank, size, timeout, std::move(names)));
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

MutableBytes ShmBackend::PlacedBytes(const at::Tensor& tensor) const {
  MutableBytes bytes = OutputBytes(tensor);
  bytes.offset =
      group_->arena().FindOffset(bytes.data, bytes.size).value_or(-1);
  return bytes;
}

ShmBackend::WorkPtr ShmBackend::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = SingleTensor(tensors);
  const Reduction reduction =
      ToReduction(options.reduceOp, tensor.scalar_type(), size_);
  return Issue(
      OpType::ALLREDUCE,
      MakeAllReduce(PlacedBytes(tensor), reduction, MakeVectorSum(reduction)),
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
  TORCH_CHECK(!tensors.empty(), "no tensors are given");
  auto each = BytesOfEach(tensors, tensors.size(), &OutputBytes);
  CheckAlike(each, each[0]);
  if (tensors.size() == 1) each[0] = PlacedBytes(tensors[0]);
  const int root = CheckRank(options.rootRank, size_);
  const int tensor = CheckIndex("tensor", options.rootTensor, each.size());
  return Issue(OpType::BROADCAST, MakeBroadcast(std::move(each), root, tensor),
               options.timeout, tensors);
}

ShmBackend::WorkPtr ShmBackend::reduce(Tensors& tensors,
                                       const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = SingleTensor(tensors);
  const Reduction reduction =
      ToReduction(options.reduceOp, tensor.scalar_type(), size_);
  return Issue(
      OpType::REDUCE,
      MakeReduce(PlacedBytes(tensor), CheckRank(options.rootRank, size_),
                 reduction, MakeVectorSum(reduction)),
      options.timeout, tensors);
}

ShmBackend::WorkPtr ShmBackend::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  const ConstBytes input = InputBytes(SingleTensor(inputs));
  std::vector<MutableBytes> each =
      BytesOfEach(SingleTensor(outputs), size_, &OutputBytes);
  CheckAlike(each, input);
  return Issue(OpType::ALLGATHER, MakeAllGather(input, std::move(each)),
               options.timeout, outputs[0], inputs);
}

ShmBackend::WorkPtr ShmBackend::all_gather_single(
    at::Tensor& output, at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  const MutableBytes whole = PlacedBytes(output);
  std::vector<MutableBytes> each = CutBytes(whole, size_);
  CheckAlike(each, InputBytes(input));
  return Issue(OpType::_ALLGATHER_BASE,
               MakeAllGather(InputBytes(input), std::move(each), whole),
               options.timeout, {output}, {input});
}

ShmBackend::WorkPtr ShmBackend::gather(std::vector<Tensors>& outputs,
                                       Tensors& inputs,
                                       const c10d::GatherOptions& options) {
  const ConstBytes input = InputBytes(SingleTensor(inputs));
  const int root = CheckRank(options.rootRank, size_);
  std::vector<MutableBytes> each;
  Tensors held;
  if (rank_ == root) {
    held = SingleTensor(outputs);
    each = BytesOfEach(held, size_, &OutputBytes);
  }
  CheckAlike(each, input);
  return Issue(OpType::GATHER, MakeGather(input, std::move(each), root),
               options.timeout, std::move(held), inputs);
}

ShmBackend::WorkPtr ShmBackend::scatter(Tensors& outputs,
                                        std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& options) {
  const MutableBytes output = OutputBytes(SingleTensor(outputs));
  const int root = CheckRank(options.rootRank, size_);
  std::vector<ConstBytes> each;
  Tensors held;
  if (rank_ == root) {
    held = SingleTensor(inputs);
    each = BytesOfEach(held, size_, &InputBytes);
  }
  CheckAlike(each, output);
  return Issue(OpType::SCATTER,
               MakeScatter(std::move(each), output, root, size_),
               options.timeout, outputs, std::move(held));
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs,
    const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = SingleTensor(outputs);
  std::vector<ConstBytes> each =
      BytesOfEach(SingleTensor(inputs), size_, &InputBytes);
  CheckAlike(each, OutputBytes(output));
  const Reduction reduction =
      ToReduction(options.reduceOp, output.scalar_type(), size_);
  return Issue(OpType::REDUCE_SCATTER,
               MakeReduceScatter(std::move(each), OutputBytes(output),
                                 reduction, MakeVectorSum(reduction)),
               options.timeout, outputs, inputs[0]);
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter_single(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  std::vector<ConstBytes> each = CutBytes(InputBytes(input), size_);
  const MutableBytes part = OutputBytes(output);
  CheckAlike(each, part);
  const bool is_in_place = part.data == each[rank_].data;
  const Reduction reduction =
      ToReduction(options.reduceOp, output.scalar_type(), size_);
  return Issue(OpType::_REDUCE_SCATTER_BASE,
               MakeReduceScatter(
                   std::move(each), part, reduction, MakeVectorSum(reduction),
                   is_in_place ? PlacedBytes(input) : MutableBytes()),
               options.timeout, {output}, {input});
}

ShmBackend::WorkPtr ShmBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllToAllOptions& options) {
  auto sent = BytesOfEach(inputs, size_, &InputBytes);
  auto received = BytesOfEach(outputs, size_, &OutputBytes);
  CheckOneDtype(sent, received);
  return Issue(OpType::ALLTOALL,
               MakeAllToAll(std::move(sent), std::move(received)),
               options.timeout, outputs, inputs);
}

ShmBackend::WorkPtr ShmBackend::all_to_all_single(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  auto sent = CutBytes(InputBytes(input), size_, input_splits, RowCount(input));
  auto received =
      CutBytes(OutputBytes(output), size_, output_splits, RowCount(output));
  CheckOneDtype(sent, received);
  return Issue(OpType::ALLTOALL_BASE,
               MakeAllToAll(std::move(sent), std::move(received)),
               options.timeout, {output}, {input});
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return Issue(OpType::BARRIER, MakeBarrier(), options.timeout, {});
}

void ShmBackend::monitoredBarrier(const c10d::BarrierOptions& options,
                                  bool /*wait_all_ranks*/) {
  const auto timeout =
      options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
  Issue(OpType::BARRIER, MakeMonitoredBarrier(timeout), timeout, {})->wait();
}

ShmBackend::WorkPtr ShmBackend::send(Tensors& tensors, int to, int tag) {
  return c10::make_intrusive<ShmMailWork>(
      OpType::SEND, std::shared_ptr<ShmPointToPoint>(group_, &group_->mail()),
      group_->mail().Send(InputBytes(SingleTensor(tensors)),
                          CheckRank(to, size_), tag,
                          std::make_shared<Tensors>(tensors)),
      timeout_);
}

ShmBackend::WorkPtr ShmBackend::recv(Tensors& tensors, int from, int tag) {
  return c10::make_intrusive<ShmMailWork>(
      OpType::RECV, std::shared_ptr<ShmPointToPoint>(group_, &group_->mail()),
      group_->mail().Receive(OutputBytes(SingleTensor(tensors)),
                             CheckRank(from, size_), tag,
                             std::make_shared<Tensors>(tensors)),
      timeout_);
}

at::Tensor ShmBackend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK(options.device().is_cpu(), "shm allocates CPU tensors");
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  int64_t bytes = 0;
  TORCH_CHECK(size >= 0 && !__builtin_mul_overflow(
                               size, c10::elementSize(dtype), &bytes),
              "shm cannot allocate ", size, " elements of ", dtype);
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
