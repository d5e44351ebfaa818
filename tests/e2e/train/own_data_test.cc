// A user's own data: folders of images, arrays and shards of tokens, trained on
// with the same bits in every layout, and gone on with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::own_data_test {
namespace {

using ::testing::HasSubstr;

void Write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string BigEndian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(number >> shift));
  }
  return bytes;
}

std::string Chunk(const std::string& name, const std::string& data) {
  const std::string body = name + data;
  const auto checksum = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(body.data()),
            static_cast<uInt>(body.size())));
  return BigEndian(static_cast<uint32_t>(data.size())) + body +
         BigEndian(checksum);
}

// A grey PNG file of so many pixels, each `pixel` or a little more.
std::string Png(uint32_t height, uint32_t width, int pixel) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows.push_back('\0');  // no filter
    for (uint32_t x = 0; x < width; ++x) {
      rows.push_back(static_cast<char>(pixel + (x * 5 + y * 3) % 32));
    }
  }
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(rows.data()), rows.size()),
            Z_OK);
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" +
         Chunk("IHDR", BigEndian(width) + BigEndian(height) +
                           std::string("\x08\0\0\0\0", 5)) +
         Chunk("IDAT", packed) + Chunk("IEND", "");
}

// Dark and bright images, of several sizes.
std::string NewImages(const std::string& name) {
  std::string folder = NewFolder(name);
  for (int i = 0; i < 20; ++i) {
    const auto height = static_cast<uint32_t>(9 + i % 3);
    const auto width = static_cast<uint32_t>(13 - i % 4);
    const std::string file = "/" + std::to_string(i) + ".png";
    for (const std::string set : {"/train", "/val"}) {
      if (set == "/val" && i >= 3) continue;
      Write(folder + set + "/dark" + file, Png(height, width, 20 + i));
      Write(folder + set + "/bright" + file, Png(width, height, 190 + i));
    }
  }
  return folder;
}

Flags ImageJob(const std::string& folder, const std::string& more = "") {
  return Words(
      "--model=cnn --dataset=image_folder --image_size=8 --batch_size=8 "
      "--augment=random_resized_crop,flip --reproducible --microbatch_size=2 "
      "--epochs=2 --save_dir= --log_every=1 --workers=2 --data_dir=" +
      folder + " " + more);
}

TEST(OwnDataTest, AnImageFolderHasTheSameBitsOnAnyNumberOfRanks) {
  const std::string folder = NewImages("images");
  const Events one = RunJobForEvents(ImageJob(folder));
  ASSERT_EQ(EventsOf(one, "step").size(), 10u);
  const Events tested = EventsOf(one, "eval");
  ASSERT_EQ(tested.size(), 2u);
  EXPECT_EQ(tested[1]["count"], 6);
  EXPECT_LT(LastLoss(one), StepLosses(one).front());
  for (const std::string layout : {"--nproc_per_node=2", "--nproc_per_node=4",
                                   "--nproc_per_node=2 --pipe=2"}) {
    const Events events = RunJobForEvents(ImageJob(folder, layout));
    EXPECT_EQ(Fingerprint(events), Fingerprint(one)) << layout;
    EXPECT_EQ(StepLosses(events), StepLosses(one)) << layout;
  }
  EXPECT_NE(Fingerprint(RunJobForEvents(ImageJob(folder, "--augment=flip"))),
            Fingerprint(one));
}

TEST(OwnDataTest, AResumedImageJobHasTheSameBits) {
  const std::string folder = NewImages("resumed_images");
  const Events whole = RunJobForEvents(ImageJob(folder));
  const std::string saved = "--save_dir=" + folder + "/saved";
  // Within the second epoch.
  RunJobForEvents(ImageJob(folder, "--max_steps=7 " + saved));
  const Events rest = RunJobForEvents(
      ImageJob(folder, "--nproc_per_node=2 --resume=auto " + saved));
  EXPECT_EQ(StepsOf(EventsOf(rest, "step")), (std::vector<int>{8, 9, 10}));
  EXPECT_EQ(Fingerprint(rest), Fingerprint(whole));
}

TEST(OwnDataTest, WhatIsWrongWithImagesIsSaidInALine) {
  const std::string folder = NewImages("wrong_images");
  const std::string file = folder + "/train/dark/7.png";
  std::filesystem::resize_file(file, 60);
  const ProgramResult damaged = RunProgram(kTrain, ImageJob(folder));
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.err, HasSubstr(file));
  EXPECT_THAT(damaged.err, HasSubstr("truncated"));
  ExpectRefused(ImageJob(folder + "/train"),
                {"OneFolder", "", "expected train, which is trained on"});
}

std::string Npy(const std::string& descr, const std::string& shape,
                const std::string& values) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + "\n" + values;
}

TEST(OwnDataTest, ArraysAreLearnt) {
  const std::string folder = NewFolder("arrays");
  for (const std::string set : {"train", "test"}) {
    std::vector<float> samples;
    std::string classes;
    for (int i = 0; i < 64; ++i) {
      for (int value = 0; value < 5; ++value) {
        samples.push_back(static_cast<float>((i * 7 + value * 3) % 11) / 11 +
                          static_cast<float>(i % 3));
      }
      classes.push_back(static_cast<char>(i % 3));
    }
    Write(folder + "/" + set + "_x.npy",
          Npy("<f4", "64, 5",
              std::string(reinterpret_cast<const char*>(samples.data()),
                          samples.size() * sizeof(float))));
    Write(folder + "/" + set + "_y.npy", Npy("|u1", "64,", classes));
  }
  const Flags job = Words(
      "--model=mlp_small --dataset=npy --batch_size=16 --epochs=20 "
      "--optimizer=adam --save_dir= --log_every=1 --data_dir=" +
      folder);
  const Events events = RunJobForEvents(job);
  EXPECT_EQ(EventsOf(events, "step").size(), 80u);
  EXPECT_GT(EventsOf(events, "eval").back()["accuracy"], 0.9);
}

TEST(OwnDataTest, ShardsAreLearnt) {
  const std::string folder = NewFolder("shards");
  for (int shard = 1; shard <= 3; ++shard) {
    WriteText(folder + "/words_train_00000" + std::to_string(shard) + ".bin",
              500, static_cast<uint32_t>(shard));
  }
  WriteText(folder + "/words_val_000000.bin", 200, 9);
  const Events events = RunJobForEvents(
      Words("--model=gpt_tiny --dataset=tokens --context=16 --vocabulary=256 "
            "--batch_size=16 --optimizer=adam --save_dir= --log_every=1 "
            "--max_steps=20 --data_dir=" +
            folder));
  EXPECT_LT(LastLoss(events), StepLosses(events).front());
  EXPECT_EQ(EventsOf(events, "eval").size(), 1u);
}

}  // namespace
}  // namespace tandem::own_data_test
