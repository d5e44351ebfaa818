// Messages through shared memory.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/shm/memory/mailbox.h"
#include "core/shm/memory/segment.h"
#include "tests/core/shm/ranks.h"

namespace tandem::point_to_point_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(ShmMailTest, MessagesOfAnySizeFindTheirReceivers) {
  for (const int n : {2, 7}) {
    OnRanks(n, [&](c10d::Backend& b) {
      const int to = (b.getRank() + 1) % n;
      const int from = (b.getRank() + n - 1) % n;
      for (const int64_t size : kSizes) {
        Tensors out = {Mine(b.getRank(), size, at::kFloat)};
        Tensors in = {at::empty({size})};
        // All receive first.
        auto receive = b.recv(in, from, 3);
        auto send = b.send(out, to, 3);
        receive->wait();
        send->wait();
        ExpectEqual(in[0], Mine(from, size, at::kFloat));
      }
    });
  }
}

// The stages of a pipeline hand on a quarter of a MiB and more.
TEST(ShmMailTest, AMessageOf256KiBIsSentBeforeItsReceiverComes) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors tensors = {at::full({256 << 10}, b.getRank(), at::kByte)};
    b.send(tensors, 1 - b.getRank(), 0)->wait();
    Tensors in = {at::empty({256 << 10}, at::kByte)};
    b.recv(in, 1 - b.getRank(), 0)->wait();
    ExpectEqual(in[0], at::full({256 << 10}, 1 - b.getRank(), at::kByte));
  });
}

TEST(ShmMailTest, ALargeMessageCanBeReadWhileItIsWritten) {
  const auto ring = std::make_unique<ShmMailRing>();
  std::vector<std::byte> out(3 * kMailBytes + 7);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(i * 31 / 7);
  }
  std::vector<std::byte> in(out.size());
  const auto message = [](std::vector<std::byte>& data) {
    auto made = std::make_shared<ShmMessage>();
    made->data = data.data();
    made->bytes = data.size();
    return made;
  };
  const auto sent = message(out);
  const auto received = message(in);
  ShmOutbox outbox;
  ShmInbox inbox;
  outbox.Post(sent);
  inbox.Post(received);
  while (!sent->done()) {
    ASSERT_TRUE(outbox.Push(*ring));
    EXPECT_LE(ring->written.load() - ring->read.load(), kMailBytes / 4);
    ASSERT_TRUE(inbox.Pull(*ring));
    EXPECT_FALSE(inbox.Pull(*ring));  // the rest is not there yet
  }
  EXPECT_TRUE(received->done());
  EXPECT_EQ(in, out);
}

TEST(ShmMailTest, MessagesAreToldApartByTagAndKeepTheirOrder) {
  OnRanks(2, [](c10d::Backend& b) {
    constexpr int64_t kBig = 400003;  // more than goes through at once
    if (b.getRank() == 0) {
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      std::vector<Tensors> held;
      for (int i = 0; i < 6; ++i) {
        held.push_back({at::full({kBig}, i, at::kInt)});
        works.push_back(b.send(held.back(), 1, i % 3));
      }
      for (auto& work : works) work->wait();
    } else {
      for (const int tag : {2, 1, 0}) {
        for (const int i : {tag, tag + 3}) {
          Tensors in = {at::zeros({kBig}, at::kInt)};
          b.recv(in, 0, tag)->wait();
          ExpectEqual(in[0], at::full({kBig}, i, at::kInt));
        }
      }
    }
  });
}

TEST(ShmMailTest, AMessageOfAnotherSizeIsRefused) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors three = {at::zeros({3})};
    Tensors four = {at::zeros({4})};
    if (b.getRank() == 0) {
      b.send(three, 1, 5)->wait();
    } else {
      EXPECT_THAT(ErrorOf([&] { b.recv(four, 0, 5)->wait(); }),
                  HasSubstr("rank 0 sent 12 bytes with tag 5, where 16 bytes"));
    }
  });
}

TEST(ShmMailTest, AWaitThatWasInVainCanBeRepeated) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors word = {at::full({3}, 7, at::kInt)};
    Tensors asked = {at::zeros({1})};
    if (b.getRank() == 0) {
      b.recv(asked, 1, 0)->wait();  // when the other has waited in vain
      b.send(word, 1, 5)->wait();
      return;
    }
    Tensors in = {at::zeros({3}, at::kInt)};
    auto receive = b.recv(in, 0, 5);
    const absl::Status status =
        CatchTorch([&] { receive->wait(std::chrono::milliseconds(20)); });
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                ContainsRegex("timed out waiting for rank 0 .pid [0-9]+., "
                              "which may still come"));
    EXPECT_FALSE(receive->isCompleted());
    b.send(asked, 0, 0)->wait();
    EXPECT_TRUE(receive->wait(std::chrono::seconds(30)));
    ExpectEqual(in[0], word[0]);
  });
}

TEST(ShmMailTest, TheGroupsTimeoutHoldsForWaitsOfAnyLength) {
  std::promise<void> given_up;
  OnRanks(
      2,
      [&](c10d::Backend& b) {
        if (b.getRank() == 0) {
          given_up.get_future().wait();
          return;
        }
        Tensors in = {at::zeros({3})};
        auto receive = b.recv(in, 0, 5);
        EXPECT_FALSE(CatchTorch([&] {
                       receive->wait(std::chrono::milliseconds(20));
                     }).ok());
        EXPECT_THAT(
            ErrorOf([&] { receive->wait(std::chrono::hours(1)); }),
            ContainsRegex("timed out waiting for rank 0 .pid [0-9]+.$"));
        given_up.set_value();
      },
      2000);
}

TEST(ShmMailTest, AbortEndsOneWaitAndNotTheMessage) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors in = {at::zeros({1 << 18}, at::kInt)};  // more than a ring holds
    Tensors asked = {at::zeros({1})};
    if (b.getRank() == 0) {
      b.recv(asked, 1, 0)->wait();
      Tensors out = {at::full({1 << 18}, 7, at::kInt)};
      auto send = b.send(out, 1, 5);
      send->abort();
      EXPECT_FALSE(send->wait());
      b.send(asked, 1, 6)->wait();
      EXPECT_TRUE(send->wait());
      return;
    }
    auto receive = b.recv(in, 0, 5);
    std::promise<bool> ended;
    std::thread waiting([&] { ended.set_value(receive->wait()); });
    receive->abort();
    EXPECT_FALSE(ended.get_future().get());
    waiting.join();
    EXPECT_FALSE(receive->isCompleted());
    b.send(asked, 0, 0)->wait();
    b.recv(asked, 0, 6)->wait();
    EXPECT_TRUE(receive->wait());
    ExpectEqual(in[0], at::full({1 << 18}, 7, at::kInt));
  });
}

}  // namespace
}  // namespace tandem::point_to_point_test
