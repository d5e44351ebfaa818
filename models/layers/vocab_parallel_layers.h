// Vocabulary-parallel layers: a token embedding and a language model's last
// layer whose weights are divided by rows (models/vocab_parallel.h).

#ifndef TANDEM_MODELS_LAYERS_VOCAB_PARALLEL_LAYERS_H_
#define TANDEM_MODELS_LAYERS_VOCAB_PARALLEL_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/layer.h"

namespace tandem {

// Rows [first, first + rows) of a weight.
struct VocabRange {
  int64_t first = 0;
  int64_t rows = 0;
};

// All of `rows` in so many ranges, which differ by 1 at most.
std::vector<VocabRange> VocabRanges(int64_t rows, int64_t parts);

// "weight_0", of the embedding's part 0.
std::string VocabPartOfEmbedding(size_t part);

// The token embedding of `whole`, with a parameter for each range. Its type,
// links and initial values are those of `whole`.
LayerSpec VocabParallelEmbedding(const LayerSpec& whole,
                                 const std::vector<VocabRange>& ranges);

struct VocabParallelHeadOptions {
  std::string name;
  VocabRange range;
  std::string targets;  // the further input that it reads
  std::string before;  // the skip of the part before it; empty: it is the first
  std::string after;   // the skip that it leaves
  std::string tied_to;  // the parameter that its weight is; empty: its own
  int64_t chunk = 1;    // tokens whose logits are computed at a time
};

// Gives its input on, [n, tokens, width], and leaves [n, tokens, 5], the
// numbers of VocabPartFunction, of all parts up to it. Its initial values are
// those rows of the weight of `whole`, which is linear and has no bias: making
// it throws c10::ValueError where it has one.
LayerSpec VocabParallelHead(const LayerSpec& whole,
                            const VocabParallelHeadOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_VOCAB_PARALLEL_LAYERS_H_
