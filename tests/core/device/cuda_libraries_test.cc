// Which of LibTorch's libraries a program has: CUDA's under --config=cuda
// alone.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <filesystem>
#include <string>

namespace tandem {
namespace {

// A library that this program was linked with.
void* Loaded(const char* name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }

#ifdef TANDEM_CUDA

std::filesystem::path FolderOf(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  return std::filesystem::path(map->l_name).parent_path();
}

// LibTorch and cuDNN look for these beside themselves, as they need them.
TEST(CudaLibrariesTest, LibrariesThatAreLoadedLaterLieBeside) {
  void* const cuda = Loaded("libtorch_cuda.so");
  ASSERT_NE(cuda, nullptr) << "it is linked, or it would register nothing";
  for (const char* name :
       {"libtorch_cuda_linalg.so", "libcusolver.so.12", "libcudnn_adv.so.9",
        "libcudnn_cnn.so.9", "libcudnn_engines_precompiled.so.9",
        "libcudnn_engines_runtime_compiled.so.9", "libcudnn_graph.so.9",
        "libcudnn_heuristic.so.9", "libcudnn_ops.so.9", "libnvrtc.so.13"}) {
    const std::string path = FolderOf(cuda) / name;
    EXPECT_NE(dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL), nullptr)
        << dlerror();
  }
  // Needs the driver's libcuda.so.1, which the machine may not have.
  EXPECT_TRUE(std::filesystem::exists(FolderOf(cuda) / "libcaffe2_nvrtc.so"));
}

#else

TEST(CudaLibrariesTest, TheDefaultBuildHasNone) {
  ASSERT_NE(Loaded("libtorch_cpu.so"), nullptr);
  for (const char* name : {"libtorch_cuda.so", "libc10_cuda.so", "libnccl.so.2",
                           "libcublas.so.13", "libcudnn.so.9"}) {
    EXPECT_EQ(Loaded(name), nullptr) << name;
  }
}

#endif

}  // namespace
}  // namespace tandem
