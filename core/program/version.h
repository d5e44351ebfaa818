// Version of tandem: what a program tells of itself.

#ifndef TANDEM_CORE_PROGRAM_VERSION_H_
#define TANDEM_CORE_PROGRAM_VERSION_H_

namespace tandem {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_VERSION_H_
