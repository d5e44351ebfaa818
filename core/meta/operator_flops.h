// FLOPs of an operator's call, by the shapes of its arguments.

#ifndef TANDEM_CORE_META_OPERATOR_FLOPS_H_
#define TANDEM_CORE_META_OPERATOR_FLOPS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct ConvolutionGeometry {
  // Each of as many dimensions as there are, or one for all.
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  std::vector<int64_t> output_padding;
  bool transposed = false;
};

// The output's height and width, say.
std::vector<int64_t> OutputPlaces(const at::Tensor& input,
                                  const at::Tensor& weight,
                                  const ConvolutionGeometry& how);

// FLOPs of matrix products, convolutions, the fused attention of core/fused,
// and their gradients, a multiplication and an addition being two; 0 for any
// other operator. `name` is one without its overload: "aten::mm".
double OperatorFlops(const std::string& name,
                     c10::ArrayRef<c10::IValue> arguments);

}  // namespace tandem

#endif  // TANDEM_CORE_META_OPERATOR_FLOPS_H_
