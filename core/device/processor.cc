#include "core/device/processor.h"

#include <ATen/cpu/Utils.h>

#include <unordered_map>

namespace tandem {
namespace {

const std::unordered_map<std::string, c10::IValue>& Capabilities() {
  static const auto* const capabilities =
      new std::unordered_map<std::string, c10::IValue>(
          at::cpu::get_cpu_capabilities());
  return *capabilities;
}

}  // namespace

bool ProcessorHas(absl::string_view instructions) {
  const auto found = Capabilities().find(std::string(instructions));
  return found != Capabilities().end() && found->second.isBool() &&
         found->second.toBool();
}

std::string ProcessorName() {
  const auto found = Capabilities().find("cpu_name");
  return found != Capabilities().end() && found->second.isString()
             ? found->second.toStringRef()
             : "unknown";
}

}  // namespace tandem
