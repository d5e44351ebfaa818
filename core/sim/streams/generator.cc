#include "core/sim/streams/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

// A CPU generator cannot say that it is on another device: it is held here, and
// kernels are given it.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(int8_t device, at::Generator host)
      : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  const at::Generator& host() const {
    is_drawn_from_ = true;
    return host_;
  }

  void set_current_seed(uint64_t seed) override {
    Settled().set_current_seed(seed);
  }
  void set_offset(uint64_t offset) override { Settled().set_offset(offset); }
  uint64_t get_offset() const override { return Settled().get_offset(); }
  uint64_t current_seed() const override { return host_.current_seed(); }
  uint64_t seed() override { return Settled().seed(); }
  void set_state(const c10::TensorImpl& state) override {
    Settled().unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return Settled().unsafeGetGeneratorImpl()->get_state();
  }

 private:
  c10::GeneratorImpl* clone_impl() const override {
    return new DeviceGenerator(device_.index(), Settled().clone());
  }

  // When what is queued has drawn: a GPU's kernels are given their numbers'
  // place in the sequence when they are issued.
  at::Generator Settled() const {
    if (is_drawn_from_) SynchroniseComputing(device_.index());
    return host_;
  }

  at::Generator host_;
  mutable std::atomic<bool> is_drawn_from_{false};
};

}  // namespace

at::Generator NewGenerator(int8_t device) {
  return at::make_generator<DeviceGenerator>(
      device, at::make_generator<at::CPUGeneratorImpl>());
}

const at::Generator& DefaultGenerator(int8_t device) {
  static auto* generators = [] {
    auto* made = new std::array<at::Generator, kMostDevices>;
    for (int i = 0; i < kMostDevices; ++i) {
      (*made)[i] = NewGenerator(static_cast<int8_t>(i));
    }
    return made;
  }();
  return (*generators)[device];
}

at::Generator HostGenerator(const at::Generator& generator, int8_t device) {
  TORCH_CHECK(generator.device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'sim' device type for generator but found '",
              generator.device(), "'");
  TORCH_CHECK(generator.device().index() == device,
              "Expected a generator of sim:", static_cast<int>(device),
              " but found one of ", generator.device());
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())
      ->host();
}

}  // namespace sim
}  // namespace tandem
