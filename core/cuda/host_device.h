// Functions for the host and for GPUs: what nvcc compiles for both, and any
// other compiler as it stands.

#ifndef TANDEM_CORE_CUDA_HOST_DEVICE_H_
#define TANDEM_CORE_CUDA_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

#endif  // TANDEM_CORE_CUDA_HOST_DEVICE_H_
