// Folders of images, made here.

#include "datasets/images/image_folder.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/image_codec/image_codec.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::image_folder_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// A folder of the test's own, with files in it.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(absl::StrCat(testing::TempDir(), "/", name)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }

  const std::string& path() const { return path_; }

  void Write(const std::string& name, const std::string& bytes) const {
    const fs::path file = absl::StrCat(path_, "/", name);
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
  }

  // A PNG file of 2 x 2 pixels of this grey.
  void WriteImage(const std::string& name, int64_t grey) const {
    Write(name, *EncodePng(at::full({1, 2, 2}, grey, at::kByte)));
  }

  absl::Status Refusal(bool train = true) const {
    return OpenImageFolder(path_, train).status();
  }

 private:
  const std::string path_;
};

std::vector<std::string> Names(const Folder& folder,
                               const ImageSource& source) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < source.size(); ++i) {
    const std::string name = source.ImageName(i);
    names.push_back(std::string(absl::StripPrefix(name, folder.path() + "/")));
  }
  return names;
}

// The expected order is what torchvision 0.24's ImageFolder(...).samples has of
// the same names.
TEST(ImageFolderTest, HasTorchvisionsOrder) {
  const Folder folder("order");
  for (const char* name :
       {"train/dog/b.PNG", "train/dog/a.jpeg", "train/dog/B.JPG",
        "train/Cat/10.png", "train/Cat/9.png", "train/Cat/more/1.png",
        "train/Cat/more b/1.png", "train/Cat/more/below/1.png",
        "train/Cat/notes.txt", "train/Cat/more/x.gif", "train/readme.png",
        "train/\xc3\xa4/z.png", "val/Cat/1.png", "val/dog/1.png",
        "val/\xc3\xa4/1.png"}) {
    folder.WriteImage(name, 0);
  }
  const auto train = OpenImageFolder(folder.path(), true);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_THAT(
      Names(folder, **train),
      ElementsAre("train/Cat/10.png", "train/Cat/9.png", "train/Cat/more/1.png",
                  "train/Cat/more b/1.png", "train/Cat/more/below/1.png",
                  "train/dog/B.JPG", "train/dog/a.jpeg", "train/dog/b.PNG",
                  "train/\xc3\xa4/z.png"));
  EXPECT_EQ((*train)->classes(), 3);
  EXPECT_EQ((*train)->ClassName(0), "Cat");
  EXPECT_EQ((*train)->ClassName(2), "\xc3\xa4");
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < 9; ++i) classes.push_back((*train)->ClassNumber(i));
  EXPECT_EQ(classes, (std::vector<int64_t>{0, 0, 0, 0, 0, 1, 1, 1, 2}));
}

TEST(ImageFolderTest, DecodesFilesWhenTheyAreAskedFor) {
  const Folder folder("decodes");
  folder.WriteImage("train/a/1.png", 11);
  folder.Write("train/a/2.jpg", "no image");
  folder.WriteImage("train/a/3.jpg", 13);  // PNG, whatever it is called
  folder.WriteImage("test/a/1.png", 12);
  const auto train = OpenImageFolder(folder.path(), true);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_TRUE(
      at::equal(*(*train)->Image(0), at::full({3, 2, 2}, 11, at::kByte)));
  EXPECT_THAT((*train)->Image(1).status(),
              InvalidArgument("train/a/2.jpg", "neither PNG nor JPEG"));
  EXPECT_EQ((*(*train)->Image(2))[0][0][0].item<int64_t>(), 13);
  // Without val, test is scored.
  const auto test = OpenImageFolder(folder.path(), false);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*(*test)->Image(0))[0][0][0].item<int64_t>(), 12);
}

TEST(ImageFolderTest, ValComesBeforeTest) {
  const Folder folder("val_and_test");
  folder.WriteImage("train/a/1.png", 1);
  folder.WriteImage("val/a/1.png", 2);
  folder.WriteImage("test/a/1.png", 3);
  const auto test = OpenImageFolder(folder.path(), false);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*(*test)->Image(0))[0][0][0].item<int64_t>(), 2);
}

TEST(ImageFolderTest, AnEmptyValIsNoTestSet) {
  const Folder folder("empty_val");
  folder.WriteImage("train/a/1.png", 1);
  fs::create_directories(folder.path() + "/val");
  EXPECT_EQ((*OpenImageFolder(folder.path(), true))->size(), 1);
  const auto test = OpenImageFolder(folder.path(), false);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 0);
  EXPECT_EQ((*test)->classes(), 1);
}

TEST(ImageFolderTest, SaysWhatFoldersAreExpected) {
  const Folder folder("one_folder");
  folder.WriteImage("cat/1.png", 1);
  folder.WriteImage("dog/1.png", 1);
  EXPECT_THAT(folder.Refusal(),
              InvalidArgument("the folders cat, dog", "expected train",
                              "val or test", "train/cat/1.jpg"));
  folder.WriteImage("train/cat/1.png", 1);
  EXPECT_THAT(folder.Refusal(), InvalidArgument("val or test"));
  EXPECT_THAT(OpenImageFolder(folder.path() + "/none", true).status(),
              StatusIs(absl::StatusCode::kNotFound, "/none"));
}

TEST(ImageFolderTest, BothSetsHaveTheSameClasses) {
  const Folder folder("classes");
  folder.WriteImage("train/cat/1.png", 1);
  folder.WriteImage("train/dog/1.png", 1);
  folder.WriteImage("val/cat/1.png", 1);
  for (const bool train : {false, true}) {
    EXPECT_THAT(folder.Refusal(train),
                InvalidArgument("train has the class dog", "val lacks it"));
  }
  folder.WriteImage("val/dog/1.png", 1);
  folder.WriteImage("val/owl/1.png", 1);
  EXPECT_THAT(folder.Refusal(),
              InvalidArgument("val has the class owl", "train lacks it"));
  const Folder no_classes("no_classes");
  no_classes.WriteImage("train/1.png", 1);
  no_classes.WriteImage("val/1.png", 1);
  EXPECT_THAT(no_classes.Refusal(), InvalidArgument("train has no folders"));
}

TEST(ImageFolderTest, RefusesClassesWithoutImages) {
  const Folder folder("without_images");
  folder.WriteImage("train/cat/1.png", 1);
  folder.Write("train/dog/1.gif", "GIF89a");
  folder.WriteImage("val/cat/1.png", 1);
  folder.WriteImage("val/dog/1.png", 1);
  EXPECT_THAT(folder.Refusal(),
              InvalidArgument("train/dog", "no file called .jpg"));
}

TEST(ImageFolderTest, RefusesEmptyFilesAndBrokenLinksAtTheStart) {
  const Folder folder("empty_files");
  folder.WriteImage("train/cat/1.png", 1);
  folder.WriteImage("val/cat/1.png", 1);
  folder.Write("train/cat/2.png", "");
  EXPECT_THAT(folder.Refusal(),
              InvalidArgument("train/cat/2.png", "has no byte"));
  fs::remove(folder.path() + "/train/cat/2.png");
  fs::create_symlink("nowhere.png", folder.path() + "/train/cat/2.png");
  EXPECT_THAT(folder.Refusal(),
              StatusIs(absl::StatusCode::kNotFound, "train/cat/2.png"));
}

TEST(ImageFolderTest, FollowsLinksButNotInACircle) {
  const Folder folder("links");
  folder.WriteImage("elsewhere/1.png", 1);
  folder.WriteImage("train/cat/1.png", 1);
  folder.WriteImage("val/cat/1.png", 1);
  fs::create_directory_symlink("../../elsewhere",
                               folder.path() + "/train/cat/linked");
  const auto train = OpenImageFolder(folder.path(), true);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_THAT(Names(folder, **train),
              ElementsAre("train/cat/1.png", "train/cat/linked/1.png"));
  fs::create_directory_symlink("..", folder.path() + "/train/cat/up");
  EXPECT_THAT(folder.Refusal(),
              InvalidArgument("train/cat/up/cat", "leads back"));
}

TEST(ImageFolderTest, TheDigestIsOfNamesAndSizes) {
  const Folder folder("digest");
  folder.WriteImage("train/cat/1.png", 1);
  folder.WriteImage("val/cat/1.png", 1);
  const auto digest = [&] {
    return (*OpenImageFolder(folder.path(), true))->digest();
  };
  const std::string before = digest();
  EXPECT_EQ(digest(), before);
  fs::rename(folder.path() + "/train/cat/1.png",
             folder.path() + "/train/cat/2.png");
  const std::string renamed = digest();
  EXPECT_NE(renamed, before);
  folder.Write("train/cat/2.png", "shorter");
  EXPECT_NE(digest(), renamed);
}

}  // namespace
}  // namespace tandem::image_folder_test
