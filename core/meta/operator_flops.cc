#include "core/meta/operator_flops.h"

#include <c10/util/accumulate.h>

#include <cstddef>

namespace tandem {
namespace {

using Sizes = std::vector<int64_t>;
using Arguments = c10::ArrayRef<c10::IValue>;

double Numel(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel());
}

// Each element of the first factor meets a row of the second.
double OfProduct(const at::Tensor& first, const at::Tensor& second) {
  return 2 * Numel(first) * static_cast<double>(second.sizes().back());
}

int64_t Of(const Sizes& sizes, size_t i) {
  return sizes.size() == 1 ? sizes[0] : sizes.at(i);
}

// Each place of the output (of the input, transposed) meets each weight once.
// The geometry's arguments begin with number `first`.
double OfConvolution(const at::Tensor& input, const at::Tensor& weight,
                     Arguments arguments, size_t first) {
  const ConvolutionGeometry how = {
      arguments[first].toIntVector(), arguments[first + 1].toIntVector(),
      arguments[first + 2].toIntVector(), arguments[first + 4].toIntVector(),
      arguments[first + 3].toBool()};
  const int64_t places =
      c10::multiply_integers(how.transposed ? input.sizes().slice(2).vec()
                                            : OutputPlaces(input, weight, how));
  return 2 * static_cast<double>(input.size(0) * places) * Numel(weight);
}

// By the input's and by the weight's gradient, if they are asked for.
double OfConvolutionBackward(Arguments arguments) {
  const std::vector<bool> wanted = arguments[10].toBoolList().vec();
  const double forward =
      OfConvolution(arguments[1].toTensor(), arguments[2].toTensor(), arguments,
                    /*first=*/4);
  return forward * (static_cast<int>(wanted[0]) + static_cast<int>(wanted[1]));
}

// Scores, and what they weigh: of [n, tokens, 3 * width].
double OfAttention(const at::Tensor& qkv) {
  const auto tokens = static_cast<double>(qkv.size(1));
  return 4 * Numel(qkv) / 3 * tokens;
}

}  // namespace

Sizes OutputPlaces(const at::Tensor& input, const at::Tensor& weight,
                   const ConvolutionGeometry& how) {
  Sizes places;
  for (size_t i = 0; i + 2 < input.sizes().size(); ++i) {
    const auto d = static_cast<int64_t>(i) + 2;
    const int64_t reach = Of(how.dilation, i) * (weight.size(d) - 1) + 1;
    const int64_t stride = Of(how.stride, i);
    const int64_t padding = 2 * Of(how.padding, i);
    places.push_back(how.transposed
                         ? (input.size(d) - 1) * stride - padding + reach +
                               Of(how.output_padding, i)
                         : (input.size(d) + padding - reach) / stride + 1);
  }
  return places;
}

double OperatorFlops(const std::string& name, Arguments arguments) {
  const auto tensor = [&](size_t i) { return arguments[i].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm" ||
      name == "tandem::matrix_product_with_bias") {
    return OfProduct(tensor(0), tensor(1));
  }
  if (name == "aten::addmm" || name == "aten::baddbmm" ||
      name == "aten::addmm_" || name == "tandem::put_matrix_product") {
    return OfProduct(tensor(1), tensor(2));
  }
  if (name == "aten::convolution") {
    return OfConvolution(tensor(0), tensor(1), arguments, /*first=*/3);
  }
  if (name == "aten::convolution_backward") {
    return OfConvolutionBackward(arguments);
  }
  if (name == "tandem::causal_attention") return OfAttention(tensor(0));
  // The scores again, and the gradients of both products' factors.
  if (name == "tandem::causal_attention_backward") {
    return 2.5 * OfAttention(tensor(1));
  }
  return 0;
}

}  // namespace tandem
