// What PyTorch's own pickles say: pytorch_file_test.

#include "core/pytorch_file/state_dict.h"

#include "absl/strings/str_cat.h"
#include "core/pytorch_file/pickle_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::state_dict_test {
namespace {

using testing::HasSubstr;

// Opcodes, which follow each other.
std::string Text(const std::string& text) {
  return absl::StrCat("X", std::string(1, static_cast<char>(text.size())),
                      std::string(3, '\0'), text);
}
std::string Number(char number) { return std::string("K") + number; }
std::string Tuple(const std::string& items) {
  return absl::StrCat("(", items, "t");
}
std::string Call(const std::string& module, const std::string& name,
                 const std::string& arguments) {
  return absl::StrCat("c", module, "\n", name, "\n", Tuple(arguments), "R");
}
std::string Storage(const std::string& of_class, char elements) {
  return absl::StrCat(
      Tuple(absl::StrCat(Text("storage"), "c", of_class, "\n", Text("0"),
                         Text("cpu"), Number(elements))),
      "Q");
}
std::string Tensor(const std::string& storage,
                   const std::string& sizes = Tuple(Number(2)),
                   const std::string& strides = Tuple(Number(1)),
                   const std::string& offset = Number(0)) {
  return Call("torch._utils", "_rebuild_tensor_v2",
              absl::StrCat(storage, offset, sizes, strides, "\x89}"));
}
std::string TensorOfDtype(const std::string& storage,
                          const std::string& dtype) {
  return Call("torch._utils", "_rebuild_tensor_v3",
              absl::StrCat(storage, Number(0), Tuple(Number(2)),
                           Tuple(Number(1)), "\x89}ctorch\n", dtype, "\n"));
}
std::string Dict(const std::string& items) {
  return absl::StrCat("}(", items, "u");
}

const std::string& Floats() {
  static const auto& storage =
      *new std::string(Storage("torch\nFloatStorage", 2));
  return storage;
}

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
