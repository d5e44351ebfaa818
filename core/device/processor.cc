#include "core/device/processor.h"

#include <ATen/cpu/Utils.h>

#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

std::string DescribeProcessor() {
  std::vector<std::string> known;
  for (const char* each :
       {"avx2", "avx512_f", "avx512_bf16", "amx_bf16", "amx_fp16"}) {
    if (ProcessorHas(each)) known.push_back(each);
  }
  return absl::StrCat(ProcessorName(), " (", absl::StrJoin(known, ", "), ")");
}

}  // namespace tandem
