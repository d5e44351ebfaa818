#include "core/sim/nccl/wire.h"

#include <chrono>
#include <thread>
#include <utility>

#include "core/base/torch_status.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

// How soon a wait notices that it was left.
constexpr std::chrono::milliseconds kSlice(100);

}  // namespace

NcclWire::NcclWire(c10::intrusive_ptr<c10d::Backend> backend)
    : backend_(std::move(backend)) {
  // Time is the business of who polls the works.
  backend_->setTimeout(std::chrono::hours(24 * 365));
}

NcclWire::~NcclWire() {
  if (is_left_) CatchTorch([&] { backend_->abort(); }).IgnoreError();
}

NcclWire::WorkPtr NcclWire::Send(at::Tensor bytes, int to, Kind kind) {
  std::vector<at::Tensor> tensors = {std::move(bytes)};
  return backend_->send(tensors, to, static_cast<int>(kind));
}

NcclWire::WorkPtr NcclWire::Receive(at::Tensor bytes, int from, Kind kind) {
  std::vector<at::Tensor> tensors = {std::move(bytes)};
  return backend_->recv(tensors, from, static_cast<int>(kind));
}

bool NcclWire::is_left() const { return is_left_ || ProcessEnds(); }

bool NcclWire::Await(c10d::Work& work) {
  while (!is_left()) {
    const absl::Status status = CatchTorch([&] { work.wait(kSlice); });
    if (status.ok()) return true;
    if (absl::IsDeadlineExceeded(status)) continue;
    AwaitLeaving();
  }
  return false;
}

void NcclWire::AwaitLeaving() {
  while (!is_left()) std::this_thread::sleep_for(kSlice / 10);
}

}  // namespace sim
}  // namespace tandem
