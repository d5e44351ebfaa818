// CIFAR-10's and CIFAR-100's binary files (datasets/images/cifar.h).

#include "datasets/images/cifar.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const tandem::CifarFormat* format :
       {&tandem::Cifar10(), &tandem::Cifar100()}) {
    tandem::InputFile(format->test_file, tandem::InputText(data, size));
    const auto images =
        tandem::OpenCifar(tandem::InputFolder(), *format, /*train=*/false);
    if (!images.ok()) continue;
    for (int64_t i = 0; i < (*images)->size(); ++i) {
      const int64_t number = (*images)->ClassNumber(i);
      CHECK(number >= 0 && number < format->classes) << number;
      CHECK_EQ((*images)->Image(i)->numel(), 3072);
    }
  }
  return 0;
}
