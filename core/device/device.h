// Device thread: a torch device, and the thread that issues its work. On a
// machine without GPUs several of them may share the CPU.

#ifndef TANDEM_CORE_DEVICE_DEVICE_H_
#define TANDEM_CORE_DEVICE_DEVICE_H_

#include <c10/core/Device.h>

#include <deque>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/base/environment.h"

namespace tandem {

// Device view: which of the devices that a process sees are its rank's.

// A rank on its host, and what it sees there.
struct DeviceView {
  int local_rank = 0;
  int local_world_size = 1;  // ranks on the host
  int devices_per_rank = 1;
  int found = 0;  // devices that this process sees
  // They are this rank's alone: other ranks of the host see others.
  bool is_own = false;
  // Several places may lie on one device.
  bool shared = false;
};

// The numbers of the rank's devices, `devices_per_rank` of them, among those
// found. Where all ranks of the host find a device each: rank r has r * n to r
// * n + n - 1, n being `devices_per_rank`. Where each rank has a view of its
// own: the first. Shared: place p = r * n + i of the host lies on device p mod
// `found`. FailedPrecondition, with numbers and remedy, where there are too
// few; InvalidArgument for numbers that make no sense. Pure.
absl::StatusOr<std::vector<int>> ChooseDevices(const DeviceView& view);

// Whether `found` GPUs are the view of one rank, by what its launcher (see
// Launch::launcher) and `environment` say: that each rank gets as many
// (SLURM_GPUS_PER_TASK), that Slurm's step has more on this node
// (SLURM_GPUS_ON_NODE), or, under others that can give each rank variables of
// its own, that CUDA_VISIBLE_DEVICES is set and names `devices_per_rank`.
// tandem's launcher and torchrun give all ranks the same view. Pure.
bool IsOwnView(const Environment& environment, absl::string_view launcher,
               int devices_per_rank, int found);

// What --device names: "cpu", "cuda", or what has been registered.
// InvalidArgument for anything else.
absl::StatusOr<c10::DeviceType> ParseDeviceType(absl::string_view flag);

// Has --device=NAME mean `type`, whose devices LibTorch counts. Thread-safe.
void RegisterDeviceType(const std::string& name, c10::DeviceType type);

// The rank whose devices are asked for, by the names of Launch
// (core/launch/launch.h).
struct DeviceRequest {
  int local_rank = 0;
  int local_world_size = 1;
  int devices_per_rank = 1;
  std::string launcher = "none";
  // Several places may lie on one device.
  bool shared = false;
};

// The devices of one rank on its host: ChooseDevices says which. All CPU
// devices are the one CPU. FailedPrecondition when LibTorch is built without
// CUDA or there are fewer devices, with the reason and the remedy;
// InvalidArgument for numbers that make no sense.
absl::StatusOr<std::vector<c10::Device>> DevicesOf(const DeviceRequest& request,
                                                   c10::DeviceType type);

// Makes `device` the calling thread's current one. For a rank's main thread,
// before it uses any device: else what it does without a guard makes a context
// on GPU 0, for every rank of the host. None for the CPU.
void SetCurrentDevice(c10::Device device);

// Runs `work` in this thread, with `device` as the current one and with the
// process's number of intra-op threads (at::set_num_threads), which threads
// that LibTorch did not make do not have by themselves. An exception becomes a
// Status.
absl::Status RunOnDevice(c10::Device device,
                         absl::FunctionRef<absl::Status()> work);

// A device with one thread of its own. Work runs on that thread in the order
// in which it came, with the device as the current one and with the submitting
// thread's torch settings (no_grad, autocast, ...).
//
// Thread-safe. Destruction runs what was submitted, then joins the thread; a
// thread must not be destroyed by its own work.
class DeviceThread {
 public:
  using Work = std::function<absl::Status()>;

  explicit DeviceThread(c10::Device device);
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  c10::Device device() const { return device_; }

  // Runs `work` here and waits for it. An exception becomes a Status. From this
  // place's own thread it runs at once.
  absl::Status Run(Work work);

  // Has `work` run here; the future holds what Run would have returned. It may
  // be dropped: dropping it does not wait.
  std::future<absl::Status> Submit(Work work);

 private:
  void Loop();

  const c10::Device device_;
  absl::Mutex mutex_;
  std::deque<std::packaged_task<absl::Status()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_DEVICE_H_
