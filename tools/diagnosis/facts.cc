#include "tools/diagnosis/facts.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/owned_fd.h"
#include "core/device/host_resources.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

// The version of a library that this program may be linked with; 0 where it is
// not.
int VersionBy(const char* function) {
  auto* const ask =
      reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, function));
  int version = 0;
  return ask != nullptr && ask(&version) == 0 ? version : 0;
}

// 22809: "2.28.9".
std::string NcclVersion() {
  const int version = VersionBy("ncclGetVersion");
  if (version == 0) return "";
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".",
                      version % 100);
}

CudaFacts GatherCuda() {
  CudaFacts facts;
  facts.driver = FindNvidiaDriver();
  const auto& cuda = at::detail::getCUDAHooks();
  facts.in_build = cuda.hasCUDART();
  // LibTorch's CUDA runtime is linked in every build.
  facts.runtime = VersionBy("cudaRuntimeGetVersion");
  facts.nccl = NcclVersion();
  if (facts.in_build && facts.driver.missing.empty()) {
    facts.usable_gpus = cuda.getNumGPUs();
  }
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    facts.visible = visible;
  }
  std::error_code error;
  const std::filesystem::directory_iterator adapters("/sys/class/infiniband",
                                                     error);
  facts.infiniband =
      !error && adapters != std::filesystem::directory_iterator();
  return facts;
}

uint64_t Limit(rlim_t limit) {
  return limit == RLIM_INFINITY ? kNoLimit : static_cast<uint64_t>(limit);
}

LimitFacts GatherLimits() {
  LimitFacts facts;
  constexpr char kSharedMemory[] = "/dev/shm";
  struct statvfs shm = {};
  facts.shm_writable = statvfs(kSharedMemory, &shm) == 0 &&
                       access(kSharedMemory, W_OK | X_OK) == 0;
  facts.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  facts.shm_free_bytes = uint64_t{shm.f_bavail} * shm.f_frsize;
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.locked_bytes = Limit(limit.rlim_cur);
  }
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.files = Limit(limit.rlim_cur);
    facts.most_files = Limit(limit.rlim_max);
  }
  facts.tasks_left = TasksLeft();
  return facts;
}

ProcessorFacts GatherProcessor() {
  ProcessorFacts facts;
  facts.name = ProcessorName();
  for (const char* each :
       {"avx2", "avx512_f", "avx512_bf16", "amx_bf16", "amx_fp16"}) {
    if (ProcessorHas(each)) facts.instructions.insert(each);
  }
  facts.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t usable;
  facts.usable_cores = sched_getaffinity(0, sizeof(usable), &usable) == 0
                           ? CPU_COUNT(&usable)
                           : facts.cores;
  facts.quota = CpuQuota();
  facts.load = ReadMachineLoad();
  facts.memory_limit = MemoryLimit();
  facts.available_memory = AvailableMemory();
  return facts;
}

// Empty when this machine's ranks can meet. An interface that is down can be
// listened on.
std::string TryLoopback() {
  constexpr char kLoopback[] = "127.0.0.1";
  const absl::StatusOr<BoundSocket> socket = ListenOn(kLoopback, 0);
  if (!socket.ok()) return std::string(socket.status().message());
  const OwnedFd listener(socket->fd);
  const absl::Status reached =
      ConnectWhenServed(kLoopback, socket->port, std::chrono::seconds(1))
          .status();
  return std::string(reached.message());
}

// "10.0.0.7"; empty when the name stands for nothing.
std::string HostAddress(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return "";
  std::array<char, NI_MAXHOST> text = {};
  getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(),
              nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  return text.data();
}

NetworkFacts GatherNetwork() {
  NetworkFacts facts;
  facts.loopback_error = TryLoopback();
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  facts.host = name.data();
  facts.address = HostAddress(facts.host);
  return facts;
}

}  // namespace

Facts GatherFacts() {
  return {GatherCuda(), GatherLimits(), GatherProcessor(), GatherNetwork()};
}

}  // namespace tandem
