// Processor: which instructions this machine's has.

#ifndef TANDEM_CORE_DEVICE_PROCESSOR_H_
#define TANDEM_CORE_DEVICE_PROCESSOR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// By LibTorch's name of them: "avx2", "avx512_bf16", "amx_bf16", "amx_fp16".
// False for names that it does not know.
bool ProcessorHas(absl::string_view instructions);

// "Intel Xeon".
std::string ProcessorName();

// "Intel Xeon (avx2, avx512_f, avx512_bf16, amx_bf16)": and of the instructions
// that products and other kernels are written for those that it has.
std::string DescribeProcessor();

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_PROCESSOR_H_
