#include "core/fused/bias_gelu.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstdint>
#include <type_traits>

#include "core/fused/element.h"
#include "core/fused/exponential.h"
#include "core/fused/find_operator.h"
#include "core/fused/row_blocks.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

constexpr float kTwiceK = 1.595769122f;  // 2 sqrt(2 / pi)
constexpr float kC = 0.044715f;

// (1 + tanh(k (x + c x^3))) / 2 is sigmoid(2 k (x + c x^3)).
template <GeluForm kForm>
TANDEM_INLINE float Value(float x) {
  if constexpr (kForm == GeluForm::kTanh) {
    return x * Sigmoid(x * (kTwiceK + kTwiceK * kC * (x * x)));
  } else {
    return x * NormalAt(x).below;
  }
}

template <GeluForm kForm>
TANDEM_INLINE float Slope(float x) {
  if constexpr (kForm == GeluForm::kTanh) {
    const float square = x * x;
    const float e = Exponential(-x * (kTwiceK + kTwiceK * kC * square));
    const float s = 1 / (1 + e);
    // s (1 - s) without a difference of what is alike.
    return s + x * (e * s * s) * (kTwiceK + 3 * kTwiceK * kC * square);
  } else {
    const Normal normal = NormalAt(x);
    return normal.below + x * normal.density;
  }
}

template <typename T, GeluForm kForm>
struct Forward {
  static TANDEM_INLINE void Body(T* y, const T* x, const T* bias, int64_t rows,
                                 int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) {
        const int64_t at = row * columns + i;
        y[at] = Narrow<T>(Value<kForm>(Widen(x[at]) + Widen(bias[i])));
      }
    }
  }
};

template <typename T, GeluForm kForm>
struct Backward {
  static TANDEM_INLINE void Body(T* dx, float* dbias, const T* dy, const T* x,
                                 const T* bias, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) {
        const int64_t at = row * columns + i;
        const float gradient =
            Widen(dy[at]) * Slope<kForm>(Widen(x[at]) + Widen(bias[i]));
        dbias[i] += gradient;
        dx[at] = Narrow<T>(gradient);
      }
    }
  }
};

template <typename T, GeluForm kForm>
void RunForward(const at::Tensor& y, const at::Tensor& x,
                const at::Tensor& bias) {
  static const auto run =
      Choose<Forward<T, kForm>, T*, const T*, const T*, int64_t, int64_t>();
  auto* to = y.mutable_data_ptr<T>();
  const auto* from = x.const_data_ptr<T>();
  const auto* added = bias.const_data_ptr<T>();
  const RowShape shape = AsRows(x);
  ForRowBlocks(shape, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * shape.columns;
    run(to + at, from + at, added, end - begin, shape.columns);
  });
}

template <typename T, GeluForm kForm>
at::Tensor RunBackward(const at::Tensor& dx, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& bias) {
  static const auto run = Choose<Backward<T, kForm>, T*, float*, const T*,
                                 const T*, const T*, int64_t, int64_t>();
  auto* to = dx.mutable_data_ptr<T>();
  const auto* gradient = dy.const_data_ptr<T>();
  const auto* from = x.const_data_ptr<T>();
  const auto* added = bias.const_data_ptr<T>();
  const RowShape shape = AsRows(x);
  return SumOverRowBlocks(shape, /*kinds=*/1,
                          [&](int64_t begin, int64_t end, float* sums) {
                            const int64_t at = begin * shape.columns;
                            run(to + at, sums, gradient + at, from + at, added,
                                end - begin, shape.columns);
                          })
      .view({shape.columns});
}

template <GeluForm kForm>
using FormConstant = std::integral_constant<GeluForm, kForm>;

// call(T(), FormConstant<...>())
template <typename Call>
void WithTypes(const at::Tensor& x, const at::Tensor& bias, bool tanh,
               const Call& call) {
  TORCH_CHECK(x.dim() >= 1 && bias.dim() == 1 && bias.size(0) == x.size(-1) &&
                  bias.scalar_type() == x.scalar_type(),
              "bias_gelu of ", x.scalar_type(), x.sizes(), " and a bias of ",
              bias.scalar_type(), bias.sizes(),
              ": the bias needs one number of the same dtype for each of the ",
              "last dimension");
  WithElementType("bias_gelu", x.scalar_type(), [&](auto element) {
    if (tanh) {
      call(element, FormConstant<GeluForm::kTanh>());
    } else {
      call(element, FormConstant<GeluForm::kNone>());
    }
  });
}

at::Tensor ForwardOnCpu(const at::Tensor& x, const at::Tensor& bias,
                        bool tanh) {
  const at::Tensor in = x.contiguous();
  const at::Tensor y = at::empty_like(in);
  WithTypes(in, bias, tanh, [&](auto element, auto form) {
    RunForward<decltype(element), form()>(y, in, bias.contiguous());
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor> BackwardOnCpu(const at::Tensor& dy,
                                                 const at::Tensor& x,
                                                 const at::Tensor& bias,
                                                 bool tanh) {
  TORCH_CHECK(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type(),
              "bias_gelu_backward of ", dy.scalar_type(), dy.sizes(), " for ",
              x.scalar_type(), x.sizes());
  const at::Tensor in = x.contiguous();
  const at::Tensor dx = at::empty_like(in);
  at::Tensor dbias;
  WithTypes(in, bias, tanh, [&](auto element, auto form) {
    dbias = RunBackward<decltype(element), form()>(dx, dy.contiguous(), in,
                                                   bias.contiguous());
  });
  return {dx, dbias};
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("bias_gelu(Tensor x, Tensor bias, bool tanh) -> Tensor");
  library.def(
      "bias_gelu_backward(Tensor dy, Tensor x, Tensor bias, bool tanh) -> "
      "(Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("bias_gelu", ForwardOnCpu);
  library.impl("bias_gelu_backward", BackwardOnCpu);
}

}  // namespace

at::Tensor BiasGelu(const at::Tensor& x, const at::Tensor& bias,
                    GeluForm form) {
  static const auto op =
      FindOperator<decltype(ForwardOnCpu)>("tandem::bias_gelu");
  return op.call(x, bias, form == GeluForm::kTanh);
}

std::tuple<at::Tensor, at::Tensor> BiasGeluBackward(const at::Tensor& dy,
                                                    const at::Tensor& x,
                                                    const at::Tensor& bias,
                                                    GeluForm form) {
  static const auto op =
      FindOperator<decltype(BackwardOnCpu)>("tandem::bias_gelu_backward");
  return op.call(dy, x, bias, form == GeluForm::kTanh);
}

}  // namespace tandem
