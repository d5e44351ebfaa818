// Transformers that ranks share: which collectives they issue, what they
// refuse, and what follows for their parameters.

#include <ATen/TensorOperators.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "core/meta/shapes.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer_list.h"
#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/lora/lora.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/training_memory.h"
#include "models/transformer/vit.h"
#include "models/vocab_parallel.h"
#include "tests/models/tensor_parallel_lab.h"
#include "tests/models/transformer/tensor_parallel_problems.h"

namespace tandem::tensor_parallel_rules_test {
namespace {

int64_t Count(const AxisCalls& calls, const std::string& words) {
  int64_t count = 0;
  for (const std::string& call : calls) {
    if (absl::StrContains(call, words)) ++count;
  }
  return count;
}

// Megatron's: two sums forward and two backward a block (f and g), one for the
// embedding, one for the head's input, one of numbers for the loss.
TEST(TensorParallelCost, AGptHasTwoSumsABlockEachWay) {
  const TensorStep step =
      DividedStep(TokenProblem(Gpt(SmallGpt()), false), 2, false);
  EXPECT_EQ(Count(step.forward, "all-reduce"), 2 * 2 + 1);
  EXPECT_EQ(Count(step.forward, "all-gather"), 1);
  EXPECT_EQ(step.forward.size(), 6u);
  EXPECT_EQ(Count(step.backward, "all-reduce"), 2 * 2 + 1);
  EXPECT_EQ(step.backward.size(), 5u);
}

// With sequence parallelism a sum is a reduce-scatter and an all-gather, and
// what goes into a region is gathered once more in backward: one for queries,
// keys and values, one for gate and up, one for the head.
TEST(TensorParallelCost, WhatARegionTakesIsGatheredOnceMore) {
  const TensorStep step =
      DividedStep(TokenProblem(Llama(SmallLlama(12)), true), 2, true);
  EXPECT_EQ(Count(step.forward, "reduce-scatter"), 2 * 2 + 1);
  EXPECT_EQ(Count(step.forward, "all-gather"), 2 * 2 + 1 + 1);
  EXPECT_EQ(step.forward.size(), 11u);
  EXPECT_EQ(Count(step.backward, "reduce-scatter gradient"), 2 * 2 + 1);
  EXPECT_EQ(Count(step.backward, "all-gather gradient"), 2 * 2 + 1);
  EXPECT_EQ(Count(step.backward, "all-gather activations"), 2 * 2 + 1);
  EXPECT_EQ(step.backward.size(), 15u);
}

TEST(TensorParallelCost, OneRankIsAsOutsideOfAScope) {
  const TensorStep step =
      DividedStep(TokenProblem(Gpt(SmallGpt()), true), 1, true);
  EXPECT_TRUE(step.forward.empty());
  EXPECT_TRUE(step.backward.empty());
}

// What making layers says, to ranks along an axis that it does not divide.
std::string Refusal(const LayerSpecs& specs, int64_t degree,
                    bool sequence_parallel = true) {
  return std::string(
      RunAxisRanks(degree, [&](const std::shared_ptr<ThreadAxisGroup>& group) {
        const TensorParallelScope scope(
            MakeTensorParallel(group, sequence_parallel));
        return MakeModelLayers(specs, 1).status();
      }).message());
}

using testing::HasSubstr;

TEST(TensorParallelRefusals, NameTheLayerTheDegreeAndWhatToDo) {
  EXPECT_THAT(
      Refusal(*Gpt(SmallGpt()), 5),
      HasSubstr("transformer.h.0.attn has 12 heads, which 5 ranks along "
                "tensor cannot share evenly: choose a degree that "
                "divides 12"));
  EXPECT_THAT(
      Refusal(*Llama(SmallLlama(4)), 3),
      HasSubstr("model.layers.0.self_attn.k_proj has 4 key-value heads, "
                "which 3 ranks along tensor cannot share evenly: choose "
                "a degree that divides 4, or a multiple of it"));
  LlamaOptions odd = SmallLlama(12);
  odd.ffn_width = 37;
  EXPECT_THAT(Refusal(*Llama(odd), 2),
              HasSubstr("model.layers.0.mlp.gate_proj has 37 outputs, which 2 "
                        "ranks along tensor cannot share evenly"));
  EXPECT_THAT(Refusal(*Vit(SmallVit()), 5),
              HasSubstr("encoder_layer_0.self_attention has 12 heads, which 5 "
                        "ranks"));
  GptOptions few = SmallGpt();
  few.vocabulary = 2;
  EXPECT_THAT(Refusal(*Gpt(few), 3),
              HasSubstr("transformer.wte has 2 rows for 3 ranks along tensor: "
                        "choose a degree of 2 at most"));
}

TEST(TensorParallelRefusals, TokensThatTheDegreeDoesNotDivide) {
  EXPECT_THAT(
      RunAxisRanks(2,
                   [](const std::shared_ptr<ThreadAxisGroup>& group) {
                     const TensorParallelScope scope(
                         MakeTensorParallel(group, true));
                     Forward(MakeLayers(*Gpt(SmallGpt()), 1), Tokens(7));
                     return absl::OkStatus();
                   }),
      InvalidArgument("transformer.wte: samples of 7 tokens cannot be divided "
                      "over 2 ranks along tensor: choose a length that they "
                      "divide, or do without sequence parallelism"));
}

TEST(TensorParallelRefusals, ATokenThatIsNoneIsRefusedByAllRanks) {
  for (const int64_t token : {kVocabulary, int64_t{-1}}) {
    EXPECT_THAT(
        RunAxisRanks(3,
                     [&](const std::shared_ptr<ThreadAxisGroup>& group) {
                       const TensorParallelScope scope(
                           MakeTensorParallel(group, false));
                       at::Tensor tokens = Tokens(3);
                       tokens[1][1] = token;
                       EXPECT_ANY_THROW(
                           Forward(MakeLayers(*Gpt(SmallGpt()), 1), tokens));
                       return absl::OkStatus();
                     }),
        Says(""));
  }
}

TEST(TensorParallelRefusals, WhatDoesNotGoTogether) {
  VocabParallelOptions stages;
  stages.parts = 2;
  EXPECT_THAT(Refusal(DivideVocabulary(*Gpt(SmallGpt()), stages)->specs, 2),
              HasSubstr("layer lm_head.0: its vocabulary is divided over the "
                        "stages of a pipeline, and over ranks"));
  LoraOptions lora;
  lora.on = "c_attn";
  EXPECT_THAT(Refusal(*WithLora(*Gpt(SmallGpt()), lora), 2),
              HasSubstr("is divided over ranks by tensor parallelism, which "
                        "does not go with adapters"));
}

TEST(TensorParallelRefusals, DropoutOutsideOfASampleScope) {
  GptOptions options = SmallGpt();
  options.dropout = 0.1;
  EXPECT_THAT(
      RunAxisRanks(2,
                   [&](const std::shared_ptr<ThreadAxisGroup>& group) {
                     const TensorParallelScope scope(
                         MakeTensorParallel(group, true));
                     Forward(MakeLayers(*Gpt(options), 1), Tokens(4));
                     return absl::OkStatus();
                   }),
      Says("dropout transformer.wpe.drop is divided over 2 ranks, which draw "
           "alike in a SampleScope alone"));
}

// Known for all layers without making any: whoever has which stage.
TEST(TensorParallelTraits, AreThoseOfMadeLayersAndOfTiedOnesMadeAlone) {
  GptOptions options = SmallGpt();
  options.ties_lm_head = true;
  const LayerSpecs specs = *Gpt(options);
  ExpectOk(RunAxisRanks(2, [&](const std::shared_ptr<ThreadAxisGroup>& group) {
    const TensorParallelScope scope(MakeTensorParallel(group, true));
    const TraitsByName all = *ModelParameterTraits(specs);
    EXPECT_EQ(all, NamedTraits(MakeLayers(specs, 1)));
    const LayerList head = MakeLayers({specs.back()}, 1);
    EXPECT_EQ(NamedTraits(head).at("lm_head.weight"),
              all.at("transformer.wte.weight"));
    EXPECT_EQ(all.at("lm_head.weight").shard->uneven_size, kVocabulary);
    EXPECT_EQ(all.at("transformer.h.0.attn.c_attn.weight").shard->blocks, 3);
    EXPECT_EQ(all.at("transformer.h.0.attn.c_attn.weight").shard->dim, 1);
    EXPECT_EQ(all.at("transformer.h.0.mlp.c_proj.weight").shard->dim, 0);
    for (const char* summed :
         {"transformer.wpe.weight", "transformer.ln_f.bias",
          "transformer.h.1.ln_2.weight", "transformer.h.1.mlp.c_proj.bias"}) {
      EXPECT_TRUE(all.at(summed).reduces_over("tensor")) << summed;
      EXPECT_TRUE(all.at(summed).reduces_over("data")) << summed;
    }
    return absl::OkStatus();
  }));
  EXPECT_TRUE(ModelParameterTraits(specs)->empty());
}

// By arithmetic as by making them, and FLOPs are the whole model's, whatever
// scope asks.
TEST(TensorParallelTraits, ParametersOfARankAreCounted) {
  for (const int64_t degree : {2, 3, 4}) {
    ExpectOk(RunAxisRanks(
        degree, [&](const std::shared_ptr<ThreadAxisGroup>& group) {
          if (group->index() > 0) return absl::OkStatus();
          const TensorParallelScope scope(MakeTensorParallel(group, true));
          GptOptions tied = SmallGpt();
          tied.ties_lm_head = true;
          const auto count = [](const absl::StatusOr<LayerSpecs>& specs) {
            return CountParameters(*ModelShapes(*specs));
          };
          EXPECT_EQ(count(Gpt(SmallGpt())), ParameterCount(SmallGpt(), degree));
          EXPECT_EQ(count(Gpt(tied)), ParameterCount(tied, degree));
          for (const int64_t kv_heads : {1, 12}) {
            EXPECT_EQ(count(Llama(SmallLlama(kv_heads))),
                      ParameterCount(SmallLlama(kv_heads), degree));
          }
          EXPECT_EQ(count(Vit(SmallVit())), ParameterCount(SmallVit(), degree));
          return absl::OkStatus();
        }));
  }
}

}  // namespace
}  // namespace tandem::tensor_parallel_rules_test
