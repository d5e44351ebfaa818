#include "models/functions/matrix_product.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/autotune/kernel_choices.h"
#include "core/autotune/thread_answers.h"
#include "core/device/host_memory.h"
#include "core/fused/one_dnn_matmul.h"
#include "core/fused/row_major_gemm.h"

namespace tandem {
namespace {

// How a matrix lies in memory, as far as it decides how fast it is read.
enum class Order : char {
  kRows = 'n',
  kColumns = 't',
  kRowsOfLonger = 'N',
  kColumnsOfLonger = 'T',
  kScattered = 's',
};

Order MemoryOrder(const at::Tensor& matrix) {
  if (matrix.stride(1) == 1) {
    return matrix.stride(0) == matrix.size(1) ? Order::kRows
                                              : Order::kRowsOfLonger;
  }
  if (matrix.stride(0) == 1) {
    return matrix.stride(1) == matrix.size(0) ? Order::kColumns
                                              : Order::kColumnsOfLonger;
  }
  return Order::kScattered;
}

// m, k, n, orders of a and b, with a bias, threads.
using Question = std::tuple<int64_t, int64_t, int64_t, Order, Order, bool, int>;

std::string QuestionText(const Question& question) {
  const auto& [m, k, n, a, b, has_bias, threads] = question;
  return absl::StrCat("product ", m, " x ", k, " x ", n, " ",
                      std::string({static_cast<char>(a), static_cast<char>(b)}),
                      has_bias ? " with bias" : "", " on ", threads,
                      threads == 1 ? " thread" : " threads");
}

}  // namespace

int64_t LeastProductForOneDnn() {
  return KernelChoices::OfProcess().measures() ? kLeastMeasuredProduct
                                               : kLeastOneDnnProduct;
}

bool FasterIsOneDnn(const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& bias, absl::FunctionRef<void()> by_mkl,
                    absl::FunctionRef<void()> by_one_dnn) {
  const Question question = {a.size(0),
                             a.size(1),
                             b.size(1),
                             MemoryOrder(a),
                             MemoryOrder(b),
                             bias.defined(),
                             at::get_num_threads()};
  const auto& answers = ThreadAnswers<Question, bool>();
  const auto found = answers.find(question);
  if (found != answers.end()) return found->second;
  const bool rule = a.size(0) * a.size(1) * b.size(1) >= kLeastOneDnnProduct;
  const bool answer =
      KernelChoices::OfProcess().Pick(
          QuestionText(question),
          {{"mkl", [&] { by_mkl(); }}, {"onednn", [&] { by_one_dnn(); }}},
          rule ? 1 : 0) == 1;
  ThreadAnswers<Question, bool>()[question] = answer;
  return answer;
}

namespace {

using Scalars = c10::List<std::optional<at::Scalar>>;
// x [m, k], weight [n, k] -> x weight^T + bias. What TorchInductor calls.
using LinearPointwise = at::Tensor(const at::Tensor& x,
                                   const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias,
                                   std::string_view after, Scalars scalars,
                                   std::optional<std::string_view> algorithm);

using LinearHandle = c10::TypedOperatorHandle<LinearPointwise>;

std::optional<LinearHandle> FindLinear() {
  if (!at::globalContext().hasMKLDNN()) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema(
      {"mkldnn::_linear_pointwise", ""});
  if (!found.has_value()) return std::nullopt;
  return found->typed<LinearPointwise>();
}

const std::optional<LinearHandle>& Linear() {
  static const auto* const linear =
      new std::optional<LinearHandle>(FindLinear());
  return *linear;
}

// a [m, k] times b [k, n], plus bias [n] unless it is undefined: all of one
// dtype that oneDNN has, on a device that runs the CPU's kernels, with any
// strides.
at::Tensor OneDnnProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias) {
  return Linear()->call(a, b.t(),
                        bias.defined() ? std::optional(bias) : std::nullopt,
                        "none", Scalars(), "");
}

bool WorksInBf16() {
  if (!Linear().has_value() || !HasOneDnnMatmul(at::kBFloat16)) return false;
  try {
    const at::Tensor one = at::ones({1, 1}, at::kBFloat16);
    OneDnnProduct(one, one, one.view({1}));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Whether oneDNN multiplies matrices of this dtype, float or bf16, here: the
// processor has what it needs.
bool HasOneDnnProduct(at::ScalarType dtype) {
  if (dtype == at::kFloat) return Linear().has_value();
  static const bool has_bf16 = WorksInBf16();
  return dtype == at::kBFloat16 && has_bf16;
}

// Writes that to `product` [m, n], of their dtype.
void PutOneDnnProduct(const at::Tensor& product, const at::Tensor& a,
                      const at::Tensor& b) {
  if (HasOneDnnMatmul(a.scalar_type())) {
    OneDnnMatmul(product, a, b);
  } else {
    product.copy_(OneDnnProduct(a, b, /*bias=*/{}));
  }
}

using Bf16 = c10::BFloat16;

bool HasRows(const at::Tensor& matrix) {
  return (matrix.stride(1) == 1 || matrix.size(1) == 1) &&
         matrix.stride(0) >= matrix.size(1);
}

// The stride of a single row may be anything.
GemmOperand<Bf16> RowOperand(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<Bf16>(),
          std::max(matrix.stride(0), matrix.size(1))};
}

// Calls `use` with the matrix as a product takes it: one stride is 1, the other
// at least a row's length.
template <typename Use>
void WithOperand(const at::Tensor& matrix, const Use& use) {
  if (HasRows(matrix)) return use(RowOperand(matrix));
  const at::Tensor transposed = matrix.t();
  if (!HasRows(transposed)) return use(RowOperand(matrix.contiguous()));
  GemmOperand<Bf16> operand = RowOperand(transposed);
  operand.is_transposed = true;
  use(operand);
}

bool Records(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

bool IsPlain(const at::Tensor& matrix) {
  return RunsCpuKernels(matrix.device().type()) &&
         matrix.layout() == at::kStrided && matrix.dim() == 2 &&
         !Records(matrix);
}

// bf16 or fp16 on a processor that multiplies floats faster.
bool AreForFloats(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType dtype = a.scalar_type();
  return (dtype == at::kBFloat16 || dtype == at::kHalf) &&
         b.scalar_type() == dtype && IsPlain(a) && IsPlain(b) &&
         !HasOneDnnMatmul(dtype);
}

bool MayBeForOneDnn(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType dtype = a.scalar_type();
  if (!IsPlain(a) || !IsPlain(b) || b.scalar_type() != dtype ||
      a.size(1) != b.size(0) || !HasOneDnnProduct(dtype)) {
    return false;
  }
  const int64_t multiplications = a.size(0) * a.size(1) * b.size(1);
  return multiplications >= (dtype == at::kFloat ? LeastProductForOneDnn() : 1);
}

bool MayBeForOneDnn(const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& bias) {
  return MayBeForOneDnn(a, b) && bias.dim() == 1 && bias.size(0) == b.size(1) &&
         bias.scalar_type() == a.scalar_type() && !Records(bias);
}

bool AreForWideProduct(const at::Tensor& product, const at::Tensor& a,
                       const at::Tensor& b) {
  return product.scalar_type() == at::kFloat &&
         a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16 &&
         product.is_contiguous() && a.size(1) == b.size(0) && HasWideProduct();
}

bool AreForOneDnn(at::Tensor& product, const at::Tensor& a,
                  const at::Tensor& b) {
  if (!MayBeForOneDnn(a, b)) return false;
  if (a.scalar_type() != at::kFloat) return true;
  return FasterIsOneDnn(
      a, b, /*bias=*/{}, [&] { at::mm_out(product, a, b); },
      [&] { PutOneDnnProduct(product, a, b); });
}

// The product in its factors' dtype is made so many elements at a time, that
// they are still in the core's cache when they are made wider.
constexpr int64_t kElementsToWiden = int64_t{1} << 19;

void PutWidened(const at::Tensor& product, const at::Tensor& a,
                const at::Tensor& b) {
  const int64_t rows = std::max<int64_t>(
      1, kElementsToWiden / std::max<int64_t>(1, product.size(1)));
  for (int64_t begin = 0; begin < product.size(0); begin += rows) {
    const int64_t count = std::min(rows, product.size(0) - begin);
    product.narrow(0, begin, count)
        .copy_(MatrixProduct(a.narrow(0, begin, count), b));
  }
}

at::Tensor& PutOnCpu(at::Tensor& product, const at::Tensor& a,
                     const at::Tensor& b) {
  if (AreForWideProduct(product, a, b)) {
    PutWideProduct(product, a, b);
  } else if (AreForFloats(a, b)) {
    product.copy_(MatrixProduct(a.to(at::kFloat), b.to(at::kFloat)));
  } else if (product.scalar_type() != a.scalar_type()) {
    PutWidened(product, a, b);
  } else if (AreForOneDnn(product, a, b)) {
    PutOneDnnProduct(product, a, b);
  } else {
    at::mm_out(product, a, b);
  }
  return product;
}

at::Tensor ProductWithBiasOnCpu(const at::Tensor& a, const at::Tensor& b,
                                const at::Tensor& bias) {
  const auto by_mkl = [&] { return at::addmm(bias, a, b); };
  const auto by_one_dnn = [&] { return OneDnnProduct(a, b, bias); };
  const bool is_one_dnn =
      a.scalar_type() != at::kFloat ||
      FasterIsOneDnn(
          a, b, bias, [&] { by_mkl(); }, [&] { by_one_dnn(); });
  return is_one_dnn ? by_one_dnn() : by_mkl();
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "put_matrix_product(Tensor(a!) product, Tensor a, Tensor b) -> "
      "Tensor(a!)");
  library.def(
      "matrix_product_with_bias(Tensor a, Tensor b, Tensor bias) -> Tensor");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("put_matrix_product", PutOnCpu);
  library.impl("matrix_product_with_bias", ProductWithBiasOnCpu);
}

at::Tensor ProductWithBias(const at::Tensor& a, const at::Tensor& b,
                           const at::Tensor& bias) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("tandem::matrix_product_with_bias", "")
          .typed<decltype(ProductWithBiasOnCpu)>();
  return op.call(a, b, bias);
}

at::Tensor PutInNew(at::ScalarType dtype, const at::Tensor& a,
                    const at::Tensor& b) {
  const at::Tensor product =
      at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype));
  PutMatrixProduct(product, a, b);
  return product;
}

}  // namespace

bool HasWideProduct() { return HasGemm(at::kBFloat16); }

void PutWideProduct(const at::Tensor& product, const at::Tensor& a,
                    const at::Tensor& b) {
  if (product.numel() == 0) return;
  if (a.size(1) == 0) {
    product.zero_();
    return;
  }
  WithOperand(a, [&](const GemmOperand<Bf16>& left) {
    WithOperand(b, [&](const GemmOperand<Bf16>& right) {
      Gemm<Bf16>({a.size(0), a.size(1), b.size(1)}, /*alpha=*/1, left, right,
                 /*beta=*/0, product.data_ptr<float>(), b.size(1));
    });
  });
}

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias) {
  if (AreForFloats(a, b) && !(bias.defined() && Records(bias))) {
    // Autocast would make them bf16 again.
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(
        c10::autocast_dispatch_keyset);
    return MatrixProduct(a.to(at::kFloat), b.to(at::kFloat),
                         bias.defined() ? bias.to(at::kFloat) : bias)
        .to(a.scalar_type());
  }
  if (bias.defined()) {
    return MayBeForOneDnn(a, b, bias) ? ProductWithBias(a, b, bias)
                                      : at::addmm(bias, a, b);
  }
  return MayBeForOneDnn(a, b) ? PutInNew(a.scalar_type(), a, b) : at::mm(a, b);
}

at::Tensor MatrixProductIn(at::ScalarType dtype, const at::Tensor& a,
                           const at::Tensor& b) {
  if (dtype == a.scalar_type()) return MatrixProduct(a, b);
  if (!IsPlain(a) || !IsPlain(b)) return MatrixProduct(a, b).to(dtype);
  return PutInNew(dtype, a, b);
}

void PutMatrixProduct(const at::Tensor& product, const at::Tensor& a,
                      const at::Tensor& b) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("tandem::put_matrix_product", "")
          .typed<decltype(PutOnCpu)>();
  at::Tensor to = product;
  op.call(to, a, b);
}

namespace {

// NaN where one is.
double GreatestMagnitude(const at::Tensor& numbers) {
  const auto [least, greatest] = at::aminmax(numbers);
  return std::max(-least.item<double>(), greatest.item<double>());
}

}  // namespace

bool HasFiniteProduct(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kMuchSmaller = 4;
  constexpr double kFarFromInfinite = 1e30;
  const int64_t product = a.size(0) * b.size(1);
  if (!a.is_cpu() || !b.is_cpu() || a.scalar_type() == at::kHalf ||
      a.numel() == 0 || b.numel() == 0 ||
      (a.numel() + b.numel()) * kMuchSmaller > product) {
    return false;
  }
  const at::NoGradGuard no_grad;
  const double bound = static_cast<double>(a.size(1)) * GreatestMagnitude(a) *
                       GreatestMagnitude(b);
  return bound < kFarFromInfinite;
}

}  // namespace tandem
