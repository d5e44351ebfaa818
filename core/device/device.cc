#include "core/device/device.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"
#include "core/device/nvidia_driver.h"

namespace tandem {
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

absl::Status CheckOthers(c10::DeviceType type, int first, int count) {
  const int found = c10::impl::VirtualGuardImpl(type).deviceCount();
  if (first + count <= found) return absl::OkStatus();
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  return absl::FailedPreconditionError(absl::StrCat(
      "this rank needs ", name, ":", first, " to ", name, ":",
      first + count - 1, ", but there are ", found,
      " of them; start fewer ranks on this host, or give each fewer devices"));
}

absl::Status CheckGpus(int first, int count) {
  const auto& cuda = at::detail::getCUDAHooks();
  if (!cuda.hasCUDART()) {
    return absl::FailedPreconditionError(
        "this program is built without CUDA; build it with --config=cuda "
        "(docs/cuda.md), run it on cpu, or rehearse it on sim, simulated "
        "devices in the host's memory");
  }
  const int found = cuda.getNumGPUs();
  if (first + count <= found) return absl::OkStatus();
  const int last = first + count - 1;
  const std::string wanted = count == 1
                                 ? absl::StrCat("GPU ", first)
                                 : absl::StrCat("GPUs ", first, " to ", last);
  return absl::FailedPreconditionError(absl::StrCat(
      "this rank needs ", wanted, ", but ", found, " GPUs were found",
      WhyNotMoreGpus(FindNvidiaDriver(), found,
                     std::getenv("CUDA_VISIBLE_DEVICES")),
      found == 0 ? "; //tools:doctor says more. Use the CPU, or rehearse on "
                   "sim, simulated devices in the host's memory"
                 : "; start fewer ranks on this host, give each fewer devices, "
                   "or use the CPU"));
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

absl::StatusOr<std::vector<c10::Device>> DevicesOf(int local_rank,
                                                   int devices_per_rank,
                                                   c10::DeviceType type) {
  if (local_rank < 0 || devices_per_rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "local rank ", local_rank, " with ", devices_per_rank,
        " devices: a rank counts from 0 and has at least one device"));
  }
  if (type == c10::DeviceType::CPU) {
    return std::vector<c10::Device>(devices_per_rank, c10::Device(type));
  }
  const int first = local_rank * devices_per_rank;
  const absl::Status checked = type == c10::DeviceType::CUDA
                                   ? CheckGpus(first, devices_per_rank)
                                   : CheckOthers(type, first, devices_per_rank);
  if (!checked.ok()) return checked;
  std::vector<c10::Device> devices;
  for (int i = 0; i < devices_per_rank; ++i) {
    devices.emplace_back(type, static_cast<c10::DeviceIndex>(first + i));
  }
  return devices;
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
