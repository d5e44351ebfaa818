// The dropout kernel's arithmetic, against the counter-based generator that it
// implements and the CPU's operator.

#include "core/cuda/dropout_elements.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/fused/dropout_add.h"
#include "core/random/random.h"

namespace tandem::dropout_elements_test {
namespace {

constexpr uint64_t kKey = 0x0123456789abcdef;

TEST(DropoutElementsTest, DropsByPhilox) {
  for (const double p : {0.0, 0.1, 0.5, 0.99, 1.0}) {
    const DropoutFactors factors = MakeDropoutFactors(kKey, p);
    const auto scale = static_cast<float>(p < 1 ? 1 / (1 - p) : 0);
    for (const uint64_t sample :
         {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40}) {
      for (const uint64_t block :
           {uint64_t{0}, uint64_t{3}, uint64_t{1} << 33}) {
        const PhiloxBlock words = Philox(
            {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
             static_cast<uint32_t>(sample),
             static_cast<uint32_t>(sample >> 32)},
            {static_cast<uint32_t>(kKey), static_cast<uint32_t>(kKey >> 32)});
        const DropoutMask mask = DrawDropoutMask(factors, sample, block);
        for (size_t k = 0; k < 4; ++k) {
          EXPECT_EQ(mask.of[k], words[k] < std::ldexp(p, 32) ? 0 : scale);
        }
      }
    }
  }
}

TEST(DropoutElementsTest, HasTheCpusMask) {
  constexpr int64_t kRows = 5, kColumns = 71, kFirst = 1000;
  const DropoutDraws draws = {kKey, kFirst, 0.3};
  const at::Tensor mask =
      DropoutAdd(at::full({kRows, kColumns}, 1.0f), {}, draws);
  const DropoutFactors factors = MakeDropoutFactors(kKey, 0.3);
  const float* value = mask.const_data_ptr<float>();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kColumns; ++i, ++value) {
      EXPECT_EQ(*value,
                DrawDropoutMask(factors, kFirst + row, i / 4).of[i % 4]);
    }
  }
}

TEST(DropoutElementsTest, PartsHaveTheirPlaces) {
  const SamplePart neighbours = InRuns({10}, 6);
  const SamplePart columns = {2, 3, 8};  // 2, 3, 4 of each 8
  const int64_t of_neighbours[] = {10, 11, 12, 13, 14, 15};
  const int64_t of_columns[] = {2, 3, 4, 10, 11, 12};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(neighbours.PlaceOf(i), of_neighbours[i]);
    EXPECT_EQ(columns.PlaceOf(i), of_columns[i]);
  }
}

TEST(DropoutElementsTest, PartsHaveTheCpusMask) {
  constexpr int64_t kRows = 3, kColumns = 60, kFirst = 1000;
  const DropoutFactors factors = MakeDropoutFactors(kKey, 0.3);
  for (const SamplePart& part :
       {SamplePart{13}, SamplePart{5, 12, 41}, SamplePart{4, 1, 7}}) {
    const at::Tensor mask = DropoutAdd(at::full({kRows, kColumns}, 1.0f), {},
                                       {kKey, kFirst, 0.3, part});
    const float* value = mask.const_data_ptr<float>();
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kColumns; ++i, ++value) {
        const int64_t place = InRuns(part, kColumns).PlaceOf(i);
        EXPECT_EQ(
            *value,
            DrawDropoutMask(factors, kFirst + row, place / 4).of[place % 4]);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::dropout_elements_test
