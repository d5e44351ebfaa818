// Files that Python's torch.save wrote: data/make_pytorch_files.py.

#include "core/pytorch_file/pytorch_file.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <caffe2/serialize/inline_container.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/base/dtype_names.h"
#include "core/checkpoint/stored_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/pytorch_file/opcodes.h"
#include "tests/core/testing/test_files.h"

namespace tandem::pytorch_file_test {
namespace {

using opcodes::Dict;
using opcodes::kTrue;
using opcodes::Number;
using opcodes::Storage;
using opcodes::Tensor;
using opcodes::Text;
using opcodes::Tuple;
using testing::HasSubstr;
using Tensors = std::map<std::string, at::Tensor>;

std::string File(const std::string& name) {
  return "tests/core/pytorch_file/data/" + name;
}

std::string ErrorOf(const std::string& path) {
  return std::string(OpenPyTorchFile(path).status().message());
}

Tensors Read(const std::string& name) {
  const auto stored = OpenPyTorchFile(File(name));
  EXPECT_TRUE(stored.ok()) << stored.status();
  Tensors tensors;
  for (const StoredTensor& each : *stored) {
    const auto values = each.read();
    EXPECT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->scalar_type(), each.info.dtype) << each.info.name;
    EXPECT_EQ(values->sizes(), at::IntArrayRef(each.info.sizes));
    EXPECT_TRUE(values->is_contiguous());
    EXPECT_TRUE(tensors.emplace(each.info.name, *values).second);
  }
  return tensors;
}

// Records and their bytes, as torch.save would put them into a file.
std::string Written(const std::map<std::string, std::string>& records,
                    bool compressed = false) {
  const std::string path = testing::TempDir() + "/written.pt";
  caffe2::serialize::PyTorchStreamWriter writer(path);
  for (const auto& [name, bytes] : records) {
    writer.writeRecord(name, bytes.data(), bytes.size(), compressed);
  }
  writer.writeEndOfFile();
  return path;
}

std::string ErrorOfPickle(const std::string& opcodes) {
  return ErrorOf(Written({{"data.pkl", "\x80\x02" + opcodes}}));
}

TEST(PyTorchFileTest, EveryDtypeHasItsValues) {
  const Tensors tensors = Read("dtypes.pt");
  EXPECT_EQ(tensors.size(), 16u);
  for (const auto& [name, values] : tensors) {
    EXPECT_FALSE(DtypeName(values.scalar_type()).empty()) << name;
    EXPECT_TRUE(at::equal(values.to(at::kDouble), at::arange(2, at::kDouble)))
        << name;
  }
  EXPECT_EQ(tensors.at("bfloat16").scalar_type(), at::kBFloat16);
  EXPECT_EQ(tensors.at("uint16").scalar_type(), at::kUInt16);
  EXPECT_EQ(tensors.at("float8_e5m2").scalar_type(), at::kFloat8_e5m2);
}

TEST(PyTorchFileTest, ViewsAreReadAsTheyAre) {
  const Tensors tensors = Read("views.pt");
  const at::Tensor whole = at::arange(12, at::kFloat).reshape({3, 4});
  const std::map<std::string, at::Tensor> expected = {
      {"whole", whole},
      {"tied", whole},
      {"transposed", whole.t()},
      {"row", whole.select(0, 1)},
      {"column", whole.select(1, 2)},
      {"steps", whole.slice(0, 0, 3, 2).slice(1, 1, 4, 2)},
      {"scalar", at::full({}, 3.5)},
      {"empty", at::zeros({0, 4})},
      {"none_of_it", at::zeros({0, 4})},
      {"parameter", at::ones({2})},
      {"frozen", at::ones({1})}};
  ASSERT_EQ(tensors.size(), expected.size());
  for (const auto& [name, values] : expected) {
    EXPECT_TRUE(at::equal(tensors.at(name), values)) << name;
  }
}

TEST(PyTorchFileTest, AModulesStateDictIsRead) {
  const Tensors tensors = Read("module.pt");
  EXPECT_EQ(tensors.size(), 5u);
  EXPECT_EQ(tensors.at("num_batches_tracked").scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(tensors.at("running_var"), at::ones({2})));
}

TEST(PyTorchFileTest, OtherKindsAreRefusedWithWhatToDo) {
  const std::pair<const char*, const char*> cases[] = {
      {"legacy.pt", "before PyTorch 1.6"},
      {"script.pt", "TorchScript archive"},
      {"protocol_4.pt", "protocol 4, expected 2"},
      {"nested.pt", "tensors under \"model\": save that part alone"},
      {"not_a_tensor.pt", "epoch is no tensor"},
      {"expanded.pt", "wide has more elements than its storage"},
      {"sparse.pt", "torch._utils._rebuild_sparse_tensor"}};
  for (const auto& [name, why] : cases) {
    EXPECT_THAT(ErrorOf(File(name)), HasSubstr(why)) << name;
    EXPECT_THAT(ErrorOf(File(name)), HasSubstr(File(name)));
  }
}

// Python's torch.load(weights_only=False) makes a file was_executed of it.
TEST(PyTorchFileTest, ACommandIsNamedAndNotExecuted) {
  EXPECT_THAT(ErrorOf(File("command.pt")),
              HasSubstr("asks for posix.system, which no state_dict of tensors "
                        "needs; nothing was called"));
  EXPECT_THAT(ErrorOfPickle("cbuiltins\neval\n."), HasSubstr("builtins.eval"));
  EXPECT_FALSE(std::filesystem::exists("was_executed"));
}

TEST(PyTorchFileTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(ErrorOf(Written({{"other", "x"}})), HasSubstr("no data.pkl"));
  EXPECT_THAT(ErrorOfPickle("N."), HasSubstr("holds no dict"));
  EXPECT_THAT(ErrorOfPickle("N"), HasSubstr("data.pkl: byte 3: it ends"));
  EXPECT_THAT(ErrorOf(Written({{"data.pkl", "x"}, {"byteorder", "big"}})),
              HasSubstr("not little-endian"));
  EXPECT_THAT(ErrorOf(Written({{"data.pkl", std::string(1000, 'N')}}, true)),
              HasSubstr("data.pkl is compressed"));
  EXPECT_THAT(
      ErrorOf(Written({{"data.pkl", std::string(kMaxPickleBytes + 1, 'N')}})),
      HasSubstr("at most 16777216 are read"));
}

// The pickle says 12 elements of data/0.
TEST(PyTorchFileTest, StoragesAreAsLongAsThePickleSays) {
  caffe2::serialize::PyTorchStreamReader reader(File("views.pt"));
  const auto [bytes, size] = reader.getRecord("data.pkl");
  const std::string pickle(static_cast<const char*>(bytes.get()), size);
  EXPECT_THAT(ErrorOf(Written({{"data.pkl", pickle}})),
              HasSubstr("storage data/0 of whole has 0 bytes, expected 12 "
                        "elements of 4"));
  EXPECT_THAT(ErrorOf(Written(
                  {{"data.pkl", pickle}, {"data/0", std::string(47, 'x')}})),
              HasSubstr("has 47 bytes"));
}

TEST(IsPyTorchFileTest, FilesAreToldByTheirFirstBytes) {
  EXPECT_TRUE(*IsPyTorchFile(File("module.pt")));
  EXPECT_TRUE(*IsPyTorchFile(File("legacy.pt")));
  EXPECT_FALSE(*IsPyTorchFile(File("make_pytorch_files.py")));
  const std::string path = testing::TempDir() + "/short";
  for (const std::string bytes : {"", "PK", "PK\3\4", "PK\3\4\0\0\0\0"}) {
    std::ofstream(path) << bytes;
    EXPECT_FALSE(*IsPyTorchFile(path));
  }
  // A safetensors file with a header of 0x04034b50 bytes.
  std::ofstream(path) << std::string("PK\3\4\0\0\0\0{\"a\"", 12);
  EXPECT_FALSE(*IsPyTorchFile(path));
  EXPECT_FALSE(IsPyTorchFile("nowhere.pt").ok());
}

// A state_dict of one tensor "w" of two numbers, whose storage is data/0.
std::string PickleOf(const std::string& of_class,
                     const std::string& metadata = "") {
  return absl::StrCat(
      "\x80\x02",
      Dict(Text("w") + Tensor(Storage(of_class, 2), Tuple(Number(2)),
                              Tuple(Number(1)), Number(0), metadata)),
      ".");
}

std::string BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

at::Tensor ReadOne(const std::string& path) {
  const auto stored = OpenPyTorchFile(path);
  EXPECT_TRUE(stored.ok()) << stored.status();
  const auto values = stored->begin()->read();
  EXPECT_TRUE(values.ok()) << values.status();
  return *values;
}

// torch.load forms them in the same way.
TEST(PyTorchFileTest, ConjugatesAndNegativesAreFormed) {
  const at::Tensor reals = at::arange(1, 3, at::kFloat);
  const at::Tensor complexes = at::complex(reals, reals.add(4));
  const auto flag = [](const char* name) { return Dict(Text(name) + kTrue); };
  EXPECT_TRUE(at::equal(
      ReadOne(
          Written({{"data.pkl", PickleOf("torch\nFloatStorage", flag("neg"))},
                   {"data/0", BytesOf(reals)}})),
      reals.neg()));
  const at::Tensor read = ReadOne(Written(
      {{"data.pkl", PickleOf("torch\nComplexFloatStorage", flag("conj"))},
       {"data/0", BytesOf(complexes)}}));
  EXPECT_FALSE(read.is_conj());
  EXPECT_TRUE(at::equal(at::view_as_real(read),
                        at::view_as_real(complexes.conj().resolve_conj())));
}

// In C++ such a bool means nothing.
TEST(PyTorchFileTest, BoolsAreOneOrZero) {
  const at::Tensor read =
      ReadOne(Written({{"data.pkl", PickleOf("torch\nBoolStorage")},
                       {"data/0", std::string("\2\0", 2)}}));
  EXPECT_EQ(BytesOf(read), std::string("\1\0", 2));
}

// With the bytes of data/0, of two floats, changed in the file.
std::string WithAnotherByte(const std::string& path) {
  std::string bytes = ReadBytes(path);
  const size_t at = bytes.find("VALUES!!");
  EXPECT_NE(at, std::string::npos);
  bytes[at] = 'W';
  WriteBytes(path, bytes);
  return path;
}

TEST(PyTorchFileTest, AChangedByteIsToldByItsChecksum) {
  const auto stored = OpenPyTorchFile(
      WithAnotherByte(Written({{"data.pkl", PickleOf("torch\nFloatStorage")},
                               {"data/0", "VALUES!!"}})));
  ASSERT_TRUE(stored.ok()) << stored.status();
  for (const absl::Status& status :
       {Verify(*stored->begin()), stored->begin()->read().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("is damaged: data/0 has the checksum"));
  }
}

// A view's storage is read whole for it: the change lies beside the view.
TEST(PyTorchFileTest, AChangedByteOfItsStorageIsToldOfAView) {
  const std::string pickle = absl::StrCat(
      "\x80\x02",
      Dict(Text("w") + Tensor(Storage("torch\nFloatStorage", 2),
                              Tuple(Number(1)), Tuple(Number(1)), Number(1))),
      ".");
  const auto stored = OpenPyTorchFile(
      WithAnotherByte(Written({{"data.pkl", pickle}, {"data/0", "VALUES!!"}})));
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->begin()->read().status().code(),
            absl::StatusCode::kDataLoss);
}

// torch.serialization.set_crc32_options(False).
TEST(PyTorchFileTest, FilesWithoutChecksumsAreRead) {
  const std::string path = testing::TempDir() + "/unchecked.pt";
  {
    caffe2::serialize::PyTorchStreamWriter writer(path,
                                                  /*compute_crc32=*/false);
    const std::string pickle = PickleOf("torch\nFloatStorage");
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    writer.writeRecord("data/0", "VALUES!!", 8);
    writer.writeEndOfFile();
  }
  EXPECT_EQ(BytesOf(ReadOne(path)), "VALUES!!");
  EXPECT_EQ(BytesOf(ReadOne(WithAnotherByte(path))), "WALUES!!");
}

// Whatever byte is another one: refused, or other values.
TEST(PyTorchFileTest, EveryChangedByteIsHarmless) {
  const std::string bytes = ReadBytes(File("module.pt"));
  const std::string path = testing::TempDir() + "/changed.pt";
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(~changed[i]);
    WriteBytes(path, changed);
    const auto stored = OpenPyTorchFile(path);
    refused += stored.ok() ? 0 : 1;
    if (!stored.ok()) continue;
    for (const StoredTensor& each : *stored) (void)each.read().ok();
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tandem::pytorch_file_test
