// A program of another workspace that uses tandem as a library.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <iostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/layer.h"
#include "core/status_macros.h"

namespace {

// A layer without parameters, as a model's list of layers holds it.
tandem::LayerSpec Doubling() {
  return {"double", "Double", [](uint64_t) {
            return tandem::Layer{"double", nullptr,
                                 [](const at::Tensor& x) { return x.add(x); }};
          }};
}

absl::StatusOr<double> Run(double value) {
  if (value != value)
    return absl::InvalidArgumentError("value is not a number");
  tandem::Layer layer = Doubling().make(/*seed=*/0);
  return layer.forward(at::full({1}, value)).item<double>();
}

absl::Status Main() {
  TANDEM_ASSIGN_OR_RETURN(double doubled, Run(21));
  std::cout << "a layer of tandem says " << doubled << "\n";
  return absl::OkStatus();
}

}  // namespace

int main() {
  absl::Status status = Main();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
