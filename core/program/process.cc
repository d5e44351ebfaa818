#include "core/program/process.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/device/host_resources.h"
#include "core/program/caching_allocator.h"

namespace tandem {
namespace {

// Turns c10d's flight recorder of the works of its host backends off, unless
// TORCH_FR_BUFFER_SIZE says how much it is to keep: it takes a stack trace of
// each work. The recorder of NCCL's works, which reads the same variable, stays
// as it is. Call before works of c10d's.
void TurnOffHostRecorder() {
  if (std::getenv("TORCH_FR_BUFFER_SIZE") != nullptr) return;
  c10d::getFlightRecorder(c10d::kDefaultFRBackend)->enabled_ = false;
}

int CoresOfAffinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int CoresOfQuota() {
  constexpr double kMost = 1 << 20;  // no quota is infinite
  return std::max(1, static_cast<int>(std::min(CpuQuota(), kMost)));
}

// All in seconds after boot.
double AfterBoot() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

const double loaded_after_boot = AfterBoot();

// Field 22 of /proc/self/stat: start time in clock ticks after boot. The
// program's name, in parentheses, may hold spaces: count behind it.
double StartAfterBoot() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return std::atof(field.c_str()) / sysconf(_SC_CLK_TCK);
}

// A line of /proc/self/status, in MiB; 0 if it is not there.
double StatusMib(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0) {
      return std::atof(line.c_str() + name.size()) / 1024;
    }
  }
  return 0;
}

// A step's buffers differ in size by microbatch and stage: segments that grow
// leave fewer gaps between them than those of fixed sizes.
void UseExpandableSegments() {
  constexpr char kSettings[] = "PYTORCH_ALLOC_CONF";
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr) return;
  setenv(kSettings, "expandable_segments:True", /*overwrite=*/0);
}

}  // namespace

absl::StatusOr<int> RequestedThreads(int64_t flag, int most) {
  if (flag < 0 || flag > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--intra_op_threads=", flag, ": must be from 0 to ", most));
  }
  if (flag > 0) return static_cast<int>(flag);
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  const std::string given = variable == nullptr ? "" : variable;
  if (given.empty()) return 0;
  // OpenMP takes a list, for regions within regions.
  const std::string outermost = given.substr(0, given.find(','));
  int threads = 0;
  if (absl::SimpleAtoi(outermost, &threads) && threads > 0 && threads <= most) {
    return threads;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "OMP_NUM_THREADS=", given, ": must be a whole number from 1 to ", most,
      "; unset it, or give --intra_op_threads"));
}

int IntraOpThreads(int requested, const CoreSharing& sharing) {
  if (requested > 0) return requested;
  const int cores = CoresOfAffinity();
  const int available = std::min(cores, CoresOfQuota());
  const int ranks = sharing.bound ? 1 : sharing.ranks;
  return std::max(1, available / (ranks * sharing.threads_of_rank));
}

bool IsBoundToCores() {
  return CoresOfAffinity() < sysconf(_SC_NPROCESSORS_ONLN);
}

void ConfigureProcess(int intra_op_threads) {
  TurnOffHostRecorder();
  UseExpandableSegments();
  at::set_num_threads(intra_op_threads);
  constexpr int kGreatestMmapThreshold = 32 << 20;  // glibc's limit
  mallopt(M_MMAP_THRESHOLD, kGreatestMmapThreshold);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#ifndef __SANITIZE_ADDRESS__  // which wants to see every block come and go
  UseCachingAllocator();
#endif
}

void SetLibTorchLogLevel() {
  constexpr int kErrors = 2;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = kErrors;
  } else {
    c10::initLogging();
  }
}

void IgnoreBrokenConnections() { signal(SIGPIPE, SIG_IGN); }

void RaiseFileLimit() {
  constexpr rlim_t kEnough = 65536;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t most = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= most) return;
  limit.rlim_cur = most;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void IgnoreFileSizeSignal() { signal(SIGXFSZ, SIG_IGN); }

double PeakRssMib() { return StatusMib("VmHWM:"); }

double RssMib() { return StatusMib("VmRSS:"); }

double MillisecondsSinceStart() {
  const bool by_bazel = std::getenv("BUILD_WORKING_DIRECTORY") != nullptr;
  return (AfterBoot() - (by_bazel ? loaded_after_boot : StartAfterBoot())) *
         1e3;
}

}  // namespace tandem
