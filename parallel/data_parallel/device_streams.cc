#include "parallel/data_parallel/device_streams.h"

#include "parallel/channel/stream_order.h"

namespace tandem {

std::vector<c10::Stream> CurrentStreams(
    const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (const c10::Device& device : devices) {
    if (!device.is_cpu()) streams.push_back(CurrentStream(device));
  }
  return streams;
}

}  // namespace tandem
