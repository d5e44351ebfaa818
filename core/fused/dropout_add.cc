#include "core/fused/dropout_add.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/cuda/dropout_elements.h"
#include "core/device/host_memory.h"
#include "core/fused/element.h"
#include "core/fused/find_operator.h"
#include "core/fused/row_blocks.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

// Blocks of four numbers that are drawn side by side.
constexpr int kBlocks = 16;

// 32-bit words in 64 bits each, so that products have room.
using WideWords = uint64_t __attribute__((vector_size(8 * kBlocks)));

// The numbers of kBlocks blocks from the given one on, of one sample: word k of
// each in words[k].
TANDEM_INLINE void Draw(uint64_t first_block, uint64_t sample,
                        const uint32_t (&key)[2], WideWords (&words)[4]) {
  constexpr uint64_t kLow = 0xFFFFFFFF;
  WideWords block;
  for (int i = 0; i < kBlocks; ++i) {
    block[i] = first_block + static_cast<uint64_t>(i);
  }
  WideWords a = block & kLow;
  WideWords b = block >> 32;
  WideWords c = WideWords{} + (sample & kLow);
  WideWords d = WideWords{} + (sample >> 32);
  uint32_t low = key[0];
  uint32_t high = key[1];
  for (int round = 0; round < 10; ++round) {
    const WideWords first = a * uint64_t{0xD2511F53};
    const WideWords second = c * uint64_t{0xCD9E8D57};
    a = (second >> 32) ^ b ^ uint64_t { low };
    b = second & kLow;
    c = (first >> 32) ^ d ^ uint64_t { high };
    d = first & kLow;
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  words[0] = a;
  words[1] = b;
  words[2] = c;
  words[3] = d;
}

template <typename T, bool kAdds>
struct Drop {
  // `part` has a run.
  static TANDEM_INLINE void Body(T* y, const T* x, const T* residual,
                                 int64_t rows, int64_t columns,
                                 uint64_t first_sample, DropoutFactors factors,
                                 SamplePart part) {
    const int64_t runs = columns / part.run;  // of a row
    for (int64_t i = 0; i < rows * runs; ++i) {
      const int64_t at = i * part.run;
      Run(y + at, x + at, kAdds ? residual + at : nullptr, part.run,
          part.begin + i % runs * part.stride,
          first_sample + static_cast<uint64_t>(i / runs), factors);
    }
  }

  // Elements of a sample from `place` on.
  static TANDEM_INLINE void Run(T* y, const T* x, const T* residual,
                                int64_t length, int64_t place, uint64_t sample,
                                const DropoutFactors& factors) {
    constexpr int64_t kElements = 4 * kBlocks;
    // A block that begins before the run is drawn whole.
    for (int64_t first = -(place % 4); first < length; first += kElements) {
      WideWords words[4];
      Draw(static_cast<uint64_t>((place + first) / 4), sample, factors.key,
           words);
      float mask[kElements];
      for (int k = 0; k < 4; ++k) {
        uint64_t of_blocks[kBlocks];
        std::memcpy(of_blocks, &words[k], sizeof(of_blocks));
        for (int i = 0; i < kBlocks; ++i) {
          mask[4 * i + k] =
              of_blocks[i] < factors.threshold ? 0 : factors.scale;
        }
      }
      const int64_t begin = std::max<int64_t>(0, -first);
      const int64_t count = std::min(kElements, length - first);
      TANDEM_INDEPENDENT
      for (int64_t i = begin; i < count; ++i) {
        float value = Widen(x[first + i]) * mask[i];
        if constexpr (kAdds) value += Widen(residual[first + i]);
        y[first + i] = Narrow<T>(value);
      }
    }
  }
};

template <typename T, bool kAdds>
void Run(const at::Tensor& y, const at::Tensor& x, const at::Tensor& residual,
         int64_t first_sample, const DropoutFactors& factors,
         const SamplePart& part) {
  static const auto run =
      Choose<Drop<T, kAdds>, T*, const T*, const T*, int64_t, int64_t, uint64_t,
             DropoutFactors, SamplePart>();
  auto* to = y.mutable_data_ptr<T>();
  const auto* from = x.const_data_ptr<T>();
  const auto* added = kAdds ? residual.const_data_ptr<T>() : nullptr;
  const int64_t rows = x.size(0);
  const int64_t columns = x.numel() / rows;
  ForRowBlocks({rows, columns}, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * columns;
    run(to + at, from + at, kAdds ? added + at : nullptr, end - begin, columns,
        static_cast<uint64_t>(first_sample + begin), factors, part);
  });
}

// By row, whatever the strides.
at::Tensor DropOnCpu(const at::Tensor& x,
                     const std::optional<at::Tensor>& residual, double p,
                     int64_t key, int64_t first_sample, int64_t begin,
                     int64_t run, int64_t stride) {
  const bool adds = HasResidual(residual);
  const SamplePart given = {begin, run, stride};
  CheckDropout(x, residual, p, given);
  const DropoutFactors factors =
      MakeDropoutFactors(static_cast<uint64_t>(key), p);
  const at::Tensor in = x.contiguous();
  const at::Tensor y = at::empty_like(in);
  if (in.numel() == 0) return y;
  const SamplePart part = InRuns(given, in.numel() / in.size(0));
  WithElementType("dropout_add", in.scalar_type(), [&](auto element) {
    using T = decltype(element);
    if (adds) {
      Run<T, true>(y, in, residual->contiguous(), first_sample, factors, part);
    } else {
      Run<T, false>(y, in, at::Tensor(), first_sample, factors, part);
    }
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "dropout_add(Tensor x, Tensor? residual, float p, int key, "
      "int first_sample, int begin, int run, int stride) -> Tensor");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("dropout_add", DropOnCpu);
}

}  // namespace

bool HasDropoutAdd(const at::Tensor& x) {
  if (x.layout() != at::kStrided || x.dim() == 0) return false;
  const at::ScalarType dtype = x.scalar_type();
  const bool is_known = dtype == at::kFloat || dtype == at::kBFloat16;
  if (RunsCpuKernels(x.device().type())) return is_known;
#ifdef TANDEM_CUDA
  return x.is_cuda() && (is_known || dtype == at::kHalf);
#else
  return false;
#endif
}

at::Tensor DropoutAdd(const at::Tensor& x, const at::Tensor& residual,
                      const DropoutDraws& draws) {
  static const auto op =
      FindOperator<decltype(DropOnCpu)>("tandem::dropout_add");
  return op.call(x, residual.defined() ? std::optional(residual) : std::nullopt,
                 draws.p, static_cast<int64_t>(draws.key), draws.first_sample,
                 draws.part.begin, draws.part.run, draws.part.stride);
}

}  // namespace tandem
