#include "models/transformer/training_memory.h"

#include <glog/logging.h>

#include <vector>

#include "core/memory/state_bytes.h"

namespace tandem {
namespace {

int64_t Linear(int64_t in_features, int64_t out_features, bool bias = true) {
  return in_features * out_features + (bias ? out_features : 0);
}

int64_t LayerNorm(int64_t width) { return 2 * width; }

// Rows of a vocabulary that the first rank has.
int64_t Rows(int64_t vocabulary, int64_t tensor) {
  return (vocabulary + tensor - 1) / tensor;
}

// With attention of as many heads of keys as of queries, and an MLP.
BlockParameters EncoderBlock(int64_t width, int64_t ffn_width, int64_t tensor) {
  return {Linear(width, 3 * width / tensor) + Linear(width / tensor, width) +
              Linear(width, ffn_width / tensor) +
              Linear(ffn_width / tensor, width),
          2 * LayerNorm(width)};
}

constexpr int64_t kFloat = 4;
constexpr int64_t kIndex = 8;

// Memory of one layer.
struct Part {
  int64_t parameters = 0;  // elements
  int64_t multiplied = 0;  // of them, those of products and their biases
  int64_t kept = 0;        // bytes of activations of a microbatch
};

struct Model {
  std::vector<Part> parts;
  int64_t tied = 0;   // parameters that the head and the embedding share
  int64_t input = 0;  // bytes that go from one layer to the next
};

// What a microbatch's tensors come to.
class Sizes {
 public:
  explicit Sizes(const DeviceWork& work) : work_(work) {}

  // Activations of so many elements a token.
  int64_t Elements(int64_t a_token) const {
    return rows() * a_token * work_.element_bytes;
  }
  // The same of what stands between divided products.
  int64_t Outside(int64_t a_token) const {
    return outside_rows() * a_token * work_.element_bytes;
  }
  int64_t FloatsOutside(int64_t a_token) const {
    return outside_rows() * a_token * kFloat;
  }
  // Which rows of a divided table tokens are, and whether other ranks have
  // them.
  int64_t Indices() const {
    return work_.tensor == 1 ? 0 : rows() * (kIndex + 1);
  }
  int64_t outside_tokens() const {
    return work_.sequence_parallel
               ? (work_.tokens + work_.tensor - 1) / work_.tensor
               : work_.tokens;
  }
  // Elements of attention of a width: queries, keys, values and its result,
  // which the next product keeps, too, and so once more where it is of another
  // dtype.
  int64_t Attention(int64_t width, int64_t heads) const {
    const int64_t own = work_.attention_bytes;
    const bool differs = own != 0 && own != work_.element_bytes;
    return (differs ? rows() * 4 * width * own + Elements(width)
                    : Elements(4 * width)) +
           Floats(heads);
  }
  // With dropout it is of operators: softmax's result, of floats, what is left
  // of it, and which keys are seen, which samples share unless they have
  // documents of their own.
  int64_t DroppedAttention(const GptOptions& options) const {
    const int64_t pairs = work_.tokens * work_.tokens;
    const int64_t masks = options.document_masks ? work_.samples : 1;
    return Elements(4 * options.width / work_.tensor) + masks * pairs +
           work_.samples * (options.heads / work_.tensor) * pairs *
               (kFloat + work_.element_bytes);
  }
  // Floats, whatever activations are of: statistics and sums.
  int64_t Floats(int64_t a_token) const { return rows() * a_token * kFloat; }

 private:
  int64_t rows() const { return work_.samples * work_.tokens; }
  int64_t outside_rows() const { return work_.samples * outside_tokens(); }

  const DeviceWork& work_;
};

// Its input, and of a row the logarithm of the sum of exponentials; logits too,
// unless the loss is chunked, which keeps all tokens. Where ranks share the
// vocabulary, ten numbers for each that is joined to the first.
Part Head(int64_t width, int64_t vocabulary, const DeviceWork& work) {
  const Sizes sizes(work);
  const int64_t rows = Rows(vocabulary, work.tensor);
  const bool keeps_logits = work.loss_chunk == 0;
  int64_t kept =
      sizes.Outside(width) + sizes.Floats(1 + 10 * (work.tensor - 1));
  if (keeps_logits) {
    kept += sizes.Elements(rows);
  } else if (work.sequence_parallel) {
    kept += sizes.Elements(width);
  }
  return {width * rows, width * rows, kept};
}

// Kept are the inputs of both norms, of all products and of GELU, queries, keys
// and values, mean and deviation of the norms' rows, attention's sums.
Part GptBlockPart(const GptOptions& options, const Sizes& sizes,
                  int64_t tensor) {
  const int64_t width = options.width;
  const BlockParameters block = ParametersOfBlock(options, tensor);
  const int64_t attention =
      options.dropout > 0
          ? sizes.DroppedAttention(options)
          : sizes.Attention(width / tensor, options.heads / tensor);
  return {block.all(), block.products,
          sizes.Outside(4 * width) + sizes.Elements(8 * width / tensor) +
              sizes.FloatsOutside(2 * 2) + attention};
}

// Keys and values are repeated for each head of queries before attention. Of
// each position its turns are kept, which all samples share.
Part LlamaBlockPart(const LlamaOptions& options, const Sizes& sizes,
                    const DeviceWork& work) {
  const int64_t width = options.width;
  const int64_t q_width = options.heads * HeadDim(options);
  const int64_t tensor = work.tensor;
  const BlockParameters block = ParametersOfBlock(options, tensor);
  const int64_t turns = work.tokens * HeadDim(options) * work.element_bytes;
  return {block.all(), block.products,
          sizes.Outside(4 * width) +
              sizes.Elements(3 * options.ffn_width / tensor) +
              sizes.FloatsOutside(2) +
              sizes.Attention(q_width / tensor, options.heads / tensor) +
              turns};
}

Model MemoryModel(const GptOptions& options, const DeviceWork& work) {
  const Sizes sizes(work);
  const int64_t width = options.width;
  Model model;
  const int64_t embedding = Rows(options.vocabulary, work.tensor) * width;
  model.input = sizes.Outside(width);
  model.parts = {{embedding, 0, sizes.Indices()},
                 {options.context * width, 0, sizes.outside_tokens() * kIndex}};
  model.parts.insert(model.parts.end(), options.layers,
                     GptBlockPart(options, sizes, work.tensor));
  model.parts.push_back(
      {2 * width, 0, sizes.Outside(width) + sizes.FloatsOutside(2)});
  model.parts.push_back(Head(width, options.vocabulary, work));
  if (options.ties_lm_head) model.tied = embedding;
  return model;
}

Model MemoryModel(const LlamaOptions& options, const DeviceWork& work) {
  const Sizes sizes(work);
  const int64_t width = options.width;
  Model model;
  const int64_t embedding = Rows(options.vocabulary, work.tensor) * width;
  model.input = sizes.Outside(width);
  model.parts = {{embedding, 0, sizes.Indices()}};
  model.parts.insert(model.parts.end(), options.layers,
                     LlamaBlockPart(options, sizes, work));
  model.parts.push_back(
      {width, 0, sizes.Outside(width) + sizes.FloatsOutside(1)});
  model.parts.push_back(Head(width, options.vocabulary, work));
  if (options.ties_lm_head) model.tied = embedding;
  return model;
}

TrainingMemory Sum(const Model& model, const DeviceWork& work) {
  const int64_t layers = static_cast<int64_t>(model.parts.size());
  const int64_t end = work.end_layer < 0 ? layers : work.end_layer;
  CHECK(0 <= work.first_layer && work.first_layer <= end && end <= layers)
      << work.first_layer << " to " << end << " of " << layers;
  Part all;
  for (int64_t i = work.first_layer; i < end; ++i) {
    const Part& part = model.parts[static_cast<size_t>(i)];
    all.parameters += part.parameters;
    all.multiplied += part.multiplied;
    all.kept += part.kept;
  }
  if (work.first_layer == 0 && end == layers) all.parameters -= model.tied;
  const bool has_copies = work.element_bytes != kFloat;
  StatePerParameter kept;
  kept.optimizer_states = static_cast<int>(work.optimizer_bytes / kFloat);
  kept.optimizer_shares = work.optimizer_shares;
  const StateBytes state =
      ComputeStateBytes(all.parameters * kFloat,
                        has_copies ? all.multiplied * work.element_bytes : 0,
                        /*is_trained=*/true, kept);
  TrainingMemory memory;
  memory.parameters = state.parameters;
  memory.gradients = state.gradients;
  memory.optimizer = state.optimizer;
  memory.activations =
      all.kept * work.microbatches_held + model.input * work.inputs_ahead;
  return memory;
}

}  // namespace

BlockParameters ParametersOfBlock(const GptOptions& options, int64_t tensor) {
  return EncoderBlock(options.width, 4 * options.width, tensor);
}

// Key-value heads that are fewer than the ranks are on all of them.
BlockParameters ParametersOfBlock(const LlamaOptions& options, int64_t tensor) {
  const int64_t width = options.width;
  const int64_t q_width = options.heads * HeadDim(options) / tensor;
  const int64_t kv_heads =
      options.kv_heads < tensor ? options.kv_heads : options.kv_heads / tensor;
  const int64_t kv_width = kv_heads * HeadDim(options);
  const int64_t ffn_width = options.ffn_width / tensor;
  const bool attention_bias = options.attention_bias;
  const int64_t attention = Linear(width, q_width, attention_bias) +
                            2 * Linear(width, kv_width, attention_bias) +
                            Linear(q_width, width, attention_bias);
  const int64_t mlp = 2 * Linear(width, ffn_width, options.mlp_bias) +
                      Linear(ffn_width, width, options.mlp_bias);
  return {attention + mlp, 2 * width};
}

int64_t ParameterCount(const GptOptions& options, int64_t tensor) {
  const int64_t embedding = Rows(options.vocabulary, tensor) * options.width;
  return embedding + options.context * options.width +
         options.layers * ParametersOfBlock(options, tensor).all() +
         LayerNorm(options.width) + (options.ties_lm_head ? 0 : embedding);
}

int64_t ParameterCount(const LlamaOptions& options, int64_t tensor) {
  const int64_t embedding = Rows(options.vocabulary, tensor) * options.width;
  return embedding + options.layers * ParametersOfBlock(options, tensor).all() +
         options.width + (options.ties_lm_head ? 0 : embedding);
}

int64_t ParameterCount(const VitOptions& options, int64_t tensor) {
  const int64_t width = options.width;
  const int64_t side = options.image_size / options.patch_size;
  const int64_t pixels =
      options.in_channels * options.patch_size * options.patch_size;
  return Linear(pixels, width) + width + (side * side + 1) * width +
         options.layers * EncoderBlock(width, options.ffn_width, tensor).all() +
         LayerNorm(width) + Linear(width, options.classes);
}

TrainingMemory MemoryOf(const GptOptions& options, const DeviceWork& work) {
  return Sum(MemoryModel(options, work), work);
}

TrainingMemory MemoryOf(const LlamaOptions& options, const DeviceWork& work) {
  return Sum(MemoryModel(options, work), work);
}

}  // namespace tandem
