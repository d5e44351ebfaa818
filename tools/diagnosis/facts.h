// Facts about a machine on which a job is to run, as `doctor` finds them.

#ifndef TANDEM_TOOLS_DIAGNOSIS_FACTS_H_
#define TANDEM_TOOLS_DIAGNOSIS_FACTS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/device/host_resources.h"
#include "core/device/nvidia_driver.h"

namespace tandem {

enum class Severity {
  kFine,     // nothing to do
  kSlow,     // a job runs, slower or shorter than it could
  kStopped,  // the job that is asked about does not run
};

// A finding of `doctor`: what is so, what it means for a job, and the fix.
struct Finding {
  Severity severity = Severity::kFine;
  std::string subject;  // "driver", "shared memory": a word or two
  std::string what;     // a sentence without its full stop
  std::string fix;      // what to do; empty where all is fine
};

using Findings = std::vector<Finding>;

constexpr uint64_t kNoLimit = UINT64_MAX;  // of a resource

struct CudaFacts {
  NvidiaDriver driver;
  bool in_build = false;  // is LibTorch's CUDA linked (--config=cuda)?
  int runtime = 0;        // CUDA's version as in NvidiaDriver::cuda
  std::string nccl;       // "2.28.9"; empty: none in the build
  int usable_gpus = 0;    // that LibTorch counts
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
  bool infiniband = false;
};

struct LimitFacts {
  bool shm_writable = true;            // /dev/shm
  uint64_t shm_bytes = 0;              // its size
  uint64_t shm_free_bytes = 0;         // what of that is left
  uint64_t locked_bytes = kNoLimit;    // ulimit -l
  uint64_t files = kNoLimit;           // ulimit -n, the soft limit
  uint64_t most_files = kNoLimit;      // the hard one
  uint64_t tasks_left = kNoTaskLimit;  // threads, of the control group
};

struct ProcessorFacts {
  std::string name;
  std::set<std::string> instructions;  // by LibTorch's names
  int cores = 1;                       // of the machine
  int usable_cores = 1;                // that this process may run on
  double quota = kNoCpuQuota;          // cores that the control group grants
  MachineLoad load;                    // of all programs, on all cores
  uint64_t memory_limit = kNoMemoryLimit;  // bytes, of the control group
  uint64_t available_memory = 0;           // bytes
};

struct NetworkFacts {
  std::string loopback_error;  // why 127.0.0.1 cannot be listened on
  std::string host;            // this machine's name
  std::string address;         // that the name stands for; empty: none
};

struct Facts {
  CudaFacts cuda;
  LimitFacts limits;
  ProcessorFacts processor;
  NetworkFacts network;
};

// What is to run.
struct PlannedJob {
  bool on_gpus = false;
  int ranks = 1;  // on each machine
  int machines = 1;
};

// Asks the driver, the kernel and LibTorch. Changes nothing, and makes no CUDA
// context. Takes up to seconds where a driver is there and not in use.
Facts GatherFacts();

}  // namespace tandem

#endif  // TANDEM_TOOLS_DIAGNOSIS_FACTS_H_
