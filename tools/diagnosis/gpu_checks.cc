#include "tools/diagnosis/gpu_checks.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"
#include "core/device/nvidia_driver.h"

namespace tandem {
namespace {

// What stops a job on GPUs, and is a mere fact for one on the CPU.
Severity StopsGpus(const PlannedJob& job) {
  return job.on_gpus ? Severity::kStopped : Severity::kFine;
}

bool IsOld(const Gpu& gpu) {
  return gpu.major < 7 || (gpu.major == 7 && gpu.minor < 5);
}

std::string Describe(int number, const Gpu& gpu) {
  return absl::StrCat("GPU ", number, ", ", gpu.name, " (compute capability ",
                      gpu.major, ".", gpu.minor, ", ",
                      FormatBytes(static_cast<int64_t>(gpu.memory)), ")");
}

// What is not as it should be with a GPU.
Findings CheckGpu(int number, const Gpu& gpu, const PlannedJob& job) {
  Findings found;
  const std::string its_name = absl::StrCat("GPU ", number);
  if (IsOld(gpu)) {
    found.push_back(
        {StopsGpus(job), "GPUs",
         absl::StrCat(its_name, " has compute capability ", gpu.major, ".",
                      gpu.minor, ", and CUDA 13 begins at 7.5"),
         "leave it out with CUDA_VISIBLE_DEVICES"});
  } else if (gpu.major < 8) {
    found.push_back({Severity::kSlow, "GPUs",
                     absl::StrCat(its_name, " computes bf16 in software"),
                     "for mixed precision use fp16"});
  }
  if (gpu.no_process) {
    found.push_back({StopsGpus(job), "GPUs",
                     absl::StrCat(its_name,
                                  " is in the compute mode "
                                  "\"prohibited\""),
                     "nvidia-smi --compute-mode=DEFAULT, as root"});
  }
  if (gpu.split) {
    found.push_back(
        {Severity::kSlow, "GPUs",
         absl::StrCat(its_name,
                      " is split into instances (MIG), which do not "
                      "reach each other's memory"),
         "for one big GPU: nvidia-smi --multi-instance-gpu=0, as root"});
  }
  const uint64_t held = gpu.memory - gpu.free_memory;
  if (held > gpu.memory / 10) {
    found.push_back({Severity::kSlow, "GPUs",
                     absl::StrCat("of ", its_name,
                                  "'s memory other processes "
                                  "hold ",
                                  FormatBytes(static_cast<int64_t>(held))),
                     "nvidia-smi lists them; end those that are not needed"});
  }
  return found;
}

void Append(Findings more, Findings& all) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

Findings CheckDriver(const CudaFacts& facts, const PlannedJob& job) {
  const NvidiaDriver& driver = facts.driver;
  if (!driver.missing.empty()) {
    return {{StopsGpus(job), "driver", driver.missing,
             job.on_gpus
                 ? "install NVIDIA's driver 580 or newer; a container needs "
                   "NVIDIA's container toolkit and --gpus=all"
                 : ""}};
  }
  if (driver.cuda < facts.runtime / 1000 * 1000) {
    return {
        {StopsGpus(job), "driver",
         absl::StrCat("the driver ", driver.version, " runs CUDA up to ",
                      CudaVersionName(driver.cuda), ", and this program is of ",
                      CudaVersionName(facts.runtime)),
         "install NVIDIA's driver 580 or newer"}};
  }
  return {{Severity::kFine, "driver",
           absl::StrCat("the driver ", driver.version, " runs CUDA up to ",
                        CudaVersionName(driver.cuda), "; this program is of ",
                        CudaVersionName(facts.runtime)),
           ""}};
}

Findings CheckBuild(const CudaFacts& facts, const PlannedJob& job) {
  const int there = static_cast<int>(facts.driver.gpus.size());
  if (!facts.driver.missing.empty()) return {};
  if (!facts.in_build) {
    return {{job.on_gpus ? Severity::kStopped : Severity::kSlow, "build",
             absl::StrCat("this program is built without CUDA, and the machine "
                          "has ",
                          there, " GPUs"),
             "build it with --config=cuda (docs/rehearsal.md)"}};
  }
  const std::string what = absl::StrCat(
      "programs see ", facts.usable_gpus, " of the machine's ", there, " GPUs",
      facts.visible
          ? absl::StrCat(": CUDA_VISIBLE_DEVICES is \"", *facts.visible, "\"")
          : "");
  if (facts.usable_gpus < job.ranks) {
    return {{StopsGpus(job), "build",
             absl::StrCat(what, "; ", job.ranks, " ranks need one each"),
             facts.visible && there >= job.ranks
                 ? "name more in CUDA_VISIBLE_DEVICES"
                 : "start fewer ranks on this machine"}};
  }
  return {{Severity::kFine, "build", what, ""}};
}

Findings CheckGpus(const CudaFacts& facts, const PlannedJob& job) {
  Findings all;
  for (size_t i = 0; i < facts.driver.gpus.size(); ++i) {
    const int number = static_cast<int>(i);
    const Gpu& gpu = facts.driver.gpus[i];
    all.push_back({Severity::kFine, "GPUs", Describe(number, gpu), ""});
    Append(CheckGpu(number, gpu, job), all);
  }
  return all;
}

Findings CheckLinks(const CudaFacts& facts) {
  std::map<std::string, std::vector<std::string>> pairs;  // by how they reach
  Findings all;
  for (const GpuLink& link : facts.driver.links) {
    std::string how = "NVLink";
    if (!link.nvlink) {
      how = link.path.empty() ? "PCIe"
                              : absl::StrCat("PCIe by way of ", link.path);
      if (!link.peer) absl::StrAppend(&how, ", without peer-to-peer");
    }
    pairs[how].push_back(absl::StrCat(link.first, "-", link.second));
  }
  for (const auto& [how, them] : pairs) {
    const bool peers = how.find("without") == std::string::npos;
    all.push_back(
        {peers ? Severity::kFine : Severity::kSlow, "links",
         absl::StrCat("GPUs ", absl::StrJoin(them, ", "), ": ", how),
         peers ? ""
               : "NCCL goes through the host's memory there: put stages that "
                 "talk and replicas on GPUs that are joined; on bare metal "
                 "PCIe's ACS is to be off (NVIDIA's guide of NCCL)"});
  }
  return all;
}

Findings CheckNccl(const CudaFacts& facts, const LimitFacts& limits,
                   const PlannedJob& job) {
  if (!facts.in_build) return {};
  Findings all = {{Severity::kFine, "NCCL",
                   absl::StrCat("NCCL ", facts.nccl, " is in this build"), ""}};
  // Docker's default of 64 MiB is too little for what NCCL shares: some MiB for
  // each channel and peer.
  constexpr uint64_t kEnough = uint64_t{1} << 30;
  if (job.on_gpus && job.ranks > 1 && limits.shm_free_bytes < kEnough) {
    all.push_back(
        {Severity::kSlow, "NCCL",
         absl::StrCat("NCCL shares memory through /dev/shm, which has ",
                      FormatBytes(static_cast<int64_t>(limits.shm_free_bytes)),
                      " left: it may fail with \"unhandled system error\""),
         "mount it with 1 GiB or more (docker run --shm-size=1g)"});
  }
  if (job.machines > 1 && facts.infiniband && limits.locked_bytes != kNoLimit) {
    all.push_back(
        {Severity::kSlow, "NCCL",
         absl::StrCat("InfiniBand needs locked memory, which is limited to ",
                      FormatBytes(static_cast<int64_t>(limits.locked_bytes))),
         "ulimit -l unlimited (docker run --ulimit memlock=-1)"});
  }
  return all;
}

}  // namespace tandem
