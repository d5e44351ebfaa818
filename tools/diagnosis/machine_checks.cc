#include "tools/diagnosis/machine_checks.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"

namespace tandem {
namespace {

std::string Bytes(uint64_t bytes) {
  return FormatBytes(static_cast<int64_t>(bytes));
}

bool Has(const ProcessorFacts& facts, const char* instructions) {
  return facts.instructions.count(instructions) > 0;
}

// The cores that ranks can really use.
double GrantedCores(const ProcessorFacts& facts) {
  return std::min<double>(facts.usable_cores, facts.quota);
}

Finding CheckProducts(const ProcessorFacts& facts) {
  const bool amx = Has(facts, "amx_bf16");
  if (amx || Has(facts, "avx512_bf16")) {
    return {Severity::kFine, "processor",
            absl::StrCat("bf16 products have instructions (",
                         amx ? "AMX" : "AVX512_BF16", "): mixed precision pays",
                         Has(facts, "amx_fp16") ? ", in fp16, too" : ""),
            ""};
  }
  return {Severity::kSlow, "processor",
          "without AMX and AVX512_BF16, bf16 is computed in software",
          "train on the CPU in fp32"};
}

}  // namespace

uint64_t RankDescriptors(const PlannedJob& job) {
  constexpr uint64_t kCommunicators = 4;
  constexpr uint64_t kFilesAndLibraries = 64;
  const uint64_t ranks = job.ranks, machines = job.machines;
  uint64_t each = 3 * ranks;
  if (machines > 1) each += ranks * machines + machines + 6;
  // Rank 0, or the launcher, has a connection to every rank.
  return kCommunicators * each + ranks * machines + kFilesAndLibraries;
}

Findings CheckFiles(const LimitFacts& limits, const PlannedJob& job) {
  const uint64_t needed = RankDescriptors(job);
  std::string what = absl::StrCat(
      "ulimit -n is ",
      limits.files == kNoLimit ? "unlimited" : absl::StrCat(limits.files));
  if (limits.files < needed && limits.most_files >= needed) {
    absl::StrAppend(&what, ", which programs raise to the hard limit, ",
                    limits.most_files == kNoLimit
                        ? "unlimited"
                        : absl::StrCat(limits.most_files));
  }
  absl::StrAppend(&what, "; a rank of this job needs about ", needed);
  if (limits.most_files >= needed || limits.files >= needed) {
    return {{Severity::kFine, "open files", what, ""}};
  }
  return {{Severity::kStopped, "open files", what,
           absl::StrCat("raise the hard limit, ", limits.most_files,
                        ", in /etc/security/limits.conf (docker run "
                        "--ulimit nofile=",
                        needed, ")")}};
}

Findings CheckThreads(const LimitFacts& limits, const ProcessorFacts& facts,
                      const PlannedJob& job) {
  if (limits.tasks_left == kNoTaskLimit) return {};
  constexpr uint64_t kOfRank = 16;
  const uint64_t needed = kOfRank * static_cast<uint64_t>(job.ranks) +
                          static_cast<uint64_t>(facts.usable_cores);
  const std::string what =
      absl::StrCat("the control group allows ", limits.tasks_left,
                   " more threads (pids.max), and this job has about ", needed);
  if (limits.tasks_left >= needed) {
    return {{Severity::kFine, "threads", what, ""}};
  }
  return {{Severity::kStopped, "threads", what,
           "raise the limit (docker run --pids-limit, systemd's TasksMax)"}};
}

Findings CheckSharedMemory(const LimitFacts& limits) {
  if (!limits.shm_writable) {
    return {{Severity::kSlow, "shared memory",
             "/dev/shm is not there, or cannot be written: NCCL needs it "
             "(what tandem shares itself has no name there)",
             "mount -t tmpfs tmpfs /dev/shm"}};
  }
  return {{Severity::kFine, "shared memory",
           absl::StrCat("/dev/shm has ", Bytes(limits.shm_free_bytes), " of ",
                        Bytes(limits.shm_bytes), " left"),
           ""}};
}

Findings CheckCores(const ProcessorFacts& facts, const PlannedJob& job) {
  const double granted = GrantedCores(facts);
  std::string what = absl::StrCat("this process may use ", granted, " of ",
                                  facts.cores, " cores");
  if (facts.quota < facts.usable_cores) {
    absl::StrAppend(&what, " (the control group's quota)");
  } else if (facts.usable_cores < facts.cores) {
    absl::StrAppend(&what, " (its affinity)");
  }
  if (granted >= job.ranks) return {{Severity::kFine, "cores", what, ""}};
  return {{Severity::kSlow, "cores",
           absl::StrCat(what, ", and ", job.ranks,
                        " ranks are to run on them, in turns"),
           "start fewer ranks, or grant more cores (docker run --cpus, "
           "srun --cpus-per-task)"}};
}

Findings CheckLoad(const ProcessorFacts& facts, const PlannedJob& job) {
  const double average = facts.load.average;
  if (job.on_gpus || average <= facts.cores / 2.0) return {};
  return {{Severity::kSlow, "load",
           absl::StrFormat("%.1f threads use the %d cores, or wait for one, on "
                           "average of the last minute",
                           average, facts.cores),
           "end other programs, or give operators fewer threads "
           "(--intra_op_threads)"}};
}

Findings CheckMemory(const ProcessorFacts& facts, const PlannedJob& job) {
  constexpr uint64_t kLittle = uint64_t{1} << 30;
  constexpr uint64_t kOfRank = uint64_t{300} << 20;
  const bool is_enough =
      facts.available_memory >= kOfRank * static_cast<uint64_t>(job.ranks);
  const std::string what =
      absl::StrCat(Bytes(facts.available_memory), " of memory are left",
                   facts.memory_limit == kNoMemoryLimit
                       ? ""
                       : absl::StrCat("; the control group's limit is ",
                                      Bytes(facts.memory_limit)));
  if (is_enough && facts.available_memory >= kLittle) {
    return {{Severity::kFine, "memory", what, ""}};
  }
  return {{is_enough ? Severity::kSlow : Severity::kStopped, "memory", what,
           "end other programs, or raise the limit: LibTorch alone takes "
           "300 MiB a rank"}};
}

Findings CheckProcessor(const ProcessorFacts& facts, const PlannedJob& job) {
  std::vector<std::string> known;
  for (const char* each :
       {"avx2", "avx512_f", "avx512_bf16", "amx_bf16", "amx_fp16"}) {
    if (Has(facts, each)) known.push_back(each);
  }
  Findings all = {
      {Severity::kFine, "processor",
       absl::StrCat(facts.name, " (",
                    known.empty() ? "none of the instructions that kernels "
                                    "are written for"
                                  : absl::StrJoin(known, ", "),
                    ")"),
       ""}};
  if (!Has(facts, "avx2")) {
    all.push_back({Severity::kSlow, "processor",
                   "without AVX2, kernels run several times slower",
                   "use another machine, or let the virtual machine pass the "
                   "processor's instructions on"});
  }
  if (!job.on_gpus) all.push_back(CheckProducts(facts));
  return all;
}

Findings CheckNetwork(const NetworkFacts& facts, const PlannedJob& job) {
  Findings all;
  if (!facts.loopback_error.empty()) {
    all.push_back({Severity::kStopped, "network",
                   absl::StrCat("the ranks of a machine meet at 127.0.0.1, "
                                "which does not work: ",
                                facts.loopback_error),
                   "ip link set lo up"});
  }
  const bool several = job.machines > 1;
  const std::string name = absl::StrCat("this machine's name, ", facts.host);
  const std::string fix =
      "give node 0's address in the network: --master_addr=10.0.0.1";
  if (facts.address.empty()) {
    all.push_back({several ? Severity::kSlow : Severity::kFine, "network",
                   absl::StrCat(name, ", stands for no address"),
                   several ? fix : ""});
  } else if (several && absl::StartsWith(facts.address, "127.")) {
    all.push_back({Severity::kSlow, "network",
                   absl::StrCat(name, ", stands for ", facts.address,
                                ", which other machines cannot reach"),
                   fix});
  } else {
    all.push_back({Severity::kFine, "network",
                   absl::StrCat(name, ", stands for ", facts.address), ""});
  }
  return all;
}

}  // namespace tandem
