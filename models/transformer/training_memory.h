// Training memory of a transformer, by arithmetic: what the parameters, their
// gradients, the optimizer's state and the activations that wait for backward
// come to on one device (Korthikanti et al., 2205.05198; Rajbhandari et al.,
// 1910.02054). Nothing is made.
//
// Activations are those that the layers here keep. Of a GPT block, of s tokens
// of b samples, width h, in elements of e bytes: 16 s b h e. That is the 34 s b
// h bytes of 2205.05198, whose e is 2, without its two dropout masks of s b h
// bytes. Its 5 a s^2 b of scores are not there, for attention is fused, which
// keeps a float a head and token instead; but with dropout it is not, and a s^2
// b probabilities are kept twice, (4 + e) bytes. Of a Llama block with an MLP
// of width f: s b (4 h + 4 q + 3 f) e, where q is the width of all heads, h as
// a rule.
//
// With tensor parallelism over t ranks (2205.05198, table 2) a GPT block has 4
// s b h e of them on each rank, and 12 s b h e / t; with sequence parallelism,
// too, 16 s b h e / t, and a Llama block s b (4 h + 4 q + 3 f) e / t.
//
// Parameter count of a transformer, by arithmetic: nothing is made.

#ifndef TANDEM_MODELS_TRANSFORMER_TRAINING_MEMORY_H_
#define TANDEM_MODELS_TRANSFORMER_TRAINING_MEMORY_H_

#include <cstdint>

#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/vit.h"

namespace tandem {

// Elements of all parameters, a tied one once, as PyTorch's
// sum(p.numel() for p in model.parameters()); or those that the first of
// `tensor` ranks has, which share them by tensor parallelism
// (core/model/axis/tensor_parallel.h) in a model that they divide.
int64_t ParameterCount(const GptOptions& options, int64_t tensor = 1);
int64_t ParameterCount(const LlamaOptions& options, int64_t tensor = 1);
int64_t ParameterCount(const VitOptions& options, int64_t tensor = 1);

// Parameters of one block: of products, with their biases, and of norms.
struct BlockParameters {
  int64_t products = 0;
  int64_t norms = 0;

  int64_t all() const { return products + norms; }
};
BlockParameters ParametersOfBlock(const GptOptions& options,
                                  int64_t tensor = 1);
BlockParameters ParametersOfBlock(const LlamaOptions& options,
                                  int64_t tensor = 1);

// In bytes.
struct TrainingMemory {
  int64_t parameters = 0;  // with kept copies in low precision
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;  // of the microbatches held, when they are the most

  int64_t total() const {
    return parameters + gradients + optimizer + activations;
  }
};

// What one device does of a job.
struct DeviceWork {
  // Its layers, of those of Gpt() and Llama(): embeddings, blocks, the last
  // norm, the head. end_layer -1: to the last.
  int64_t first_layer = 0;
  int64_t end_layer = -1;
  int64_t samples = 1;  // of a microbatch
  int64_t tokens = 1;   // of a sample
  // Microbatches whose activations are held at once: 1 on one device; under
  // 1F1B p - i in stage i of p, at most all there are (PeakActivations of
  // parallel/schedule/schedule.h gives it for any schedule).
  int64_t microbatches_held = 1;
  // Microbatches whose input has come from the stage before while those are
  // held: 1 behind a pipeline's first stage, where there are more microbatches
  // than it holds.
  int64_t inputs_ahead = 0;
  // Bytes of an activation's element: 4 for fp32, 2 for bf16 and fp16, where
  // parameters, gradients and the optimizer's state are of 4 all the same.
  int64_t element_bytes = 4;
  // Bytes of an element of attention's own: 4 where it is computed in floats
  // whatever else is, as on processors without products of bf16
  // (core/fused/causal_attention.h); 0: the same.
  int64_t attention_bytes = 0;
  // Bytes of a parameter: 8 for Adam and AdamW, 4 for SGD with momentum.
  int64_t optimizer_bytes = 8;
  // How many replicas share the optimizer's state (ZeRO stage 1).
  int64_t optimizer_shares = 1;
  // See --loss_chunk: without logits; 0: they are kept.
  int64_t loss_chunk = 0;
  // How many ranks share each layer by tensor parallelism; they divide the
  // model. Of what they do not divide evenly this one, the first, has most.
  int64_t tensor = 1;
  bool sequence_parallel = false;  // they divide tokens, too
};

// Requires a range of layers that the model has, and numbers of 1 or more. A
// stage that has a tied head without the embedding has a copy of its own.
// Within a percent or so of what devices hold: buffers are padded, and losses
// are tensors, too. What backward makes while it runs, and what libraries keep
// for themselves, comes on top.
TrainingMemory MemoryOf(const GptOptions& options, const DeviceWork& work);
TrainingMemory MemoryOf(const LlamaOptions& options, const DeviceWork& work);

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_TRAINING_MEMORY_H_
