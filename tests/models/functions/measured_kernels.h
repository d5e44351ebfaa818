// Kernels that are measured by a test's own clock.

#ifndef TANDEM_TESTS_MODELS_FUNCTIONS_MEASURED_KERNELS_H_
#define TANDEM_TESTS_MODELS_FUNCTIONS_MEASURED_KERNELS_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "core/autotune/choice_file.h"
#include "core/autotune/kernel_choices.h"

namespace tandem {

class MeasuredKernelsTest : public testing::Test {
 protected:
  // Lets kernels of that name win every comparison from here on, with nothing
  // known from before.
  void Measure(const std::string& faster) {
    Forget();
    path_ = testing::TempDir() + "/" + faster + std::to_string(getpid());
    KernelChoices::Measuring measuring;
    measuring.file = *ChoiceFile::Open(path_);
    measuring.time = [faster](const Kernel& kernel) {
      kernel.run();
      return kernel.name == faster ? 1. : 2.;
    };
    KernelChoices::OfProcess().Measure(std::move(measuring));
  }

  void TearDown() override { Forget(); }

  Choices Written() { return *(*ChoiceFile::Open(path_))->Read(); }

 private:
  void Forget() {
    KernelChoices::OfProcess().Fix();
    if (!path_.empty()) unlink(path_.c_str());
  }

  std::string path_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_MODELS_FUNCTIONS_MEASURED_KERNELS_H_
