// Gathering of facts: what `doctor` asks the machine.

#ifndef TANDEM_TOOLS_DIAGNOSIS_GATHER_FACTS_H_
#define TANDEM_TOOLS_DIAGNOSIS_GATHER_FACTS_H_

#include "tools/diagnosis/facts.h"

namespace tandem {

// Asks the driver, the kernel and LibTorch. Changes nothing, and makes no CUDA
// context. Takes up to seconds where a driver is there and not in use.
Facts GatherFacts();

}  // namespace tandem

#endif  // TANDEM_TOOLS_DIAGNOSIS_GATHER_FACTS_H_
