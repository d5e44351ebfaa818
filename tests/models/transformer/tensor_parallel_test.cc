// Transformers that ranks share by tensor parallelism against the same on one
// rank: initial values bit for bit, losses, scores and all gradients within
// rounding, for each family, degree, with and without sequence parallelism.

#include "core/model/axis/tensor_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/meta/flops.h"
#include "core/meta/shapes.h"
#include "core/model/batch.h"
#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "models/lora/lora.h"
#include "models/tensor_parallel_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/training_memory.h"
#include "models/transformer/vit.h"
#include "models/vocab_parallel.h"
#include "tests/models/tensor_parallel_lab.h"

namespace tandem::tensor_parallel_test {
namespace {

constexpr int64_t kVocabulary = 31;  // no degree divides it
constexpr int64_t kHeads = 12;       // all do

GptOptions SmallGpt() {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = kHeads;
  options.context = 24;
  options.vocabulary = kVocabulary;
  return options;
}

LlamaOptions SmallLlama(int64_t kv_heads) {
  LlamaOptions options;
  options.layers = 2;
  options.width = 20;  // heads need not divide it
  options.ffn_width = 36;
  options.heads = kHeads;
  options.kv_heads = kv_heads;
  options.head_dim = 4;
  options.context = 24;
  options.vocabulary = kVocabulary;
  return options;
}

VitOptions SmallVit() {
  VitOptions options;
  options.image_size = 9;
  options.patch_size = 3;
  options.in_channels = 2;
  options.layers = 2;
  options.heads = kHeads;
  options.width = 24;
  options.ffn_width = 36;
  options.classes = 5;
  return options;
}

at::Tensor Tokens(int64_t tokens) {
  return (at::arange(3 * tokens, at::kLong) * 11 % kVocabulary)
      .view({3, tokens});
}

at::Tensor Targets(int64_t tokens) {
  return (Tokens(tokens) * 5 + 1) % kVocabulary;
}

LossFunction TokenLoss() {
  TensorParallelLossOptions options;
  options.classes = kVocabulary;
  return TensorParallelCrossEntropy(options);
}

// Sequence parallelism needs a number of tokens that the degree divides, and
// nothing else does.
TensorProblem TokenProblem(const absl::StatusOr<LayerSpecs>& specs,
                           bool sequence_parallel) {
  TensorProblem problem;
  problem.specs = *specs;
  problem.loss = TokenLoss();
  const int64_t tokens = sequence_parallel ? 12 : 7;
  problem.inputs = Tokens(tokens);
  problem.targets = Targets(tokens);
  return problem;
}

TensorProblem VitProblem() {
  TensorProblem problem;
  problem.specs = *Vit(SmallVit());
  problem.loss = CrossEntropy;
  at::manual_seed(3);
  problem.inputs = at::randn({3, 2, 9, 9});
  problem.targets = at::arange(3);
  problem.wants_input_gradient = true;
  return problem;
}

struct Layout {
  int64_t degree;
  bool sequence_parallel;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << "degree " << layout.degree
             << (layout.sequence_parallel ? ", sequence parallel" : "");
}

constexpr Layout kLayouts[] = {{1, true}, {2, false}, {2, true}, {3, false},
                               {3, true}, {4, false}, {4, true}};

class TensorParallelModels : public testing::TestWithParam<Layout> {
 protected:
  static bool sequence_parallel() { return GetParam().sequence_parallel; }

  static void ExpectIsTheWholes(const TensorProblem& problem,
                                double tolerance) {
    ExpectSameStep(
        DividedStep(problem, GetParam().degree, GetParam().sequence_parallel),
        WholeStep(problem), tolerance);
  }
};

// Doubles show what is computed, and not how it is rounded.
constexpr double kOfDoubles = 1e-13;

TEST_P(TensorParallelModels, Gpt) {
  ExpectIsTheWholes(TokenProblem(Gpt(SmallGpt()), sequence_parallel()),
                    kOfDoubles);
}

TEST_P(TensorParallelModels, GptWithATiedHead) {
  GptOptions options = SmallGpt();
  options.ties_lm_head = true;
  ExpectIsTheWholes(TokenProblem(Gpt(options), sequence_parallel()),
                    kOfDoubles);
}

// Masks are those of one rank: of positions, of attention's heads, of what is
// added to the residual stream.
TEST_P(TensorParallelModels, GptWithDropout) {
  GptOptions options = SmallGpt();
  options.dropout = 0.3;
  ExpectIsTheWholes(TokenProblem(Gpt(options), sequence_parallel()),
                    kOfDoubles);
}

TEST_P(TensorParallelModels, GptOfDocuments) {
  GptOptions options = SmallGpt();
  options.document_masks = true;
  TensorProblem problem = TokenProblem(Gpt(options), sequence_parallel());
  at::Tensor begins = at::zeros_like(problem.inputs);
  begins.narrow(1, 3, begins.size(1) - 3).fill_(3);
  begins[1].narrow(0, 5, begins.size(1) - 5).fill_(5);
  problem.further[kDocumentBegins] = begins;
  ExpectIsTheWholes(problem, kOfDoubles);
}

TEST_P(TensorParallelModels, LlamaWithKeysForEachHead) {
  ExpectIsTheWholes(
      TokenProblem(Llama(SmallLlama(kHeads)), sequence_parallel()), kOfDoubles);
}

// Each key-value head is on several ranks, or several are on each.
TEST_P(TensorParallelModels, LlamaWithGroupedKeys) {
  for (const int64_t kv_heads : {1, 2, 3, 4, 6}) {
    const int64_t degree = GetParam().degree;
    if (kv_heads % degree != 0 && degree % kv_heads != 0) continue;
    SCOPED_TRACE(testing::Message() << kv_heads << " key-value heads");
    ExpectIsTheWholes(
        TokenProblem(Llama(SmallLlama(kv_heads)), sequence_parallel()),
        kOfDoubles);
  }
}

TEST_P(TensorParallelModels, LlamaWithBiasesAndATiedHead) {
  LlamaOptions options = SmallLlama(2);
  if (GetParam().degree == 3) options.kv_heads = 3;
  options.attention_bias = true;
  options.mlp_bias = true;
  options.ties_lm_head = true;
  ExpectIsTheWholes(TokenProblem(Llama(options), sequence_parallel()),
                    kOfDoubles);
}

// 10 tokens, which 3 and 4 do not divide.
TEST_P(TensorParallelModels, Vit) {
  ExpectIsTheWholes(VitProblem(), kOfDoubles);
}

// Sums over ranks are of floats that have been rounded once more: some units in
// the last place.
TEST_P(TensorParallelModels, InFloats) {
  TensorProblem gpt = TokenProblem(Gpt(SmallGpt()), sequence_parallel());
  TensorProblem llama =
      TokenProblem(Llama(SmallLlama(12)), sequence_parallel());
  TensorProblem vit = VitProblem();
  for (TensorProblem* problem : {&gpt, &llama, &vit}) {
    problem->dtype = at::kFloat;
    ExpectIsTheWholes(*problem, 64 * 0x1p-23);
  }
}

// Activations of bf16, parameters and their gradients of floats.
TEST_P(TensorParallelModels, UnderAutocastToBf16) {
  TensorProblem gpt = TokenProblem(Gpt(SmallGpt()), sequence_parallel());
  TensorProblem llama =
      TokenProblem(Llama(SmallLlama(12)), sequence_parallel());
  TensorProblem vit = VitProblem();
  for (TensorProblem* problem : {&gpt, &llama, &vit}) {
    problem->dtype = at::kFloat;
    problem->autocast = at::kBFloat16;
    ExpectIsTheWholes(*problem, 16 * 0x1p-8);
  }
}

// Zero bubble: what is left for later sends nothing, and comes to the same
// bits.
TEST_P(TensorParallelModels, ABackwardInTwoPartsHasTheJointOnesBits) {
  TensorProblem gpt = TokenProblem(Gpt(SmallGpt()), sequence_parallel());
  TensorProblem llama = TokenProblem(Llama(SmallLlama(1)), sequence_parallel());
  TensorProblem vit = VitProblem();
  for (TensorProblem* problem : {&gpt, &llama, &vit}) {
    problem->dtype = at::kFloat;
    const auto step = [&] {
      return DividedStep(*problem, GetParam().degree,
                         GetParam().sequence_parallel);
    };
    const TensorStep joint = step();
    problem->splits_backward = true;
    const TensorStep split = step();
    ExpectSameStep(split, joint, 0);
    EXPECT_EQ(split.backward, joint.backward);
    EXPECT_TRUE(split.late.empty());
  }
}

// The head hands its weight on, of which each rank has a part.
TEST_P(TensorParallelModels, GptWithALossInChunks) {
  GptOptions options = SmallGpt();
  options.ties_lm_head = true;
  for (const int64_t chunk : {1, 5, 1000}) {
    TensorProblem problem = TokenProblem(Gpt(options), sequence_parallel());
    problem.specs = *WithoutLogits(problem.specs);
    TensorParallelLossOptions loss;
    loss.classes = kVocabulary;
    loss.chunk = chunk;
    loss.head_weight = "lm_head.weight";
    problem.loss = TensorParallelCrossEntropy(loss);
    ExpectIsTheWholes(problem, kOfDoubles);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TensorParallelModels,
                         testing::ValuesIn(kLayouts));

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
}  // namespace tandem::tensor_parallel_test
