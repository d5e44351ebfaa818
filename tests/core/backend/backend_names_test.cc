// Names of backends, as PyTorch's init_process_group has them.

#include "core/backend/backend_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::backend_names_test {
namespace {

using ::testing::HasSubstr;

TEST(ParseBackend, OneNameServesTheHostOrADeviceBesideShm) {
  for (const char* host : {"shm", "gloo"}) {
    const auto names = ParseBackend(host);
    ASSERT_TRUE(names.ok()) << names.status();
    EXPECT_EQ(names->host, host);
    EXPECT_EQ(names->device, "");
  }
  const auto sim = ParseBackend("sim_nccl");
  ASSERT_TRUE(sim.ok()) << sim.status();
  EXPECT_EQ(sim->host, "shm");
  EXPECT_EQ(sim->device, "sim_nccl");
  EXPECT_EQ(sim->device_type, c10::DeviceType::PrivateUse1);
  const auto nccl = ParseBackend("nccl");
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ(nccl->device, "nccl");
  EXPECT_EQ(nccl->device_type, c10::DeviceType::CUDA);
}

TEST(ParseBackend, TwoByTheirDevicesInAnyOrder) {
  for (const char* text : {"cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo"}) {
    const auto names = ParseBackend(text);
    ASSERT_TRUE(names.ok()) << names.status();
    EXPECT_EQ(names->host, "gloo");
    EXPECT_EQ(names->device, "nccl");
  }
}

TEST(ParseBackend, RefusesOthersAndListsWhatThereIs) {
  for (const char* text :
       {"", "mpi", "cpu:nccl", "cuda:gloo", "cpu:", ":shm", "shm,", "SHM"}) {
    const auto names = ParseBackend(text);
    ASSERT_FALSE(names.ok()) << text;
    EXPECT_THAT(std::string(names.status().message()),
                HasSubstr("known are: shm, gloo, sim_nccl, nccl"));
  }
}

TEST(BackendMultiplies, GlooAloneDoesNot) {
  for (const double factor : {0.5, 1.0 / 3}) {
    EXPECT_TRUE(BackendMultiplies("shm", at::kFloat, factor));
    EXPECT_TRUE(BackendMultiplies("nccl", at::kFloat, factor));
    EXPECT_TRUE(BackendMultiplies("sim_nccl", at::kDouble, factor));
    EXPECT_FALSE(BackendMultiplies("gloo", at::kFloat, factor));
    EXPECT_FALSE(BackendMultiplies("", at::kFloat, factor));
  }
}

TEST(BackendMultiplies, NcclOnlyByWhatTheDtypeHolds) {
  for (const char* name : {"nccl", "sim_nccl"}) {
    EXPECT_TRUE(BackendMultiplies(name, at::kBFloat16, 0.25)) << name;
    EXPECT_FALSE(BackendMultiplies(name, at::kBFloat16, 1.0 / 3)) << name;
    EXPECT_TRUE(BackendMultiplies(name, at::kHalf, 0.25)) << name;
    EXPECT_FALSE(BackendMultiplies(name, at::kHalf, 1.0 / 3)) << name;
    EXPECT_FALSE(BackendMultiplies(name, at::kHalf, 65536)) << name;
  }
  EXPECT_TRUE(BackendMultiplies("shm", at::kBFloat16, 1.0 / 3));
}

}  // namespace
}  // namespace tandem::backend_names_test
