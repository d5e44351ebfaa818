// Low-precision reads: parameters of which mixed precision needs the
// low-precision copy alone, wherever their layers compute (FSDP's
// MixedPrecisionPolicy(param_dtype=...), for those that may have it).

#ifndef TANDEM_CORE_MODEL_LOW_PRECISION_READS_H_
#define TANDEM_CORE_MODEL_LOW_PRECISION_READS_H_

#include <set>
#include <string>
#include <vector>

#include "core/model/layer.h"

namespace tandem {

// For a torch::nn::Module to derive from as well.
class ReadsLowPrecision {
 public:
  virtual ~ReadsLowPrecision() = default;

  // Names of the module's own parameters that forward and backward read through
  // LowPrecisionCopy (core/precision/low_precision_copy.h) alone, in autocast's
  // dtype where that is on.
  virtual std::vector<std::string> low_precision_parameters() const = 0;
};

// The parameters of all modules of the layers that are read so, by full names:
// "h.0.mlp.c_fc.weight". A parameter that another module has as well is not
// among them.
std::set<std::string> LowPrecisionParameters(const LayerList& layers);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LOW_PRECISION_READS_H_
