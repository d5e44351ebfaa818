// Arrays that numpy has saved, and data sets of them.

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "datasets/input_pixels.h"
#include "datasets/npy_dataset.h"
#include "datasets/npy_file.h"
#include "datasets/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/files.h"

namespace tandem::npy_test {
namespace {

using ::testing::ElementsAre;

// What make_arrays.py has saved.
struct Saved {
  std::string file;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

const std::map<std::string, Saved>& SavedArrays() {
  static const auto* const arrays = [] {
    auto* const read = new std::map<std::string, Saved>;
    std::ifstream file("tests/datasets/arrays.json");
    for (const auto& each : nlohmann::json::parse(file)) {
      Saved saved;
      EXPECT_TRUE(absl::Base64Unescape(std::string(each["file"]), &saved.file));
      saved.shape = each["shape"].get<std::vector<int64_t>>();
      saved.values = each["values"].get<std::vector<double>>();
      (*read)[each["name"]] = saved;
    }
    return read;
  }();
  return *arrays;
}

absl::StatusOr<NpyFile> OpenBytes(const std::string& bytes) {
  return NpyFile::Open(WriteTestFile("array.npy", bytes));
}

absl::Status Refusal(const std::string& name) {
  return OpenBytes(SavedArrays().at(name).file).status();
}

TEST(NpyFileTest, ReadsWhatNumpySaves) {
  for (const std::string name :
       {"u1", "i4", "i8", "f2", "f4", "f8", "version_1", "version_2",
        "version_3", "scalar", "row", "nothing"}) {
    const Saved& saved = SavedArrays().at(name);
    const auto file = OpenBytes(saved.file);
    ASSERT_TRUE(file.ok()) << name << ": " << file.status();
    EXPECT_EQ(file->shape(), saved.shape) << name;
    ASSERT_EQ(file->numel(), static_cast<int64_t>(saved.values.size()));
    std::vector<float> values(saved.values.size());
    ExpectOk(file->Read(0, file->numel(), values.data()));
    EXPECT_EQ(std::vector<double>(values.begin(), values.end()), saved.values)
        << name;
  }
}

TEST(NpyFileTest, ReadsAnyPart) {
  const auto file = OpenBytes(SavedArrays().at("i8").file);
  std::vector<int64_t> values(3);
  ExpectOk(file->Read(4, 3, values.data()));
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
  ExpectOk(file->Read(12, 0, values.data()));
}

TEST(NpyFileTest, ReadsMoreThanItDoesAtOnce) {
  constexpr int64_t kNumbers = (1 << 16) + 3;
  std::string header = absl::StrCat(
      "{'descr': '<i4', 'fortran_order': False, 'shape': (", kNumbers, ",), }");
  header.resize(118, ' ');
  std::string bytes = "\x93NUMPY\x01";
  bytes += std::string("\0\x76\0", 3) + header;
  for (int32_t i = 0; i < kNumbers; ++i) {
    bytes.append(reinterpret_cast<const char*>(&i), sizeof(i));
  }
  const auto file = OpenBytes(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<int64_t> values(kNumbers);
  ExpectOk(file->Read(0, kNumbers, values.data()));
  for (int64_t i = 0; i < kNumbers; ++i) ASSERT_EQ(values[i], i);
}

TEST(NpyFileTest, NamesWhatItDoesNotRead) {
  EXPECT_THAT(
      Refusal("fortran"),
      InvalidArgument("array.npy", "Fortran's order", "ascontiguousarray"));
  EXPECT_THAT(Refusal("big_endian"),
              InvalidArgument("big-endian (>f4)", "astype('<f4')"));
  EXPECT_THAT(Refusal("objects"), InvalidArgument("pickled Python objects"));
  EXPECT_THAT(Refusal("fields"), InvalidArgument("several fields"));
  EXPECT_THAT(Refusal("complex"), InvalidArgument("dtype <c8", "u1, i4, i8"));
  EXPECT_THAT(Refusal("booleans"), InvalidArgument("dtype |b1"));
  EXPECT_THAT(Refusal("texts"), InvalidArgument("dtype <U1"));
}

TEST(NpyFileTest, RefusesFilesOfAnotherSizeThanTheirHeaderSays) {
  const std::string& whole = SavedArrays().at("f4").file;
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(OpenBytes(whole.substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
  EXPECT_THAT(OpenBytes(whole + "x").status(),
              StatusIs(absl::StatusCode::kDataLoss, "49 bytes",
                       "[2, 3, 2] of 4 bytes each"));
  EXPECT_THAT(OpenBytes("no array at all").status(),
              StatusIs(absl::StatusCode::kDataLoss, "no NPY file"));
  std::string version = whole;
  version[6] = 4;
  EXPECT_THAT(OpenBytes(version).status(), Says("version 4"));
}

TEST(NpyHeaderTest, TakesPythonsDictionaryInAnyOrder) {
  const auto header = ReadNpyHeader(
      "{ \"shape\" : ( 3,4 ) , 'fortran_order':False, 'descr':'|u1'}  \n");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->shape, ElementsAre(3, 4));
  EXPECT_EQ(header->dtype, at::kByte);
}

TEST(NpyHeaderTest, RefusesOtherTexts) {
  const std::string descr = "'descr': '<f4', ";
  const std::string order = "'fortran_order': False, ";
  const std::string shape = "'shape': (2,), ";
  for (const std::string& text :
       {std::string(), std::string("{}"), "{" + descr + order + "}",
        "{" + descr + shape + "}", "{" + order + shape + "}",
        "{" + descr + descr + order + shape + "}",
        "{" + descr + order + shape + "'more': 1}",
        "{" + descr + order + shape + "} x",
        "{" + descr + order + "'shape': (-2,)}",
        "{" + descr + order + "'shape': (2",
        "{" + descr + order + "'shape': 2}",
        "{" + descr + order + "'shape': (99999999999999999999,)}",
        "{" + descr + order + "'shape': (4294967296, 4294967296)}",
        "{" + descr + order + "'shape': (0, 4294967296, 4294967296)}",
        "{" + descr + "'fortran_order': 0, " + shape + "}",
        "{'descr': <f4, " + order + shape + "}"}) {
    EXPECT_THAT(ReadNpyHeader(text).status(),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"))
        << text;
  }
}

std::string Npy(const std::string& descr, const std::string& shape,
                const std::string& values) {
  std::string header =
      absl::StrCat("{'descr': '", descr,
                   "', 'fortran_order': False, 'shape': (", shape, "), }");
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + "\n" + values;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

// Three samples of two values each to train on, one to test on.
class NpyDatasetTest : public testing::Test {
 protected:
  NpyDatasetTest() {
    Write("train_x", Npy("<f8", "3, 2", Bytes<double>({0, 1, 2, 3, 4, 5.5})));
    Write("train_y", Npy("|u1", "3,", std::string("\1\0\2", 3)));
    Write("test_x", Npy("<f4", "1, 2", Bytes<float>({7, 8})));
    Write("test_y", Npy("<i8", "1,", Bytes<int64_t>({4})));
  }

  static void Write(const std::string& name, const std::string& bytes) {
    WriteTestFile(name + ".npy", bytes);
  }

  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      Split split = Split::kTrain, int64_t vocabulary = 0) {
    return OpenNpyDataset({testing::TempDir(), split, vocabulary});
  }
};

TEST_F(NpyDatasetTest, HasRowsAndTheirClasses) {
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 3);
  EXPECT_FALSE((*train)->tokens());
  EXPECT_THAT((*train)->input_shape(), ElementsAre(2));
  EXPECT_EQ((*train)->classes(), 5);  // of both sets
  const auto batch = (*train)->Get({2, 0});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(at::equal(batch->inputs,
                        at::tensor({4.0f, 5.5f, 0.0f, 1.0f}).view({2, 2})));
  EXPECT_TRUE(at::equal(batch->targets, at::tensor({2, 1}, at::kLong)));
  EXPECT_FALSE((*train)
                   ->Get({0}, {/*inputs=*/false, /*targets=*/true})
                   ->inputs.defined());
  EXPECT_EQ((*train)->Get({3}).status().code(), absl::StatusCode::kOutOfRange);
  const auto test = Open(Split::kTest);
  EXPECT_EQ((*test)->classes(), 5);
  EXPECT_EQ((*(*test)->Get({0})).targets.item<int64_t>(), 4);
  EXPECT_NE((*test)->digest(), (*train)->digest());
}

TEST_F(NpyDatasetTest, WholeNumbersAreTokens) {
  Write("train_x", Npy("<i4", "2, 3", Bytes<int32_t>({0, 1, 2, 3, 4, 9})));
  Write("train_y", Npy("<i8", "2, 3", Bytes<int64_t>({1, 2, 3, 4, 9, 0})));
  Write("test_x", Npy("<i8", "0, 3", ""));
  Write("test_y", Npy("<i4", "0, 3", ""));
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_TRUE((*train)->tokens());
  EXPECT_EQ((*train)->classes(), 10);
  const auto batch = (*train)->Get({1});
  EXPECT_TRUE(
      at::equal(batch->inputs, at::tensor({3, 4, 9}, at::kLong).view({1, 3})));
  EXPECT_EQ((*Open(Split::kTest))->size(), 0);
  EXPECT_EQ((*Open(Split::kTrain, 64))->classes(), 64);
  const auto small = Open(Split::kTrain, 9);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_THAT((*small)->Get({1}).status(),
              StatusIs(absl::StatusCode::kDataLoss, "train_x.npy: row 1 has 9",
                       "vocabulary"));
  // A class for a whole text.
  Write("train_y", Npy("<i8", "2,", Bytes<int64_t>({1, 2})));
  Write("test_y", Npy("<i4", "0,", ""));
  EXPECT_EQ((*(*Open())->Get({1})).targets.sizes(), at::IntArrayRef({1}));
}

TEST_F(NpyDatasetTest, BytesKeepTheirValues) {
  Write("train_x", Npy("|u1", "3, 2", "\1\2\3\4\5\xff"));
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_FALSE((*train)->tokens());
  EXPECT_EQ((*(*train)->Get({2})).inputs[0][1].item<float>(), 255);
}

TEST_F(NpyDatasetTest, BytesArePixels) {
  EXPECT_TRUE((*Open())->pixels().empty());  // of other numbers nobody knows
  Write("train_x", Npy("|u1", "3, 1, 2", "\1\2\3\4\5\xff"));
  Write("test_x", Npy("|u1", "1, 1, 2", "\7\x80"));
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  const auto image =
      InputPixels((*train)->Get({2})->inputs[0], (*train)->pixels());
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_TRUE(
      at::equal(*image, at::tensor({5, 255}, at::kByte).view({1, 1, 2})));
}

TEST_F(NpyDatasetTest, RefusesArraysThatDoNotFitEachOther) {
  Write("train_y", Npy("|u1", "2,", std::string("\1\0", 2)));
  EXPECT_THAT(Open().status(),
              InvalidArgument("train_x.npy is F64 [3, 2]",
                              "train_y.npy is U8 [2]", "as many rows"));
  Write("train_y", Npy("|u1", "3, 1", "\1\1\1"));
  EXPECT_THAT(Open().status(), InvalidArgument("[3, 1]", "reshape(-1)"));
  Write("train_y", Npy("<f4", "3,", Bytes<float>({1, 0, 2})));
  EXPECT_THAT(Open().status(), InvalidArgument("F32 [3]", "astype('int64')"));
  Write("train_y", Npy("<i4", "3,", Bytes<int32_t>({1, -1, 2})));
  EXPECT_THAT(Open().status(), InvalidArgument("train_y.npy: element 1 is -1"));
  Write("train_y", Npy("<i8", "3,", Bytes<int64_t>({1, 1 << 24, 2})));
  EXPECT_THAT(Open().status(), InvalidArgument("numbers up to 16777216"));
  Write("train_y", Npy("<i8", "", Bytes<int64_t>({1})));
  EXPECT_THAT(Open().status(), InvalidArgument("as many rows"));
}

TEST_F(NpyDatasetTest, RefusesSetsOfDifferentSamples) {
  Write("test_x", Npy("<f4", "1, 3", Bytes<float>({7, 8, 9})));
  EXPECT_THAT(Open().status(),
              InvalidArgument("[3, 2]", "[1, 3]", "one kind and shape"));
  Write("test_x", Npy("<i4", "1, 2", Bytes<int32_t>({7, 8})));
  EXPECT_THAT(Open().status(), InvalidArgument("one kind and shape"));
}

TEST_F(NpyDatasetTest, RefusesNothingToTrainOnAndMissingFiles) {
  Write("train_x", Npy("<f4", "0, 2", ""));
  Write("train_y", Npy("<i4", "0,", ""));
  EXPECT_THAT(Open().status(), InvalidArgument("nothing in it to train on"));
  EXPECT_THAT(Open(Split::kTrain, 7).status(),
              InvalidArgument("nothing in it to train on"));
  std::filesystem::remove(absl::StrCat(testing::TempDir(), "/test_y.npy"));
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kNotFound, "test_y.npy"));
}

TEST_F(NpyDatasetTest, AVocabularyIsOfTokens) {
  EXPECT_THAT(Open(Split::kTrain, 7).status(),
              InvalidArgument("vocabulary 7", "no tokens"));
}

TEST_F(NpyDatasetTest, AFileThatBecomesShorterIsAnError) {
  const auto train = Open();
  std::filesystem::resize_file(absl::StrCat(testing::TempDir(), "/train_x.npy"),
                               130);
  EXPECT_THAT((*train)->Get({2}).status(), InvalidArgument("became shorter"));
}

TEST_F(NpyDatasetTest, IsOpenedByName) {
  DatasetOptions options;
  options.name = "npy";
  EXPECT_THAT(MakeDataset(options).status(),
              InvalidArgument("npy needs --data_dir", "train_x.npy"));
  options.data_dir = testing::TempDir();
  const auto data = MakeDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 3);
}

}  // namespace
}  // namespace tandem::npy_test
