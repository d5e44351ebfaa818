#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

#include "core/base/torch_status.h"
#include "gtest/gtest.h"

namespace tandem::out_of_memory_test {
namespace {

void RunOut() { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory"); }

class OutOfMemoryTest : public testing::Test {
 protected:
  ~OutOfMemoryTest() override { SetOutOfMemoryNote(nullptr); }
};

TEST_F(OutOfMemoryTest, TheNoteStandsBehindTheMessage) {
  EXPECT_EQ(NoteOnOutOfMemory(), "");
  EXPECT_EQ(CatchTorch(RunOut, "step 3").message(), "step 3: no memory");
  SetOutOfMemoryNote([] { return std::string("take less"); });
  EXPECT_EQ(NoteOnOutOfMemory(), "take less");
  const absl::Status status = CatchTorch(RunOut, "step 3");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "step 3: no memory; take less");
  SetOutOfMemoryNote([] { return std::string(); });
  EXPECT_EQ(CatchTorch(RunOut).message(), "no memory");
}

TEST_F(OutOfMemoryTest, OtherErrorsHaveNone) {
  SetOutOfMemoryNote([] { return std::string("take less"); });
  EXPECT_EQ(CatchTorch([] { throw std::runtime_error("other"); }).message(),
            "other");
  EXPECT_EQ(CatchTorch([] { TORCH_CHECK(false, "wrong shape"); }).message(),
            "wrong shape");
}

}  // namespace
}  // namespace tandem::out_of_memory_test
