// What one side's ranks have in common: a device, a communicator, kernels, and
// the limits of their machine.

#ifndef TANDEM_TOOLS_BENCH_RANK_GROUP_H_
#define TANDEM_TOOLS_BENCH_RANK_GROUP_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/autotune/job_kernels.h"
#include "core/comm/communicator.h"
#include "tools/bench/rank/inputs.h"

namespace tandem {

// The first device of that name ("cpu", "cuda", "sim"), ready to be used.
// `allow_tf32`: cuBLAS and cuDNN may round what they multiply of fp32 to TF32.
// Errors are those of ParseDeviceType and DevicesOf (core/device/device.h).
// Once a process.
absl::StatusOr<c10::Device> PrepareDevice(const std::string& name,
                                          bool allow_tf32);

// Moves them there, before anything is measured: peers do the same.
void PlaceBatches(c10::Device device, Inputs& inputs);

// Until it has done all that it was given.
void WaitFor(c10::Device device);

// The most memory so far: of tensors on the device, as its allocator counts
// them (torch.cuda.max_memory_allocated), or of this process (VmHWM) on the
// CPU.
double PeakMib(c10::Device device);

// "cuda, TF32 allowed", "cuda, no TF32".
std::string DescribeDevice(const std::string& name, bool allow_tf32);

// They meet through the file `rendezvous`, which does not exist yet; one rank
// needs none.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectRanks(
    const std::string& rendezvous, int rank, int ranks,
    const std::string& backend);

// The file of kernels of ranks that meet there.
std::string KernelCache(const std::string& rendezvous);

struct MeasuredKernels {
  std::unique_ptr<Communicator> alone;  // of one rank, which needs a group
  std::unique_ptr<JobKernels> kernels;
};

// Chooses kernels as train does: products by the kernel that is faster here
// (`measured`), kept in that file; or those of a rule, which --reproducible
// has. What `chosen` held before goes on or ends. `world` may be null, for one
// rank. Collective.
absl::Status ChooseKernels(bool measured, const std::string& rendezvous,
                           Communicator* world, MeasuredKernels* chosen);

// {"mkl_gflops", "one_dnn_gflops"}
nlohmann::json GemmLimits();

// {"ms", "gloo_ms"} of `numel` float32 numbers; `rendezvous` as ConnectRanks
// has it, a new one. Collective.
absl::StatusOr<nlohmann::json> AllReduceLimits(Communicator& world,
                                               int64_t numel,
                                               const std::string& rendezvous);

// "products: MKL for 2 shapes, oneDNN for 11, as timed; AVX512 kernels": of a
// workload of this dtype, with what was chosen in the file `cache` so far.
std::string DescribeKernels(const std::string& dtype, const std::string& cache);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_GROUP_H_
