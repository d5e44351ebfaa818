#include "core/device/nvidia_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFake[] = "tests/core/device/libfake_nvml.so";

TEST(NvidiaDriverTest, TellsGpusAndLinks) {
  const NvidiaDriver driver = FindNvidiaDriver(kFake);
  EXPECT_EQ(driver.missing, "");
  EXPECT_EQ(driver.version, "580.65.06");
  EXPECT_EQ(driver.cuda, 13000);
  ASSERT_EQ(driver.gpus.size(), 3u);  // the fourth has no handle
  EXPECT_EQ(driver.gpus[0].name, "H100");
  EXPECT_EQ(driver.gpus[1].memory, uint64_t{80} << 30);
  EXPECT_EQ(driver.gpus[1].free_memory, uint64_t{71} << 30);
  EXPECT_EQ(driver.gpus[2].major, 8);
  EXPECT_FALSE(driver.gpus[0].one_process);
  EXPECT_TRUE(driver.gpus[1].one_process);
  EXPECT_FALSE(driver.gpus[1].no_process);
  EXPECT_FALSE(driver.gpus[1].split);
  EXPECT_TRUE(driver.gpus[2].split);
}

TEST(NvidiaDriverTest, EachPairHasALink) {
  const NvidiaDriver driver = FindNvidiaDriver(kFake);
  ASSERT_EQ(driver.links.size(), 3u);
  EXPECT_EQ(driver.links[0].second, 1);
  EXPECT_TRUE(driver.links[0].peer);
  EXPECT_TRUE(driver.links[0].nvlink);
  EXPECT_EQ(driver.links[0].path, "one PCIe switch");
  EXPECT_EQ(driver.links[2].first, 1);
  EXPECT_EQ(driver.links[2].second, 2);
  EXPECT_FALSE(driver.links[2].peer);
  EXPECT_FALSE(driver.links[2].nvlink);
  EXPECT_EQ(driver.links[2].path, "a host bridge");
}

TEST(NvidiaDriverTest, WithoutTheLibraryItSaysSo) {
  const NvidiaDriver driver = FindNvidiaDriver("libno-such-nvml.so.1");
  EXPECT_THAT(driver.missing,
              AllOf(HasSubstr("not installed"),
                    HasSubstr("libno-such-nvml.so.1 is not found")));
  EXPECT_TRUE(driver.gpus.empty());
}

TEST(NvidiaDriverTest, ADriverThatDoesNotAnswerIsTold) {
  setenv("FAKE_NVML_FAILS", "1", /*replace=*/1);
  const NvidiaDriver driver = FindNvidiaDriver(kFake);
  unsetenv("FAKE_NVML_FAILS");
  EXPECT_EQ(driver.missing,
            "NVIDIA's driver does not answer: Driver Not Loaded");
  EXPECT_TRUE(driver.gpus.empty());
}

TEST(WhyNotMoreGpusTest, NoDriverAnOldOneOrHiddenGpus) {
  NvidiaDriver driver;
  driver.missing = "it is not there";
  EXPECT_EQ(WhyNotMoreGpus(driver, 0, nullptr), ": it is not there");
  driver = {};
  driver.version = "550.54";
  driver.cuda = 12040;
  driver.gpus.resize(2);
  EXPECT_EQ(WhyNotMoreGpus(driver, 0, "0,1"),
            ": the driver 550.54 runs CUDA up to 12.4, and this program needs "
            "driver 580 or newer");
  driver.cuda = 13000;
  EXPECT_EQ(WhyNotMoreGpus(driver, 2, "0,1"), "");
  EXPECT_EQ(WhyNotMoreGpus(driver, 1, "0"),
            " of the machine's 2: CUDA_VISIBLE_DEVICES is \"0\"");
  EXPECT_EQ(WhyNotMoreGpus(driver, 1, nullptr),
            " of the machine's 2: the container or the job has no more");
}

TEST(CudaVersionNameTest, MajorAndMinor) {
  EXPECT_EQ(CudaVersionName(12040), "12.4");
  EXPECT_EQ(CudaVersionName(13020), "13.2");
}

}  // namespace
}  // namespace tandem
