# The suite as it is, on another backend: tests/outside/README.md says why each of
# these is needed.

# The backend.
s|<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>|"tests/outside/c10d_shim.h"|
s/::c10d::ProcessGroupGloo\b/::tandem::OutsideGroup/g
s/: ProcessGroupGloo\(store/: OutsideGroup(store/

# LibTorch has this macro no more.
s/C10_UNUSED/[[maybe_unused]]/

# Events of the profiler have the backend's name.
s/EXPECT_TRUE\(match\);/(void)match;/

# A send is to wait for its receiver: one that fits into the ring does not.
/^void testSend\(/,/^\}/s/\{16, 16\}/{512, 512}/
/^void testWaitDelay\(/,/^\}/s/\{16, 16\}/{512, 512}/

# The bytes of int32 were sent as Float and received as Int.
s/blob\.size\(\)\)\.to\(b\)/blob.size(), at::kInt).to(b)/

# Of Gloo's store.
/^void testStoreSetGet\(/,/^\}/d
/^TEST\(ProcessGroupGlooTest, testStoreSetGet\)/,/^\}/d
