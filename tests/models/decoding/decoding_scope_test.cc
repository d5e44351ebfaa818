#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <thread>
#include <vector>

#include "core/model/layer_list.h"
#include "gtest/gtest.h"
#include "models/decoding/kv_cache.h"
#include "models/transformer/gpt.h"

namespace tandem::decoding_scope_test {
namespace {

constexpr GptOptions kSmall = {/*layers=*/3, /*width=*/12, /*heads=*/3,
                               /*context=*/9, /*vocabulary=*/11};

at::Tensor Tokens() {
  return (at::arange(2 * kSmall.context, at::kLong) * 5 % kSmall.vocabulary)
      .view({2, kSmall.context});
}

at::Tensor InPasses(const LayerList& layers,
                    const std::vector<int64_t>& passes) {
  KvCache cache(kSmall.context);
  std::vector<at::Tensor> logits;
  for (const int64_t tokens : passes) {
    const DecodingScope scope(&cache);
    logits.push_back(Forward(layers, Tokens().narrow(1, cache.past(), tokens)));
  }
  return at::cat(logits, 1);
}

// The obvious wrong ways (positions that begin anew, a mask that is aligned
// with the first key) are off by more than a tenth.
TEST(DecodingScopeTest, TokenByTokenGptGivesTheLogitsOfTheWhole) {
  LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : NamedParameters(layers)) {
    if (parameter.second.dim() > 1) parameter.second.mul_(20);
  }
  const at::Tensor whole = Forward(layers, Tokens());
  for (const std::vector<int64_t>& passes : {std::vector<int64_t>{9},
                                             {5, 1, 1, 1, 1},
                                             {2, 4, 3},
                                             std::vector<int64_t>(9, 1)}) {
    const at::Tensor logits = InPasses(layers, passes);
    EXPECT_LE((logits - whole).abs().max().item<double>(),
              1e-5 * whole.abs().max().item<double>())
        << "first pass of " << passes.front();
  }
}

TEST(DecodingScopeTest, TokensBehindTheContextAreRefused) {
  const LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  KvCache cache(kSmall.context + 1);
  {
    const DecodingScope scope(&cache);
    Forward(layers, Tokens());
  }
  const DecodingScope scope(&cache);
  EXPECT_THROW(Forward(layers, Tokens().narrow(1, 0, 1)), c10::Error);
}

TEST(DecodingScopeTest, ComputesNoGradients) {
  const LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  EXPECT_TRUE(Forward(layers, Tokens()).requires_grad());
  KvCache cache(kSmall.context);
  const DecodingScope scope(&cache);
  EXPECT_FALSE(Forward(layers, Tokens()).requires_grad());
}

TEST(DecodingScopeTest, IsTheCallingThreadsInnermost) {
  EXPECT_EQ(DecodingScope::Current(), nullptr);
  EXPECT_EQ(DecodingScope::Past(), 0);
  KvCache outer(1);
  KvCache inner(1);
  const DecodingScope scope(&outer);
  {
    const DecodingScope nested(&inner);
    EXPECT_EQ(DecodingScope::Current(), &inner);
  }
  EXPECT_EQ(DecodingScope::Current(), &outer);
  std::thread([] { EXPECT_EQ(DecodingScope::Current(), nullptr); }).join();
}

}  // namespace
}  // namespace tandem::decoding_scope_test
