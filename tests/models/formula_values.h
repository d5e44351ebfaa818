// Values that C++ and Python can both compute: a formula of a tensor's name and
// the element's index, the same as in formula_values.py. With them,
// two implementations of a network are compared without storing weights.

#ifndef TANDEM_TESTS_MODELS_FORMULA_VALUES_H_
#define TANDEM_TESTS_MODELS_FORMULA_VALUES_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "core/model/layer.h"

namespace tandem {

// Overwrites a contiguous float32 tensor.
void FillByFormula(const std::string& name, const at::Tensor& values);

// Overwrites all parameters and floating-point buffers, by their full names.
void FillByFormula(const LayerList& layers);

// The same, and then converts them all to `dtype`.
void FillByFormula(const LayerList& layers, at::ScalarType dtype);

}  // namespace tandem

#endif  // TANDEM_TESTS_MODELS_FORMULA_VALUES_H_
