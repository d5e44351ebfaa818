// Accelerator hooks: what LibTorch asks an accelerator for beyond its
// operators.

#ifndef TANDEM_CORE_SIM_HOOKS_H_
#define TANDEM_CORE_SIM_HOOKS_H_

namespace tandem {
namespace sim {

// Registers them: number of devices, current one, generators, pinned memory,
// whose memory a pointer is, resizing. Once.
void RegisterHooks();

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_HOOKS_H_
