#include "core/device/own_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#ifdef TANDEM_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace tandem {
namespace {

using c10::impl::VirtualGuardImpl;

// Pools are no larger.
constexpr int kMostPooled = 32;

// The streams of one device.
struct Streams {
  std::vector<c10::Stream> taken;
  std::vector<c10::Stream> given_back;  // of no pool
};

// Never destroyed: streams of static duration are given back late.
struct AllStreams {
  std::mutex mutex;
  std::unordered_map<c10::Device, Streams> of;
};

AllStreams& All() {
  static auto* all = new AllStreams;
  return *all;
}

#ifdef TANDEM_CUDA
c10::Stream NewCudaStream(c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  cudaStream_t stream = nullptr;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return c10::cuda::getStreamFromExternal(stream, device.index()).unwrap();
}
#endif

c10::Stream Pooled(c10::Device device, const Streams& streams) {
  const VirtualGuardImpl devices(device.type());
  const auto next = [&] { return devices.getNewStream(device); };
  const auto is_taken = [&](c10::Stream stream) {
    return std::count(streams.taken.begin(), streams.taken.end(), stream) > 0;
  };
  c10::Stream stream = next();
  for (int i = 1; i < kMostPooled && is_taken(stream); ++i) stream = next();
  return stream;
}

c10::Stream Unshared(c10::Device device, Streams& streams) {
#ifdef TANDEM_CUDA
  if (device.is_cuda()) {
    // One may wait for what does not end, such as a collective without a rank.
    const auto idle =
        std::find_if(streams.given_back.begin(), streams.given_back.end(),
                     [](c10::Stream stream) { return stream.query(); });
    if (idle == streams.given_back.end()) return NewCudaStream(device);
    const c10::Stream stream = *idle;
    streams.given_back.erase(idle);
    return stream;
  }
#endif
  return Pooled(device, streams);
}

void GiveBack(c10::Stream stream, Streams& streams) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  streams.taken.erase(
      std::find(streams.taken.begin(), streams.taken.end(), stream));
  if (stream.device().is_cuda()) streams.given_back.push_back(stream);
}

}  // namespace

OwnStream TakeStream(c10::Device device) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  Streams& streams = All().of[device];
  const c10::Stream stream = Unshared(device, streams);
  streams.taken.push_back(stream);
  return OwnStream(new c10::Stream(stream),
                   [&streams](const c10::Stream* owned) {
                     GiveBack(*owned, streams);
                     delete owned;
                   });
}

}  // namespace tandem
