// Checks of GPUs: driver, build, GPUs, links between them, NCCL.

#ifndef TANDEM_TOOLS_DIAGNOSIS_GPU_CHECKS_H_
#define TANDEM_TOOLS_DIAGNOSIS_GPU_CHECKS_H_

#include "tools/diagnosis/facts.h"

namespace tandem {

// Is there a driver, and is it new enough for the CUDA of this build?
Findings CheckDriver(const CudaFacts& facts, const PlannedJob& job);

// Can this build use GPUs, and do they suffice for the job's ranks? Nothing
// without a driver.
Findings CheckBuild(const CudaFacts& facts, const PlannedJob& job);

// Each GPU: is it one that CUDA 13 has code for, is it free, may ranks use it?
Findings CheckGpus(const CudaFacts& facts, const PlannedJob& job);

// How GPUs reach each other's memory.
Findings CheckLinks(const CudaFacts& facts);

// NCCL, and what it needs: shared memory between processes, and locked memory
// for InfiniBand.
Findings CheckNccl(const CudaFacts& facts, const LimitFacts& limits,
                   const PlannedJob& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_DIAGNOSIS_GPU_CHECKS_H_
