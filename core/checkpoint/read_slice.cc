#include "core/checkpoint/read_slice.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

constexpr int64_t kMostBytes = int64_t{16} << 20;  // at a time

}  // namespace

absl::Status ReadSlice(SafetensorsReader& reader, const SafetensorsEntry& entry,
                       const TensorSlice& slice, const TensorShard& wanted,
                       const at::Tensor& target) {
  TANDEM_RETURN_IF_ERROR(reader.Verify(entry));
  const auto width = static_cast<int64_t>(c10::elementSize(entry.dtype));
  const auto elements = static_cast<int64_t>(entry.bytes()) / width;
  const IndexRange run = CommonRun(slice, elements, wanted);
  if (run.length == 0) return absl::OkStatus();
  const int64_t most = std::min(kMostBytes / width, run.length);
  return CatchTorch([&]() -> absl::Status {
    const at::Tensor buffer = at::empty({most}, entry.dtype);
    TensorSlice part = slice;
    for (part.begin = run.begin; part.begin < run.end(); part.begin += most) {
      const int64_t length = std::min(most, run.end() - part.begin);
      TANDEM_RETURN_IF_ERROR(reader.ReadBytes(
          entry, static_cast<uint64_t>((part.begin - slice.begin) * width),
          static_cast<uint64_t>(length * width), buffer.mutable_data_ptr()));
      CopySlice(part, buffer.narrow(0, 0, length), wanted, target);
    }
    return absl::OkStatus();
  });
}

}  // namespace tandem
