// Channels-last memory format of a model's convolutions
// (model.to(memory_format=torch.channels_last) in PyTorch).

#ifndef TANDEM_MODELS_CHANNELS_LAST_H_
#define TANDEM_MODELS_CHANNELS_LAST_H_

#include "core/model/layer.h"

namespace tandem {

// The same layers, whose parameters of four dimensions, which are convolutions'
// weights, lie in memory as [out, height, width, in]: sizes, values and
// checkpoints stay. A convolution with such a weight gives results in that
// format, whatever its input's, and what follows keeps it; so inputs need not
// be converted, and weights are not in each step. Flat buffers keep strides.
// Results are the same within rounding, for kernels are others.
LayerSpecs InChannelsLast(LayerSpecs specs);

}  // namespace tandem

#endif  // TANDEM_MODELS_CHANNELS_LAST_H_
