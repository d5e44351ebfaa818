// What a rank's memory comes to by formula (models/transformer/
// training_memory.h), to stand beside what it is.

#ifndef TANDEM_TOOLS_BENCH_GPT_FORMULA_H_
#define TANDEM_TOOLS_BENCH_GPT_FORMULA_H_

#include "tools/bench/case/case.h"

namespace tandem {

// In MiB: parameters, gradients, the optimizer's state and the activations that
// the schedule holds at most, of the rank of the layout that has the most of
// all. Stages are those of a uniform cut, whatever the setting's. Nothing of
// what a process has anyway (LibTorch's libraries, Python) and of what an
// operator needs while it runs. 0 for a workload that is no GPT of
// models/transformer/sizes.h, and for a schedule that is not known.
double FormulaMib(const Workload& workload, const Layout& layout,
                  const Setting& setting);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPT_FORMULA_H_
