#include "core/shm/reduction.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <c10/util/Exception.h>

namespace tandem {
namespace {

double FactorOf(const c10d::ReduceOp& op) {
  const auto* const supplement =
      dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "PREMUL_SUM needs a factor");
  return supplement->tensor_factor.defined()
             ? supplement->tensor_factor.item<double>()
             : supplement->double_factor;
}

ReduceKind KindOf(c10d::ReduceOp::RedOpType op) {
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

}  // namespace

Reduction ReductionOf(const c10d::ReduceOp& op, c10::ScalarType dtype,
                      int ranks) {
  Reduction reduction;
  reduction.dtype = dtype;
  reduction.kind = KindOf(op.op_);
  if (op.op_ == c10d::ReduceOp::AVG) reduction.divisor = ranks;
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM) reduction.factor = FactorOf(op);
  return reduction;
}

VectorSum SumOf(const Reduction& reduction) {
  absl::StatusOr<VectorSum> sum = VectorSum::Make(reduction);
  TORCH_CHECK(sum.ok(), sum.status().message());
  return *sum;
}

}  // namespace tandem
