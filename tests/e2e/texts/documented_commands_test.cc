#include "tests/e2e/texts/documented_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::documented_commands_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kPage[] = R"(# Page

## Before

```sh
bazel run //tools:before -- --no
```

## Commands

Some words.

```sh
bazel run //tools:train -- --model=a \
    --text='In the  beginning' --pattern='a|b'

bazel run //tools/bench:other --
```

```sh
bazel run //tools:after -- --no
```
)";

TEST(CommandsBelow, AreThoseOfTheHeadingsFirstBlock) {
  const std::vector<DocumentedCommand> commands =
      CommandsBelow("Commands", kPage);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].program, "tools/train");
  EXPECT_THAT(
      commands[0].arguments,
      ElementsAre("--model=a", "--text=In the  beginning", "--pattern=a|b"));
  EXPECT_EQ(commands[1].program, "tools/bench/other");
  EXPECT_THAT(commands[1].arguments, IsEmpty());
}

TEST(CommandsBelowDeathTest, NothingIsLeftOut) {
  const std::string page = "\n## Commands\n```sh\nls\n```\n";
  EXPECT_DEATH(CommandsBelow("Commands", page), "ls");
  EXPECT_DEATH(CommandsBelow("Other", page), "no heading Other");
  EXPECT_DEATH(
      CommandsBelow("Commands",
                    "\n## Commands\n```sh\nbazel run //a:b -- 'c\n```\n"),
      "'c");
}

}  // namespace
}  // namespace tandem::documented_commands_test
