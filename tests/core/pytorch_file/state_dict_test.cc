#include "core/pytorch_file/state_dict.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "core/pytorch_file/pickle_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/pytorch_file/opcodes.h"

namespace tandem::state_dict_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

std::string ViewError(const StorageView& view) {
  return std::string(CheckView(view).message());
}

TEST(StorageViewTest, ViewsWithinTheStorageAreTaken) {
  const std::pair<StorageView, int64_t> cases[] = {
      {{{}, {}, 4, 5}, 1},              // a scalar, the last element
      {{{5}, {1}, 0, 5}, 5},            // all
      {{{3, 4}, {4, 1}, 0, 12}, 12},    // row-major
      {{{4, 3}, {1, 4}, 0, 12}, 12},    // transposed
      {{{2, 2}, {8, 2}, 1, 12}, 11},    // steps
      {{{1, 7}, {kHuge, 1}, 0, 7}, 7},  // a stride that nothing takes
      {{{2, 3}, {0, 1}, 0, 6}, 3},      // the same row twice
  };
  for (const auto& [view, span] : cases) {
    EXPECT_EQ(ViewError(view), "");
    EXPECT_FALSE(IsEmpty(view));
    EXPECT_EQ(SpanOf(view), span);
  }
}

TEST(StorageViewTest, ViewsThatLeaveTheStorageAreRefused) {
  const StorageView cases[] = {
      {{}, {}, 5, 5},
      {{}, {}, 0, 0},
      {{6}, {1}, 0, 5},
      {{5}, {1}, 1, 5},
      {{2, 2}, {8, 2}, 2, 12},
      {{2}, {1}, kHuge, 5},
      {{2}, {kHuge}, 0, 5},
      {{kHuge}, {kHuge}, 0, kHuge},
      {{kHuge, kHuge}, {1, 1}, 0, 5},
  };
  for (const StorageView& view : cases) {
    EXPECT_THAT(ViewError(view), HasSubstr("leaves its storage"));
  }
  EXPECT_THAT(ViewError({{2, 3}, {4, 1}, 7, 12}),
              HasSubstr("sizes [2, 3], strides [4, 1], offset 7 in a storage "
                        "of 12 elements"));
}

// Memory would be taken for them that no file has.
TEST(StorageViewTest, ExpandedViewsAreRefused) {
  EXPECT_THAT(ViewError({{1000}, {0}, 0, 1}), HasSubstr("save it contiguous"));
  EXPECT_THAT(ViewError({{kHuge, kHuge}, {0, 0}, 0, kHuge}),
              HasSubstr("save it contiguous"));
}

TEST(StorageViewTest, EmptyViewsNeedNoStorage) {
  const StorageView view = {{0, 4}, {4, 1}, 9, 0};
  EXPECT_EQ(ViewError(view), "");
  EXPECT_TRUE(IsEmpty(view));
  EXPECT_THAT(ViewError({{0, kHuge, kHuge}, {1, 1, 1}, 0, 0}),
              HasSubstr("beyond 2^31"));
}

TEST(StorageViewTest, EachSizeHasAStride) {
  EXPECT_THAT(ViewError({{2, 3}, {1}, 0, 6}), HasSubstr("as many strides"));
}

// What PyTorch's own pickles say: pytorch_file_test.

using opcodes::Call;
using opcodes::Dict;
using opcodes::Floats;
using opcodes::kTrue;
using opcodes::Number;
using opcodes::Storage;
using opcodes::Tensor;
using opcodes::TensorOfDtype;
using opcodes::Text;
using opcodes::Tuple;
using testing::HasSubstr;

absl::StatusOr<std::vector<PickledTensor>> TensorsOf(
    const std::string& opcodes) {
  const auto tree =
      ParsePickle(absl::StrCat("\x80\x02", opcodes, "."), IsKnownGlobal);
  if (!tree.ok()) return tree.status();
  return TensorsOfStateDict(*tree);
}

std::string ErrorOf(const std::string& opcodes) {
  return std::string(TensorsOf(opcodes).status().message());
}

std::string ErrorOfTensor(const std::string& tensor) {
  return ErrorOf(Dict(Text("w") + tensor));
}

// It would be copied for each tensor that lies in it.
TEST(StateDictTest, AStoragesNameIsShort) {
  const std::string name =
      absl::StrCat("X", std::string("\x01\x01\0\0", 4), std::string(257, '0'));
  const std::string storage =
      absl::StrCat(Tuple(absl::StrCat(Text("storage"), "ctorch\nFloatStorage\n",
                                      name, Text("cpu"), Number(2))),
                   "Q");
  EXPECT_THAT(ErrorOfTensor(Tensor(storage)), HasSubstr("has no storage"));
}

TEST(StateDictTest, TensorsAreViewsOfStorages) {
  const auto tensors = TensorsOf(Dict(Text("w") + Tensor(Floats())));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 1u);
  EXPECT_EQ(Describe(tensors->front().info), "Float [2]");
  EXPECT_EQ(tensors->front().info.name, "w");
  EXPECT_EQ(tensors->front().storage, "0");
  EXPECT_EQ(tensors->front().view.storage_size, 2);
}

TEST(StateDictTest, AnEmptyDictHasNone) {
  EXPECT_TRUE(TensorsOf("}")->empty());
}

TEST(StateDictTest, OfUntypedStoragesBytesAreCounted) {
  const std::string bytes = Storage("torch.storage\nUntypedStorage", 5);
  const auto tensors =
      TensorsOf(Dict(Text("w") + TensorOfDtype(bytes, "uint16")));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->front().view.storage_size, 2);
  EXPECT_THAT(ErrorOfTensor(TensorOfDtype(bytes, "uint32")),
              HasSubstr("w leaves its storage"));
  EXPECT_THAT(ErrorOfTensor(TensorOfDtype(Floats(), "uint16")),
              HasSubstr("another dtype"));
  EXPECT_THAT(ErrorOfTensor(TensorOfDtype(bytes, "Size")),
              HasSubstr("unknown dtype"));
  EXPECT_THAT(ErrorOfTensor(Tensor(bytes)), HasSubstr("unknown dtype"));
}

TEST(StateDictTest, WhatIsNoStateDictIsRefused) {
  EXPECT_THAT(ErrorOf("N"), HasSubstr("holds no dict"));
  EXPECT_THAT(ErrorOf(Tensor(Floats())), HasSubstr("holds no dict"));
  EXPECT_THAT(ErrorOf(Dict(Number(1) + Tensor(Floats()))),
              HasSubstr("no text"));
  EXPECT_THAT(ErrorOfTensor("N"), HasSubstr("w is no tensor"));
  EXPECT_THAT(ErrorOf(Dict(Text("w\xff") + Tensor(Floats()))),
              HasSubstr("w\\xff, a key of its dict, is no UTF-8"));
  const std::string w = Text("w") + Tensor(Floats());
  EXPECT_THAT(ErrorOf(Dict(w + w)), HasSubstr("w comes twice"));
}

TEST(StateDictTest, OfNestedDictsTheKeysAreNamed) {
  const std::string inner = Dict(Text("w") + Tensor(Floats()));
  EXPECT_THAT(ErrorOf(Dict(Text("epoch") + Number(1) + Text("model") + inner +
                           Text("ema") + inner)),
              HasSubstr("tensors under \"model\", \"ema\": save that part "
                        "alone, torch.save(torch.load(FILE)[\"model\"]"));
}

TEST(StateDictTest, TensorsOfOtherArgumentsAreRefused) {
  EXPECT_THAT(ErrorOfTensor(Call("torch._utils", "_rebuild_tensor_v2", "")),
              HasSubstr("other arguments"));
  EXPECT_THAT(ErrorOfTensor(Call("torch._utils", "_rebuild_parameter", "")),
              HasSubstr("no arguments"));
  EXPECT_THAT(ErrorOfTensor(Call("torch._utils", "_rebuild_parameter", "N")),
              HasSubstr("other arguments"));
  EXPECT_THAT(ErrorOfTensor(Tensor("N")), HasSubstr("no storage"));
  EXPECT_THAT(ErrorOfTensor(Tensor("()tQ")), HasSubstr("no storage"));
  EXPECT_THAT(ErrorOfTensor(Tensor(Storage("torch\nSize", 2))),
              HasSubstr("unknown dtype"));
  EXPECT_THAT(ErrorOfTensor(Tensor(Floats(), "N")), HasSubstr("that are none"));
  EXPECT_THAT(ErrorOfTensor(Tensor(Floats(), Tuple("N"))),
              HasSubstr("no number of 0 or more"));
  // Minus one.
  EXPECT_THAT(ErrorOfTensor(Tensor(Floats(), Tuple("\x8a\x01\xff"))),
              HasSubstr("no number of 0 or more"));
  EXPECT_THAT(ErrorOfTensor(Tensor(Floats(), Tuple(std::string(65, 'N')))),
              HasSubstr("that are none"));
}

TEST(StateDictTest, ViewsAreWithinTheirStorage) {
  EXPECT_THAT(ErrorOfTensor(Tensor(Floats(), Tuple(Number(3)))),
              HasSubstr("w leaves its storage"));
  EXPECT_THAT(ErrorOfTensor(Tensor(Floats(), Tuple(Number(2)), Tuple(Number(1)),
                                   Number(1))),
              HasSubstr("w leaves its storage"));
}

TEST(StateDictTest, ConjugatesAndNegativesAreTold) {
  const auto flagged = [](const std::string& storage,
                          const std::string& metadata) {
    return TensorsOf(
        Dict(Text("w") + Tensor(storage, Tuple(Number(2)), Tuple(Number(1)),
                                Number(0), metadata)));
  };
  const std::string complex = Storage("torch\nComplexFloatStorage", 2);
  const std::string conj = Text("conj") + kTrue;
  const std::string neg = Text("neg") + kTrue;
  const auto both = flagged(complex, Dict(conj + neg));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_TRUE(both->front().is_conjugate);
  EXPECT_TRUE(both->front().is_negative);
  const auto negative = flagged(Floats(), Dict(neg));
  ASSERT_TRUE(negative.ok()) << negative.status();
  EXPECT_FALSE(negative->front().is_conjugate);
  EXPECT_TRUE(negative->front().is_negative);
  for (const std::string none : {"", "N", "}"}) {
    const auto plain = flagged(Floats(), none);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_FALSE(plain->front().is_negative);
  }
  EXPECT_THAT(std::string(flagged(Floats(), Dict(conj)).status().message()),
              HasSubstr("cannot be"));
  EXPECT_THAT(
      std::string(
          flagged(Floats(), Dict(Text("odd") + kTrue)).status().message()),
      HasSubstr("has metadata \"odd\""));
  EXPECT_THAT(std::string(flagged(Floats(), Number(1)).status().message()),
              HasSubstr("metadata that is no dict"));
  EXPECT_THAT(std::string(flagged(Floats(), "}N").status().message()),
              HasSubstr("other arguments"));
}

TEST(IsKnownGlobalTest, OnlyWhatMakesTensorsIsKnown) {
  for (const char* known :
       {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter", "torch.HalfStorage", "torch.Size",
        "torch.float8_e5m2"}) {
    EXPECT_TRUE(IsKnownGlobal(known)) << known;
  }
  for (const char* unknown :
       {"os.system", "builtins.eval", "torch.load", "torch.hub.load",
        "torch._utils._rebuild_sparse_tensor", "", "OrderedDict",
        "collections.OrderedDict.fromkeys"}) {
    EXPECT_FALSE(IsKnownGlobal(unknown)) << unknown;
  }
}

}  // namespace
}  // namespace tandem::state_dict_test
