// For tests of asynchronous mode: streams that are held back at will.

#ifndef TANDEM_TESTS_CORE_SIM_ASYNCHRONOUS_H_
#define TANDEM_TESTS_CORE_SIM_ASYNCHRONOUS_H_

#include <c10/core/Stream.h>
#include <gtest/gtest.h>

#include <future>

#include "core/sim/sim.h"
#include "core/sim/streams/streams.h"

namespace tandem {

// Makes the process's devices, asynchronous, each piece of work held up for up
// to 50 us.
inline void EnableAsynchronousSim() {
  SimOptions options;
  options.async = true;
  options.most_delay_us = 50;
  options.delay_seed = 11;
  ASSERT_TRUE(EnableSim(options).ok());
}

// A test on asynchronous devices.
class AsynchronousSimTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }
};

// While it lives, what is queued on the stream waits. Calls that wait for the
// stream would wait for ever.
class HeldStream {
 public:
  explicit HeldStream(c10::Stream stream) {
    sim::Push(stream, [open = open_.get_future().share()] { open.wait(); });
  }
  ~HeldStream() { open_.set_value(); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

 private:
  std::promise<void> open_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_SIM_ASYNCHRONOUS_H_
