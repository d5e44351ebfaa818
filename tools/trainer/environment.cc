#include "tools/trainer/environment.h"

#include <torch/headeronly/version.h>

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/device/host_resources.h"
#include "core/device/nvidia_driver.h"

namespace tandem {
namespace {

// "8 x NVIDIA H100 80GB HBM3"; empty: nobody knows.
std::string DescribeGpus() {
  std::map<std::string, int> counts;
  for (const Gpu& gpu : FindNvidiaDriver().gpus) ++counts[gpu.name];
  std::vector<std::string> kinds;
  for (const auto& [name, count] : counts) {
    kinds.push_back(absl::StrCat(count, " x ", name));
  }
  return absl::StrJoin(kinds, ", ");
}

}  // namespace

SettingValues JobEnvironment(const Job& job) {
  SettingValues environment = {
      {"ranks", int64_t{job.launch.world_size}},
      {"processor", DescribeProcessor()},
      {"cores", int64_t{std::thread::hardware_concurrency()}},
      {"libtorch", std::string(TORCH_VERSION)},
      {"compiler", std::string(__VERSION__)}};
  const std::string gpus =
      job.options.devices.device == "cuda" ? DescribeGpus() : "";
  if (!gpus.empty()) environment.push_back({"gpus", gpus});
  return environment;
}

}  // namespace tandem
