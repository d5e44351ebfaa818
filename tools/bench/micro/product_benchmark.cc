// What a prearranged weight would save: the products of a stack of linear
// layers, forward and backward, of a microbatch. Forward multiplies x [rows,
// in] by weight [out, in]^T, and the ways differ in how:
//
//   mkl, onednn: with the weight as it is
//   transposed: by oneDNN, with a copy whose rows are contiguous
//   reordered: by oneDNN, with a copy in the layout that it asks for
//   packed: by MKL, with a copy that it has packed
//
// Copies are made once for `uses` microbatches. Backward (dy times weight, dy^T
// times x) follows for all layers, by oneDNN, so that caches hold what they
// hold in a step; or not at all ("forward"). One thread. `each` is seconds of a
// microbatch, its part of the copies included.
//
//   bazel run //tools/bench:product_benchmark --
//       --benchmark_enable_random_interleaving --benchmark_repetitions=9

#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/functions/onednn_product.h"

// Of libtorch_cpu, where its BLAS is MKL (mkl_cblas.h, which is not installed).
extern "C" {
__attribute__((weak)) size_t cblas_sgemm_pack_get_size(int identifier, int m,
                                                       int n, int k);
__attribute__((weak)) void cblas_sgemm_pack(int order, int identifier,
                                            int transpose, int m, int n, int k,
                                            float alpha, const float* source,
                                            int stride, float* packed);
__attribute__((weak)) void cblas_sgemm_compute(int order, int transpose_a,
                                               int transpose_b, int m, int n,
                                               int k, const float* a,
                                               int stride_a, const float* b,
                                               int stride_b, float beta,
                                               float* c, int stride_c);
}

namespace tandem {
namespace {

// CBLAS's constants.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112,
              kPackedFactor = 151, kRightFactor = 162;

struct Layer {
  Layer(int64_t rows, int64_t width, at::ScalarType dtype)
      : x(at::randn({rows, width}).to(dtype)),
        weight(at::randn({width, width}).to(dtype)),
        y(at::empty({rows, width}, dtype)),
        gradient(at::empty({width, width}, dtype)) {}

  at::Tensor x, weight, y, gradient;
  at::Tensor copy;
};

struct Way {
  virtual ~Way() = default;
  virtual bool exists(at::ScalarType) const { return true; }
  virtual void Prepare(Layer&) const {}
  virtual void Forward(Layer& layer) const = 0;
};

struct Mkl : Way {
  bool exists(at::ScalarType dtype) const override {
    return dtype == at::kFloat;
  }
  void Forward(Layer& layer) const override {
    at::mm_out(layer.y, layer.x, layer.weight.t());
  }
};

struct OneDnn : Way {
  void Forward(Layer& layer) const override {
    PutOneDnnProduct(layer.y, layer.x, layer.weight.t());
  }
};

struct Transposed : Way {
  void Prepare(Layer& layer) const override {
    if (!layer.copy.defined()) layer.copy = at::empty_like(layer.weight);
    layer.copy.copy_(layer.weight.t());
  }
  void Forward(Layer& layer) const override {
    PutOneDnnProduct(layer.y, layer.x, layer.copy);
  }
};

struct Reordered : Way {
  using Reorder = at::Tensor(const at::Tensor&, std::optional<int64_t>);
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Linear = at::Tensor(const at::Tensor&, const at::Tensor&,
                            const std::optional<at::Tensor>&, std::string_view,
                            Scalars, std::optional<std::string_view>);

  template <typename Function>
  static c10::TypedOperatorHandle<Function> Find(const char* name) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow(name, "")
        .typed<Function>();
  }
  void Prepare(Layer& layer) const override {
    static const auto reorder = Find<Reorder>("mkldnn::_reorder_linear_weight");
    layer.copy = reorder.call(layer.weight, layer.x.size(0));
  }
  void Forward(Layer& layer) const override {
    static const auto linear = Find<Linear>("mkldnn::_linear_pointwise");
    layer.y =
        linear.call(layer.x, layer.copy, std::nullopt, "none", Scalars(), "");
  }
};

struct Packed : Way {
  bool exists(at::ScalarType dtype) const override {
    return dtype == at::kFloat && cblas_sgemm_pack != nullptr;
  }
  void Prepare(Layer& layer) const override {
    const int rows = static_cast<int>(layer.x.size(0));
    const int width = static_cast<int>(layer.x.size(1));
    if (!layer.copy.defined()) {
      const size_t bytes =
          cblas_sgemm_pack_get_size(kRightFactor, rows, width, width);
      layer.copy = at::empty({static_cast<int64_t>(bytes / sizeof(float)) + 1});
    }
    cblas_sgemm_pack(kRowMajor, kRightFactor, kTranspose, rows, width, width,
                     /*alpha=*/1, layer.weight.const_data_ptr<float>(), width,
                     layer.copy.data_ptr<float>());
  }
  void Forward(Layer& layer) const override {
    const int rows = static_cast<int>(layer.x.size(0));
    const int width = static_cast<int>(layer.x.size(1));
    cblas_sgemm_compute(kRowMajor, kNoTranspose, kPackedFactor, rows, width,
                        width, layer.x.const_data_ptr<float>(), width,
                        layer.copy.const_data_ptr<float>(), width, /*beta=*/0,
                        layer.y.data_ptr<float>(), width);
  }
};

void RunBackward(Layer& layer) {
  PutOneDnnProduct(layer.x, layer.y, layer.weight);
  PutOneDnnProduct(layer.gradient, layer.y.t(), layer.x);
}

struct Stack {
  at::ScalarType dtype;
  int64_t rows, width, layers;
};

void Run(benchmark::State& state, const Way& way, const Stack& stack, int uses,
         bool with_backward) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  std::vector<Layer> layers;
  for (int64_t i = 0; i < stack.layers; ++i) {
    layers.emplace_back(stack.rows, stack.width, stack.dtype);
  }
  for (auto _ : state) {
    for (int use = 0; use < uses; ++use) {
      for (Layer& layer : layers) {
        if (use == 0) way.Prepare(layer);
        way.Forward(layer);
      }
      if (!with_backward) continue;
      for (Layer& layer : layers) RunBackward(layer);
    }
  }
  state.counters["each"] =
      benchmark::Counter(uses, benchmark::Counter::kIsIterationInvariantRate |
                                   benchmark::Counter::kInvert);
}

void Register(const std::string& name, const std::shared_ptr<const Way>& way) {
  for (const Stack& stack :
       {Stack{at::kFloat, 16, 512, 8}, Stack{at::kFloat, 32, 512, 8},
        Stack{at::kFloat, 64, 512, 8}, Stack{at::kFloat, 16, 2048, 3},
        Stack{at::kBFloat16, 16, 512, 8}, Stack{at::kBFloat16, 64, 512, 8}}) {
    if (!HasOneDnnProduct(stack.dtype) || !way->exists(stack.dtype)) continue;
    for (const int uses : {1, 4, 8, 32}) {
      for (const bool with_backward : {false, true}) {
        const std::string title =
            std::string(with_backward ? "step" : "forward") + "/" +
            c10::toString(stack.dtype) + "/rows:" + std::to_string(stack.rows) +
            "/width:" + std::to_string(stack.width) +
            "/layers:" + std::to_string(stack.layers) +
            "/uses:" + std::to_string(uses) + "/" + name;
        benchmark::RegisterBenchmark(title.c_str(), [=](benchmark::State&
                                                            state) {
          Run(state, *way, stack, uses, with_backward);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

void RegisterAll() {
  Register("mkl", std::make_shared<Mkl>());
  Register("onednn", std::make_shared<OneDnn>());
  Register("transposed", std::make_shared<Transposed>());
  Register("reordered", std::make_shared<Reordered>());
  Register("packed", std::make_shared<Packed>());
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
