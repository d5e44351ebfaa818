#include "core/checkpoint/fingerprint.h"

#include <glog/logging.h>

#include <cstdint>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/dtype_names.h"
#include "core/base/tensors.h"

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

}  // namespace

absl::Status WeightsHasher::Begin(std::vector<TensorInfo> infos) {
  forms_ = std::move(infos);
  hash_.Update("tandem weights 1\n");
  return absl::OkStatus();
}

absl::Status WeightsHasher::Add(const at::Tensor& values) {
  CHECK_LT(next_, forms_.size());
  const TensorInfo& info = forms_[next_];
  CHECK(next_ == 0 || forms_[next_ - 1].name != info.name)
      << "two tensors named " << info.name;
  const absl::string_view dtype = DtypeName(info.dtype);
  CHECK(!dtype.empty()) << info.name << " has a dtype without a name";
  ++next_;
  AddText(hash_, info.name);
  AddText(hash_, dtype);
  AddNumber(hash_, info.sizes.size());
  for (int64_t size : info.sizes) AddNumber(hash_, size);
  const at::Tensor bytes = HostValues(values);
  hash_.Update(bytes.const_data_ptr(), bytes.numel() * bytes.element_size());
  return absl::OkStatus();
}

std::string WeightsHasher::HexDigest() const {
  CHECK_EQ(next_, forms_.size());
  return hash_.HexDigest();
}

std::string WeightsSha256(const NamedTensors& tensors) {
  WeightsHasher hasher;
  const absl::Status status = StreamTensors(tensors, hasher);
  CHECK(status.ok()) << status;
  return hasher.HexDigest();
}

}  // namespace tandem
