#include "core/checkpoint/folder/host_copy.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>

#include "gtest/gtest.h"

namespace tandem::host_copy_test {
namespace {

StatePart Part(const at::Tensor& a, const at::Tensor& b) {
  StatePart part;
  part.tensors = {{"a", a}, {"b", b}};
  part.slices["b"] = {{4}, {1}, 2};
  return part;
}

TEST(HostCopyTest, WhatChangesLaterDoesNotChangeIt) {
  const at::Tensor a = at::arange(6.).view({2, 3}).t();  // not row-major
  const at::Tensor b = at::arange(2);
  const at::Tensor before = a.clone();
  HostCopy copies;
  const auto copy = copies.Take(Part(a, b));
  ASSERT_TRUE(copy.ok()) << copy.status();
  a.zero_();
  EXPECT_TRUE(copy->tensors[0].second.equal(before));
  EXPECT_TRUE(copy->tensors[1].second.equal(b));
  EXPECT_EQ(copy->slices.at("b").begin, 2);
  EXPECT_EQ(copies.bytes(), 6 * 4 + 2 * 8u);
}

TEST(HostCopyTest, MemoryIsKeptWhereItFits) {
  HostCopy copies;
  const at::Tensor b = at::arange(2);
  const auto first = copies.Take(Part(at::arange(4.), b));
  const auto second = copies.Take(Part(at::arange(4.).neg(), b));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->tensors[0].second.data_ptr(),
            second->tensors[0].second.data_ptr());
  // All are of one block: pinned blocks of their own would take up to twice as
  // much.
  EXPECT_TRUE(first->tensors[0].second.is_alias_of(first->tensors[1].second));
  const auto larger = copies.Take(Part(at::arange(5.), b));
  ASSERT_TRUE(larger.ok());
  EXPECT_TRUE(larger->tensors[0].second.equal(at::arange(5.)));
  EXPECT_TRUE(larger->tensors[1].second.equal(b));
  EXPECT_EQ(copies.bytes(), 5 * 4 + 2 * 8u);
}

TEST(HostCopyTest, OddSizesAndNothing) {
  HostCopy copies;
  const at::Tensor flags = at::arange(3).to(at::kBool);
  const at::Tensor none = at::arange(0.);
  const at::Tensor scalar = at::arange(8.).select(0, 7);
  StatePart part = Part(flags, none);
  part.tensors.emplace_back("c", scalar);
  const auto copy = copies.Take(part);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_TRUE(copy->tensors[0].second.equal(flags));
  EXPECT_TRUE(copy->tensors[1].second.equal(none));
  EXPECT_TRUE(copy->tensors[2].second.equal(scalar));
  EXPECT_TRUE(copies.Take(StatePart()).ok());
}

}  // namespace
}  // namespace tandem::host_copy_test
