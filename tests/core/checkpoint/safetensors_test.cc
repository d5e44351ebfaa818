#include "core/checkpoint/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/checkpoint/fingerprint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

namespace tandem::safetensors_test {
namespace {

namespace fs = std::filesystem;

using ::testing::AnyOf;
using Damage = SafetensorsReader::Damage;

at::Tensor Get(SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry* entry = reader.Find(name);
  if (entry == nullptr) return {};
  auto tensor = reader.Read(*entry);
  return tensor.ok() ? *tensor : at::Tensor();
}

bool Same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.scalar_type() == b.scalar_type() &&
         a.sizes() == b.sizes() && a.equal(b);
}

// tests/core/checkpoint/data/make_safetensors.py made the file.
TEST(Safetensors, ReadsWhatThePythonPackageWrote) {
  auto reader =
      SafetensorsReader::Open("tests/core/checkpoint/data/python.safetensors");
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::pair<const char*, at::ScalarType> dtypes[] = {
      {"u8", at::kByte},   {"i8", at::kChar},   {"i16", at::kShort},
      {"i32", at::kInt},   {"i64", at::kLong},  {"f16", at::kHalf},
      {"f32", at::kFloat}, {"f64", at::kDouble}};
  for (const auto& [name, dtype] : dtypes) {
    EXPECT_TRUE(Same(Get(**reader, name),
                     at::arange(6, at::kLong).to(dtype).view({2, 3})))
        << name;
  }
  EXPECT_TRUE(
      Same(Get(**reader, "bool"),
           at::arange(6, at::kLong).remainder(2).to(at::kBool).view({2, 3})));
  EXPECT_TRUE(Same(Get(**reader, "scalar"), at::scalar_tensor(3.5)));
  EXPECT_TRUE(Same(Get(**reader, "empty"), at::zeros({0, 4})));
  EXPECT_TRUE(Same(Get(**reader, "name with \"quotes\" and \xc3\xbc"),
                   at::ones({1}, at::kLong)));
  EXPECT_EQ((*reader)->entries().size(), 12u);
  EXPECT_EQ((*reader)->metadata(),
            (SafetensorsMetadata{{"by", "safetensors for Python"},
                                 {"format", "pt"}}));
  EXPECT_EQ((*reader)->Find("none"), nullptr);
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const std::string path = TestPath("roundtrip");
  NamedTensors tensors = {
      {"z", at::arange(6, at::kLong).view({2, 3}).t()},
      {"scalar", at::scalar_tensor(2.5, at::kDouble)},
      {"half", at::arange(5).to(at::kBFloat16)},
      {"empty", at::empty({3, 0})},
      {"flag", at::ones({3}, at::kBool)},
      {"nhwc", at::arange(24.)
                   .view({1, 2, 3, 4})
                   .contiguous(at::MemoryFormat::ChannelsLast)},
      {"leaf", at::ones({7}).requires_grad_(true)},
  };
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"step", "7"}}).ok());
  auto reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(Same(Get(**reader, name), tensor)) << name;
  }
  EXPECT_EQ((*reader)->metadata(), (SafetensorsMetadata{{"step", "7"}}));
  for (const SafetensorsEntry& entry : (*reader)->entries()) {
    EXPECT_EQ(entry.begin % c10::elementSize(entry.dtype), 0u) << entry.name;
  }
  auto all = (*reader)->ReadAll();
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(WeightsSha256(*all), WeightsSha256(tensors));
}

// x.conj() and x.conj().imag have the memory of x.
TEST(Safetensors, WritesAndHashesTheValuesOfLazyViews) {
  const at::Tensor x = at::complex(at::arange(3.), at::arange(3.).add(1));
  const NamedTensors lazy = {{"conj", x.conj()}, {"neg", at::imag(x.conj())}};
  const NamedTensors formed = {{"conj", x.conj().resolve_conj()},
                               {"neg", at::arange(3.).add(1).neg()}};
  ASSERT_TRUE(lazy[0].second.is_conj());
  ASSERT_TRUE(lazy[1].second.is_neg());
  EXPECT_EQ(WeightsSha256(lazy), WeightsSha256(formed));
  ASSERT_TRUE(WriteSafetensors(TestPath("lazy"), lazy).ok());
  const auto reader = SafetensorsReader::Open(TestPath("lazy"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(WeightsSha256(*(*reader)->ReadAll()), WeightsSha256(formed));
}

// A file of one tensor "x", as other tools write it.
std::string WriteForeign(const std::string& name, const std::string& dtype,
                         const std::string& data) {
  const std::string header =
      absl::StrCat(R"({"x":{"dtype":")", dtype, R"(","shape":[)", data.size(),
                   R"(],"data_offsets":[0,)", data.size(), "]}}");
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  WriteBytes(TestPath(name), bytes + header + data);
  return TestPath(name);
}

// In C++ a bool of another byte means nothing.
TEST(Safetensors, BoolsAreOneOrZero) {
  auto reader = SafetensorsReader::Open(
      WriteForeign("bools", "BOOL", std::string("\2\0\377\1", 4)));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const at::Tensor bools = Get(**reader, "x");
  ASSERT_TRUE(bools.defined());
  EXPECT_EQ(std::string(static_cast<const char*>(bools.const_data_ptr()), 4),
            std::string("\1\0\1\1", 4));
}

TEST(Safetensors, ATensorOfADtypeThatIsNotReadIsRefusedByName) {
  auto reader =
      SafetensorsReader::Open(WriteForeign("scales", "F8_E8M0", "1234"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const SafetensorsEntry& x = (*reader)->entries()[0];
  for (const absl::Status& status :
       {(*reader)->Verify(x), (*reader)->Read(x).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(),
                                  "tensor x is of dtype F8_E8M0, which is not "
                                  "read: convert it"))
        << status;
  }
}

TEST(Safetensors, FileDoesNotDependOnTheOrderGiven) {
  const at::Tensor a = at::arange(3.);
  const at::Tensor b = at::arange(5, at::kByte);
  ASSERT_TRUE(WriteSafetensors(TestPath("ab"), {{"a", a}, {"b", b}}).ok());
  ASSERT_TRUE(WriteSafetensors(TestPath("ba"), {{"b", b}, {"a", a}}).ok());
  EXPECT_EQ(ReadBytes(TestPath("ab")), ReadBytes(TestPath("ba")));
}

TEST(Safetensors, NoTensorsMakeAFile) {
  ASSERT_TRUE(WriteSafetensors(TestPath("none"), {}).ok());
  auto reader = SafetensorsReader::Open(TestPath("none"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE((*reader)->entries().empty());
}

TEST(Safetensors, RefusesToWriteWhatHasNoPlaceInAFile) {
  const at::Tensor one = at::ones({1});
  const NamedTensors bad[] = {
      {{"a", one}, {"a", one}},
      {{"__metadata__", one}},
      {{"undefined", at::Tensor()}},
      {{"sparse", one.to_sparse()}},
      {{"complex", one.to(at::kComplexDouble)}},
  };
  for (const NamedTensors& tensors : bad) {
    const absl::Status status = WriteSafetensors(TestPath("bad"), tensors);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), tensors[0].first))
        << status;
    EXPECT_FALSE(fs::exists(TestPath("bad")));
  }
}

// With another byte in its place two names could become one.
TEST(Safetensors, RefusesNamesThatAreNoUtf8) {
  const absl::Status status =
      WriteSafetensors(TestPath("bad"), {{"w\xff", at::ones({1})}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "tensor w\\xff cannot be stored: its name is "
                                "no UTF-8"))
      << status;
}

absl::Status OpenError(const std::string& path) {
  return SafetensorsReader::Open(path).status();
}

TEST(Safetensors, MissingFileAndDirectoryAreNamed) {
  EXPECT_EQ(OpenError(TestPath("absent")).code(), absl::StatusCode::kNotFound);
  const absl::Status status = OpenError(testing::TempDir());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "not a regular file"));
  EXPECT_TRUE(absl::StrContains(status.message(), testing::TempDir()));
}

TEST(Safetensors, EveryTruncationIsAnError) {
  ASSERT_TRUE(
      WriteSafetensors(TestPath("whole"), {{"a", at::arange(3.)}}).ok());
  const std::string whole = ReadBytes(TestPath("whole"));
  for (size_t n = 0; n < whole.size(); ++n) {
    WriteBytes(TestPath("cut"), whole.substr(0, n));
    const absl::Status status = OpenError(TestPath("cut"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << n;
    EXPECT_TRUE(absl::StrContains(status.message(), TestPath("cut"))) << status;
  }
  WriteBytes(TestPath("cut"), whole + "x");
  EXPECT_FALSE(OpenError(TestPath("cut")).ok());
}

TEST(Safetensors, ChangedBytesAreAnErrorOrAnotherFileButNeverACrash) {
  ASSERT_TRUE(
      WriteSafetensors(TestPath("whole"), {{"a", at::arange(3.)}}).ok());
  const std::string whole = ReadBytes(TestPath("whole"));
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\0', '0', '9', '"', '{', '}', '[', ',', '\xff'}) {
      std::string changed = whole;
      changed[at] = byte;
      WriteBytes(TestPath("changed"), changed);
      for (const Damage damage : {Damage::kRefused, Damage::kTold}) {
        auto reader = SafetensorsReader::Open(TestPath("changed"), damage);
        if (!reader.ok()) {
          EXPECT_THAT(reader.status().code(),
                      AnyOf(absl::StatusCode::kInvalidArgument,
                            absl::StatusCode::kDataLoss));
        } else if (damage == Damage::kTold) {
          EXPECT_TRUE((*reader)->ReadAll().ok()) << at << " " << byte;
        } else if (changed != whole && at >= whole.size() - 12) {
          EXPECT_EQ((*reader)->ReadAll().status().code(),
                    absl::StatusCode::kDataLoss);
        }
      }
    }
  }
}

TEST(Safetensors, DamageIsRefusedOrTold) {
  ASSERT_TRUE(WriteSafetensors(TestPath("d"), {{"a", at::arange(3.)}}).ok());
  std::string bytes = ReadBytes(TestPath("d"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteBytes(TestPath("d"), bytes);
  auto refuses = SafetensorsReader::Open(TestPath("d"));
  ASSERT_TRUE(refuses.ok()) << refuses.status();
  const SafetensorsEntry& a = (*refuses)->entries()[0];
  for (const absl::Status& status :
       {(*refuses)->Verify(a), (*refuses)->Read(a).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(absl::StrContains(
        status.message(), TestPath("d") + " is damaged: the values of a"))
        << status;
  }
  auto tells = SafetensorsReader::Open(TestPath("d"), Damage::kTold);
  ASSERT_TRUE(tells.ok()) << tells.status();
  EXPECT_TRUE((*tells)->has_checksums());
  EXPECT_TRUE((*tells)->VerifyHeader().ok());
  EXPECT_FALSE((*tells)->Verify((*tells)->entries()[0]).ok());
  EXPECT_TRUE((*tells)->ReadAll().ok());
}

// A file that Python's package has written again: the same header in other
// words.
TEST(Safetensors, HowTheHeaderIsWrittenDoesNotMatter) {
  ASSERT_TRUE(
      WriteSafetensors(TestPath("d"), {{"a", at::arange(3.)}}, {{"k", "v"}})
          .ok());
  std::string bytes = ReadBytes(TestPath("d"));
  const size_t data = bytes.size() - 12;
  std::string json = bytes.substr(8, data - 8);
  json = absl::StrReplaceAll(json, {{",", " , "}});
  const uint64_t length = json.size();
  WriteBytes(TestPath("d"),
             std::string(reinterpret_cast<const char*>(&length), 8) + json +
                 bytes.substr(data));
  auto reader = SafetensorsReader::Open(TestPath("d"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE((*reader)->has_checksums());
  EXPECT_TRUE((*reader)->ReadAll().ok());
}

TEST(Safetensors, HugeHeaderIsRefusedBeforeItIsRead) {
  WriteBytes(TestPath("huge"), std::string(8, '\xff') + "{}");
  EXPECT_TRUE(absl::StrContains(OpenError(TestPath("huge")).message(),
                                "the format allows 100000000"));
  WriteBytes(TestPath("huge"), std::string("\x64\0\0\0\0\0\0\0{}", 10));
  EXPECT_TRUE(absl::StrContains(OpenError(TestPath("huge")).message(),
                                "a header of 100 bytes, it has 2"));
}

TEST(WeightsSha256, IsOverNamesAndValuesNotMemory) {
  const at::Tensor a = at::arange(24.).view({2, 3, 2, 2});
  const at::Tensor b = at::arange(3, at::kLong);
  const std::string digest = WeightsSha256({{"a", a}, {"b", b}});
  EXPECT_EQ(digest, WeightsSha256(
                        {{"b", b},
                         {"a", a.contiguous(at::MemoryFormat::ChannelsLast)}}));
  EXPECT_NE(digest, WeightsSha256({{"a", a}}));
  EXPECT_NE(digest, WeightsSha256({{"a", a}, {"c", b}}));
  EXPECT_NE(digest, WeightsSha256({{"a", a.view({6, 4})}, {"b", b}}));
  EXPECT_NE(digest, WeightsSha256({{"a", a}, {"b", b.to(at::kInt)}}));
  EXPECT_NE(digest, WeightsSha256({{"a", a.add(1)}, {"b", b}}));
}

// Python: hashlib.sha256(b"tandem weights 1\n" + pack("<Q", 1) + b"w" +
// pack("<Q", 3) + b"F32" + pack("<QQQ", 2, 1, 2) + pack("<ff", 1, 2)).
TEST(WeightsSha256, HashesTheBytesItSays) {
  EXPECT_EQ(WeightsSha256({{"w", at::arange(1., 3.).view({1, 2})}}),
            "8ea254c951db843b7881abc2c62878d53f4c0e13bf297ede87b8f5139c9a2323");
}

}  // namespace
}  // namespace tandem::safetensors_test
