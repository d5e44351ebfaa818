// Checks of a machine without its GPUs: limits, processor, memory, network.

#ifndef TANDEM_TOOLS_DIAGNOSIS_MACHINE_CHECKS_H_
#define TANDEM_TOOLS_DIAGNOSIS_MACHINE_CHECKS_H_

#include <cstdint>

#include "tools/diagnosis/facts.h"

namespace tandem {

// Descriptors that a rank of such a job has open: of each communicator 3 for
// each rank of its machine, and between machines one for each rank of the job
// and each machine (docs/launching.md, "Large jobs"), for up to
// four communicators (job, data, pipe, tied weights); and files and libraries.
uint64_t RankDescriptors(const PlannedJob& job);

// ulimit -n against what the job needs; programs raise it themselves, up to the
// hard limit.
Findings CheckFiles(const LimitFacts& limits, const PlannedJob& job);

// The control group's limit on threads, where it has one: about 16 a rank, and
// an operator's.
Findings CheckThreads(const LimitFacts& limits, const ProcessorFacts& facts,
                      const PlannedJob& job);

// /dev/shm.
Findings CheckSharedMemory(const LimitFacts& limits);

// Cores for the job's ranks: affinity and the control group's quota.
Findings CheckCores(const ProcessorFacts& facts, const PlannedJob& job);

// Whether other programs use the cores of a job on the CPU.
Findings CheckLoad(const ProcessorFacts& facts, const PlannedJob& job);

// What the machine and the control group have left, against what LibTorch takes
// in each rank.
Findings CheckMemory(const ProcessorFacts& facts, const PlannedJob& job);

// Which instructions there are, and what that means.
Findings CheckProcessor(const ProcessorFacts& facts, const PlannedJob& job);

// Loopback, where the ranks of a machine meet, and this machine's name, where
// several do.
Findings CheckNetwork(const NetworkFacts& facts, const PlannedJob& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_DIAGNOSIS_MACHINE_CHECKS_H_
