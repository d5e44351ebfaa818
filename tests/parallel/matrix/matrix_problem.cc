#include "tests/parallel/matrix/matrix_problem.h"

#include <ATen/core/Generator.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "core/sim/testing.h"

namespace tandem {

Batch RandomBatch(const BatchShape& shape, int64_t size, uint64_t seed,
                  int number) {
  const at::Generator generator =
      GeneratorFor(seed, absl::StrCat("batch ", number));
  std::vector<int64_t> all = {size};
  all.insert(all.end(), shape.inputs.begin(), shape.inputs.end());
  Batch batch;
  batch.size = size;
  batch.inputs = shape.tokens
                     ? at::randint(shape.classes, all, generator, at::kLong)
                     : at::randn(all, generator);
  if (!shape.tokens) all = {size};
  batch.targets = at::randint(shape.classes, all, generator, at::kLong);
  return batch;
}

ActivationCheckpointing CheckpointingNamed(const std::string& name) {
  if (name == "always") return ActivationCheckpointing::kAlways;
  if (name == "except_last") return ActivationCheckpointing::kExceptLast;
  CHECK_EQ(name, "never");
  return ActivationCheckpointing::kNever;
}

std::vector<c10::Device> MatrixDevices(const std::string& type, int first,
                                       int count) {
  constexpr int kSimDevices = 16;
  const auto size = static_cast<size_t>(count);
  if (type == "cpu") return {size, c10::Device(c10::kCPU)};
  CHECK_EQ(type, "sim");
  const std::vector<c10::Device> all = SimDevices(kSimDevices);
  CHECK_LE(first + count, kSimDevices);
  return {all.begin() + first, all.begin() + first + count};
}

}  // namespace tandem
