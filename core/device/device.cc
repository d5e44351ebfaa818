#include "core/device/device.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/nvidia_driver.h"

namespace tandem {

namespace {

std::string Count(int64_t number, absl::string_view of) {
  return absl::StrCat(number, " ", of, number == 1 ? "" : "s");
}

absl::Status CheckNumbers(const DeviceView& view) {
  if (0 <= view.local_rank && view.local_rank < view.local_world_size &&
      view.devices_per_rank >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "local rank ", view.local_rank, " of ", view.local_world_size, " with ",
      view.devices_per_rank,
      " devices: a rank counts from 0 and has at least one device"));
}

absl::Status TooFew(const DeviceView& view, int64_t needed) {
  std::string needs = absl::StrCat("this host's ", view.local_world_size,
                                   " ranks need ", Count(needed, "device"),
                                   ", ", view.devices_per_rank, " each");
  if (view.local_world_size == 1) {
    needs = absl::StrCat("this rank needs ", Count(needed, "device"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      needs, ", and ", view.found == 0 ? "none" : absl::StrCat(view.found),
      view.found == 1 ? " was found" : " were found"));
}

// "2", or with a type: "h100:2". 0 where it is neither.
int GpusPerTask(const Environment& environment) {
  const std::string text = environment.Get("SLURM_GPUS_PER_TASK").value_or("");
  const size_t type = text.rfind(':');
  int gpus = 0;
  return absl::SimpleAtoi(
             type == std::string::npos ? text : text.substr(type + 1), &gpus)
             ? gpus
             : 0;
}

bool SlurmSplits(const Environment& environment, int found) {
  const auto on_node = environment.GetInt("SLURM_GPUS_ON_NODE");
  return GpusPerTask(environment) == found ||
         (on_node.ok() && on_node->value_or(0) > found);
}

}  // namespace

absl::StatusOr<std::vector<int>> ChooseDevices(const DeviceView& view) {
  const absl::Status checked = CheckNumbers(view);
  if (!checked.ok()) return checked;
  const int n = view.devices_per_rank;
  const int64_t needed = int64_t{view.local_world_size} * n;
  const bool each_has_some = view.found >= needed;
  if (!each_has_some && !(view.is_own && view.found >= n) &&
      !(view.shared && view.found > 0)) {
    return TooFew(view, needed);
  }
  const bool begins = view.is_own && !each_has_some;
  std::vector<int> devices(n);
  std::iota(devices.begin(), devices.end(), begins ? 0 : view.local_rank * n);
  for (int& device : devices) device %= view.found;
  return devices;
}

bool IsOwnView(const Environment& environment, absl::string_view launcher,
               int devices_per_rank, int found) {
  if (launcher == "tandem" || launcher == "torchrun") return false;
  if (launcher == "slurm") return SlurmSplits(environment, found);
  return environment.Get("CUDA_VISIBLE_DEVICES").has_value() &&
         found == devices_per_rank;
}

namespace {

// What is known beside the CPU and CUDA.
struct Registered {
  absl::Mutex mutex;
  std::map<std::string, c10::DeviceType> types ABSL_GUARDED_BY(mutex);
};

Registered& AllRegistered() {
  static auto* registered = new Registered;
  return *registered;
}

// No number where LibTorch is built without CUDA.
absl::StatusOr<int> CountDevices(c10::DeviceType type) {
  if (type != c10::DeviceType::CUDA) {
    return c10::impl::VirtualGuardImpl(type).deviceCount();
  }
  const auto& cuda = at::detail::getCUDAHooks();
  if (cuda.hasCUDART()) return cuda.getNumGPUs();
  return absl::FailedPreconditionError(
      "this program is built without CUDA; build it with --config=cuda "
      "(docs/rehearsal.md), run it on cpu, or rehearse it on sim, simulated "
      "devices in the host's memory");
}

// Where they went, and what to do.
std::string RemedyForGpus(int found) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string why = WhyNotMoreGpus(FindNvidiaDriver(), found, visible);
  const std::string named =
      visible == nullptr || absl::StrContains(why, "CUDA_VISIBLE_DEVICES")
          ? ""
          : absl::StrCat("; CUDA_VISIBLE_DEVICES is \"", visible, "\"");
  return absl::StrCat(
      why, named,
      found == 0 ? "; //tools:doctor says more. Use the CPU, or rehearse on "
                   "sim, simulated devices in the host's memory"
                 : "; start fewer ranks on this host, give each fewer devices, "
                   "give each rank GPUs of its own (srun --gpus-per-task, or "
                   "CUDA_VISIBLE_DEVICES), or have them share what there is "
                   "(--share_devices)");
}

std::string RemedyFor(c10::DeviceType type, int found) {
  if (type == c10::DeviceType::CUDA) return RemedyForGpus(found);
  return absl::StrCat(" (", c10::DeviceTypeName(type, /*lower_case=*/true),
                      "); start fewer ranks on this host, give each fewer "
                      "devices, or have them share what there is "
                      "(--share_devices)");
}

}  // namespace

absl::StatusOr<c10::DeviceType> ParseDeviceType(absl::string_view flag) {
  if (flag == "cpu") return c10::DeviceType::CPU;
  if (flag == "cuda") return c10::DeviceType::CUDA;
  std::string known = "cpu, cuda";
  absl::MutexLock lock(&AllRegistered().mutex);
  for (const auto& [name, type] : AllRegistered().types) {
    if (flag == name) return type;
    absl::StrAppend(&known, ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the device ", flag, " is not known; known are: ", known));
}

void RegisterDeviceType(const std::string& name, c10::DeviceType type) {
  absl::MutexLock lock(&AllRegistered().mutex);
  AllRegistered().types[name] = type;
}

absl::StatusOr<std::vector<c10::Device>> DevicesOf(const DeviceRequest& request,
                                                   c10::DeviceType type) {
  DeviceView view;
  view.local_rank = request.local_rank;
  view.local_world_size = request.local_world_size;
  view.devices_per_rank = request.devices_per_rank;
  view.shared = request.shared || type == c10::DeviceType::CPU;
  view.found = 1;  // all CPU devices are the one
  if (type != c10::DeviceType::CPU) {
    TANDEM_ASSIGN_OR_RETURN(view.found, CountDevices(type));
    view.is_own = IsOwnView(Environment::OfProcess(), request.launcher,
                            view.devices_per_rank, view.found);
  }
  const absl::StatusOr<std::vector<int>> chosen = ChooseDevices(view);
  if (absl::IsFailedPrecondition(chosen.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(chosen.status().message(), RemedyFor(type, view.found)));
  }
  TANDEM_RETURN_IF_ERROR(chosen.status());
  std::vector<c10::Device> devices;
  for (const int index : *chosen) {
    devices.emplace_back(type, type == c10::DeviceType::CPU
                                   ? c10::DeviceIndex{-1}
                                   : static_cast<c10::DeviceIndex>(index));
  }
  return devices;
}

void SetCurrentDevice(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

namespace {

// Products round differently on other numbers of threads, and oneDNN and MKL
// ask OpenMP, which gives a new thread the process's number
// (at::set_num_threads) only when it is told.
void TakeNumberOfThreads() { at::init_num_threads(); }

}  // namespace

absl::Status RunOnDevice(c10::Device device,
                         absl::FunctionRef<absl::Status()> work) {
  TakeNumberOfThreads();
  c10::OptionalDeviceGuard guard;
  if (device.type() != c10::DeviceType::CPU) guard.reset_device(device);
  return CatchTorch(work);
}

DeviceThread::DeviceThread(c10::Device device)
    : device_(device), thread_([this] { Loop(); }) {}

DeviceThread::~DeviceThread() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

absl::Status DeviceThread::Run(Work work) {
  if (std::this_thread::get_id() == thread_.get_id()) {
    return CatchTorch(work);
  }
  return Submit(std::move(work)).get();
}

std::future<absl::Status> DeviceThread::Submit(Work work) {
  std::packaged_task<absl::Status()> task(
      [work = std::move(work), state = at::ThreadLocalState()] {
        const at::ThreadLocalStateGuard settings(state);
        return CatchTorch(work);
      });
  std::future<absl::Status> result = task.get_future();
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(task));
  return result;
}

void DeviceThread::Loop() {
  TakeNumberOfThreads();
  c10::OptionalDeviceGuard guard;
  if (device_.type() != c10::DeviceType::CPU) guard.reset_device(device_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ending_ || !queue_.empty();
  };
  while (true) {
    std::packaged_task<absl::Status()> task;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace tandem
