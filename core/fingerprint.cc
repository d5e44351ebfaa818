#include "core/fingerprint.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/dtype_names.h"
#include "core/sha256.h"

namespace tandem {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are hashed as they lie in memory");

void AddNumber(Sha256& hash, uint64_t number) {
  hash.Update(&number, sizeof(number));
}

void AddText(Sha256& hash, absl::string_view text) {
  AddNumber(hash, text.size());
  hash.Update(text);
}

void AddTensor(Sha256& hash, const std::string& name,
               const at::Tensor& tensor) {
  const absl::string_view dtype = DtypeName(tensor.scalar_type());
  CHECK(!dtype.empty()) << name << " has a dtype without a name";
  AddText(hash, name);
  AddText(hash, dtype);
  AddNumber(hash, tensor.dim());
  for (int64_t size : tensor.sizes()) AddNumber(hash, size);
  const at::Tensor values = tensor.detach().cpu().contiguous();
  hash.Update(values.const_data_ptr(), values.numel() * values.element_size());
}

}  // namespace

std::string WeightsSha256(const NamedTensors& tensors) {
  NamedTensors ordered = tensors;
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Sha256 hash;
  hash.Update("tandem weights 1\n");
  for (size_t i = 0; i < ordered.size(); ++i) {
    const auto& [name, tensor] = ordered[i];
    CHECK(i == 0 || ordered[i - 1].first != name)
        << "two tensors named " << name;
    AddTensor(hash, name, tensor);
  }
  return hash.HexDigest();
}

}  // namespace tandem
