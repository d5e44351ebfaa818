// Fixed tensors: memory that a device graph reads, which is filled anew before
// each replay.

#ifndef TANDEM_CORE_GRAPH_FIXED_TENSOR_H_
#define TANDEM_CORE_GRAPH_FIXED_TENSOR_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

namespace tandem {

// Dtype, sizes, and whether it requires a gradient (*): what is copied to one
// place has one form. "none" of an undefined tensor.
std::string FormOfTensor(const at::Tensor& tensor);

// Uninitialised, on `device`, of the form and strides of `like`; undefined for
// an undefined tensor.
at::Tensor PlaceFor(const at::Tensor& like, c10::Device device);

// Nothing for an undefined place. A copy from elsewhere goes as any other
// batch's (core/device/placement.h): ahead of what the device computes.
void FillPlace(const at::Tensor& place, const at::Tensor& from);

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_FIXED_TENSOR_H_
