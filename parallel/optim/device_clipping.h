// Device clipping: gradients clipped by a norm that stays on their device,
// which the host would have to wait for.

#ifndef TANDEM_PARALLEL_OPTIM_DEVICE_CLIPPING_H_
#define TANDEM_PARALLEL_OPTIM_DEVICE_CLIPPING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Does the norm of all gradients of these buffers stay on their device? It does
// where they are float32 and on one GPU. What lies in the host's memory the
// host sums itself, in an order that no device changes. This is the one place
// where it is decided.
bool NormStaysOnDevice(const FlatBufferList& buffers);

// ClippingDivisor of the norm of all gradients, a number of float32 on their
// device for the fused optimizers to divide by. It is infinite, so that
// gradients become zero, where it is more than a float32 holds. Undefined where
// there are no gradients. The host waits for nothing. Throws c10::Error.
at::Tensor ClippingDivisorOnDevice(const FlatBufferList& buffers,
                                   double max_norm);

// While one lives, norms stay on devices of all types. For tests, which have no
// GPU.
class NormsStayOnDevices {
 public:
  NormsStayOnDevices();
  ~NormsStayOnDevices();
  NormsStayOnDevices(const NormsStayOnDevices&) = delete;
  NormsStayOnDevices& operator=(const NormsStayOnDevices&) = delete;

  // How many divisors any thread has asked for since.
  int64_t divisors() const;

 private:
  const int64_t before_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_DEVICE_CLIPPING_H_
