// OpenMP waits: how the threads of an operator wait for each other.

#ifndef TANDEM_CORE_PROGRAM_OPENMP_WAITS_H_
#define TANDEM_CORE_PROGRAM_OPENMP_WAITS_H_

#include "core/base/environment.h"
#include "core/device/host_resources.h"

namespace tandem {

// Whether threads that spin while they wait would take a busy machine's cores
// from those that they wait for, and the user has not said how they are to
// wait: by OMP_WAIT_POLICY or GOMP_SPINCOUNT.
bool SpinningWastesCores(const Environment& env, const MachineLoad& load,
                         int cores);

// The same for this machine, as it is now.
bool SpinningWastesCores();

// Sets OMP_WAIT_POLICY=passive for the programs that this one starts. Not
// thread-safe (setenv).
void HaveChildrenWaitPassively();

// Where `spins_in_vain`, starts this program anew with OMP_WAIT_POLICY=passive:
// OpenMP reads it before main; otherwise it spins for milliseconds in each of
// an operator's waits, which has made training on two busy cores ten times
// slower.
//
// Returns otherwise, and where `argv` is not what the process was started with.
// Call first in main: what was done before it is done twice.
void WaitPassivelyWhereBusy(int argc, char** argv,
                            bool spins_in_vain = SpinningWastesCores());

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_OPENMP_WAITS_H_
