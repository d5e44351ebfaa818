// Transformers that ranks share by tensor parallelism against the same on one
// rank: initial values bit for bit, losses, scores and all gradients within
// rounding, for each family, degree, with and without sequence parallelism.

#include "core/model/axis/tensor_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <cstdint>
#include <ostream>

#include "core/model/batch.h"
#include "gtest/gtest.h"
#include "models/chunked_loss.h"
#include "models/tensor_parallel_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "tests/models/tensor_parallel_lab.h"
#include "tests/models/transformer/tensor_parallel_problems.h"

namespace tandem::tensor_parallel_test {
namespace {

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

}  // namespace
}  // namespace tandem::tensor_parallel_test
