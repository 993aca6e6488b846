// weir checkpoint, from a run to its files and back.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/weight_index.h"
#include "tools/cli/cli_testing.h"

namespace weir::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CheckpointVerbsTest : public ::testing::Test {
 protected:
  // A job of 6 steps, its weights after 3 of them, and a folder with these weights as a checkpoint.
  CheckpointVerbsTest() {
    const Outcome zoo =
        Weir({"zoo", "mlp", "--pixels", "16", "--hidden", "8", "--batch", "8", "--steps", "6"});
    EXPECT_EQ(zoo.code, 0) << zoo.err;
    folder_.Write("job.textproto", zoo.out);
    const Outcome trained =
        Weir({"train", job(), "--threads", "1", "--steps", "3", "--save", weights()});
    EXPECT_EQ(trained.code, 0) << trained.err;
    const Outcome imported = Weir({"checkpoint", "import", weights(), "-o", run()});
    EXPECT_EQ(imported.code, 0) << imported.err;
    EXPECT_THAT(imported.out, HasSubstr("step-000000003: "));
  }

  std::string Path(const std::string& name) const { return folder_.PathFor(name); }
  std::string job() const { return Path("job.textproto"); }
  std::string weights() const { return Path("weights.safetensors"); }
  std::string run() const { return Path("run"); }
  static std::string ReadFile(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  // Turns a bit of a value of the checkpoint.
  void Damage() const {
    const std::string shards = "run/step-000000003/rank-00000.safetensors";
    std::string bytes = ReadFile(Path(shards));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    folder_.Write(shards, bytes);
  }

  const TemporaryFolder folder_;
};

TEST_F(CheckpointVerbsTest, CheckpointsAreListedCheckedAndConverted) {
  EXPECT_THAT(Weir({"checkpoint", "ls", run()}).out, HasSubstr("latest"));
  EXPECT_THAT(
      Weir({"checkpoint", "ls", weights()}).err,
      AllOf(HasSubstr("W0711"), HasSubstr("found a file"), HasSubstr("Try: weir checkpoint show")));
  EXPECT_THAT(Weir({"checkpoint", "show", run()}).out, HasSubstr("F32"));
  EXPECT_THAT(Weir({"checkpoint", "verify", run()}).out, HasSubstr("sound"));
  EXPECT_EQ(Weir({"train", job(), "--threads", "1", "--init", run()}).code, 0);
  const Outcome resumed = Weir({"train", job(), "--resume", run(), "--steps", "9"});
  EXPECT_EQ(resumed.code, 65) << "weights alone are no checkpoint";
  const std::string exported = Path("exported.safetensors");
  EXPECT_EQ(Weir({"checkpoint", "export", run(), "--safetensors", "-o", exported}).code, 0);
  EXPECT_THAT(Weir({"weights", "check", job(), exported}).out, HasSubstr("fits"));
}

TEST_F(CheckpointVerbsTest, DamageIsFoundAndCounted) {
  Damage();
  const Outcome damaged = Weir({"checkpoint", "verify", run()});
  EXPECT_EQ(damaged.code, 66);
  EXPECT_THAT(damaged.err, AllOf(HasSubstr("W0713"), HasSubstr("tensor "),
                                 HasSubstr("`weir checkpoint verify " + run() + " --all-steps`")));
  EXPECT_EQ(Weir({"train", job(), "--init", run()}).code, 66);
  std::filesystem::copy(run() + "/step-000000003", run() + "/step-000000004");
  ASSERT_EQ(Weir({"checkpoint", "import", weights(), "-o", run(), "--overwrite"}).code, 0);
  const Outcome all = Weir({"checkpoint", "verify", run(), "--all-steps"});
  EXPECT_EQ(all.code, 66);
  EXPECT_EQ(all.err, "");
  EXPECT_THAT(all.out,
              AllOf(HasSubstr("step-000000003: sound: "), HasSubstr("step-000000004: damaged: W07"),
                    Not(HasSubstr("Try:")), EndsWith("1 sound, 1 damaged\n")));
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 3);
}

TEST_F(CheckpointVerbsTest, VerifyHereChecksAFileAsAWhole) {
  EXPECT_THAT(Weir({"checkpoint", "verify", weights(), "--here"}).out,
              HasSubstr("weights.safetensors: sound: "));
  std::string bytes = ReadFile(weights());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder_.Write("weights.safetensors", bytes);
  const Outcome damaged = Weir({"checkpoint", "verify", weights(), "--here"});
  EXPECT_EQ(damaged.code, 66);
  EXPECT_THAT(damaged.err, HasSubstr("W0960"));
}

TEST_F(CheckpointVerbsTest, VerifySaysThatValuesWithoutChecksumsAreUnverified) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const auto length = static_cast<char>(header.size());
  folder_.Write("foreign.safetensors",
                std::string(1, length) + std::string(7, '\0') + header + std::string(4, '\0'));
  const Outcome verified = Weir({"checkpoint", "verify", Path("foreign.safetensors")});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out,
              AllOf(HasSubstr("foreign.safetensors: 1 tensor, "),
                    HasSubstr(", without checksums: unverified\n"), Not(HasSubstr("sound"))));
}

TEST_F(CheckpointVerbsTest, AStepWithoutItsIndexIsDamagedAndARestIsSaid) {
  std::filesystem::create_directory(run() + "/step-000000009.partial-0123456789abcdef");
  const Outcome rest = Weir({"checkpoint", "verify", run(), "--all-steps"});
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, AllOf(HasSubstr(".partial-0123456789abcdef: no checkpoint: left over"),
                              EndsWith("1 sound, 0 damaged\n")));
  std::filesystem::create_directory(run() + "/step-000000009");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--all-steps"}}) {
    std::vector<std::string> command = {"checkpoint", "verify", run()};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome verified = Weir(command);
    EXPECT_EQ(verified.code, 66);
    EXPECT_THAT(verified.out, AllOf(HasSubstr("step-000000003: sound: "),
                                    HasSubstr("step-000000009: damaged: W0711"),
                                    HasSubstr("step-000000009 with its index; found none in it"),
                                    Not(HasSubstr("Try:"))));
    EXPECT_THAT(verified.out, EndsWith(more.empty() ? "\n" : "1 sound, 1 damaged\n"));
  }
  EXPECT_THAT(Weir({"checkpoint", "show", run() + "/step-000000009"}).err,
              HasSubstr("found none in it, beside step-000000003"));
}

TEST_F(CheckpointVerbsTest, AllStepsLookAtLatestToo) {
  std::filesystem::remove(run() + "/latest");
  const Outcome nameless = Weir({"checkpoint", "verify", run(), "--all-steps"});
  EXPECT_EQ(nameless.code, 66);
  EXPECT_THAT(nameless.out, AllOf(HasSubstr("has no `latest`"), EndsWith("1 sound, 0 damaged\n")));
  std::filesystem::remove(run() + "/step-000000003/index.pb");
  const Outcome none = Weir({"checkpoint", "verify", run(), "--all-steps"});
  EXPECT_EQ(none.code, 66);
  EXPECT_THAT(none.out,
              AllOf(HasSubstr("beside no committed checkpoint"), EndsWith("0 sound, 1 damaged\n")));
}

TEST_F(CheckpointVerbsTest, AStepThatIsNotThereNamesThoseThatAre) {
  for (const char* name : {"/step-000000040", "/step-00000040", "/step-3", "/step-000000040/"}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"checkpoint", "show"},
                                                    {"checkpoint", "verify"},
                                                    {"train", job(), "--init"},
                                                    {"train", job(), "--resume"}}) {
      std::vector<std::string> whole = command;
      whole.push_back(run() + name);
      const Outcome missing = Weir(whole);
      EXPECT_EQ(missing.code, 66) << missing.err;
      EXPECT_THAT(missing.err,
                  AllOf(HasSubstr("W0711 at " + run() + ":"), HasSubstr("found step-000000003"),
                        HasSubstr("Try: a committed checkpoint by its own path, " + run() +
                                  "/step-000000003")));
    }
  }
}

TEST_F(CheckpointVerbsTest, AFolderOfWeightsIsReadByItsIndexOrTheErrorNamesTheIndex) {
  ASSERT_TRUE(std::filesystem::create_directory(Path("exported")));
  const std::string index = Path("exported/m.safetensors.index.json");
  ASSERT_EQ(Weir({"checkpoint", "export", run(), "-o", Path("exported/m.safetensors"),
                  "--max-shard-size", "100"})
                .code,
            0);
  EXPECT_EQ(Weir({"train", job(), "--threads", "1", "--init", Path("exported")}).code, 0);
  EXPECT_THAT(Weir({"checkpoint", "verify", Path("exported")}).out, HasSubstr(": sound: "));
  EXPECT_THAT(Weir({"train", job(), "--resume", Path("exported")}).err,
              AllOf(HasSubstr("W0711"), HasSubstr(index)));
  folder_.Write("exported/other.safetensors", "");
  EXPECT_THAT(Weir({"train", job(), "--init", Path("exported")}).err,
              AllOf(HasSubstr("W0049"), HasSubstr(index)));
  EXPECT_THAT(Weir({"checkpoint", "verify", Path("exported")}).err,
              AllOf(HasSubstr("W0711"), HasSubstr(index)));
}

TEST_F(CheckpointVerbsTest, OneFileOfAnExportIsNotTakenForAllOfThem) {
  const std::string index = Path("m.safetensors.index.json");
  ASSERT_EQ(
      Weir({"checkpoint", "export", run(), "-o", Path("m.safetensors"), "--max-shard-size", "100"})
          .code,
      0);
  EXPECT_THAT(Weir({"checkpoint", "verify", index}).out, Not(HasSubstr("note:")));
  const std::string one = store::ShardsBeside(index)[1];
  const std::string what =
      "one of the " + std::to_string(store::ShardsBeside(index).size()) + " files of " + index;
  const Outcome verified = Weir({"checkpoint", "verify", one});
  EXPECT_EQ(verified.code, 0);
  EXPECT_THAT(verified.out, AllOf(HasSubstr("in 1 file, step 3"),
                                  HasSubstr("note: the file is " + what + "; the others")));
  for (const char* verb : {"export", "import", "edit"}) {
    const Outcome refused = Weir({"checkpoint", verb, one, "-o", Path("whole")});
    EXPECT_EQ(refused.code, 65);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("W0047 at " + one), HasSubstr("found " + what)));
    EXPECT_FALSE(std::filesystem::exists(Path("whole")));
  }
  EXPECT_THAT(Weir({"train", job(), "--init", one}).err,
              AllOf(HasSubstr("W0071 at " + one), HasSubstr("; the file is " + what),
                    HasSubstr("Try: " + index + ", or ")));
}

TEST_F(CheckpointVerbsTest, ACastCheckpointIsRefusedInEachForm) {
  ASSERT_EQ(
      Weir({"train", job(), "--threads", "1", "--steps", "3", "--checkpoint", Path("c/")}).code, 0);
  const std::string file = Path("all.safetensors"), parts = Path("parts.safetensors");
  const auto resume = [this](const std::string& source) {
    return Weir({"train", job(), "--threads", "1", "--resume", source});
  };
  ASSERT_EQ(Weir({"checkpoint", "export", Path("c"), "--all", "-o", file}).code, 0);
  EXPECT_EQ(resume(file).code, 0);
  ASSERT_EQ(Weir({"checkpoint", "edit", Path("c"), "-o", Path("cast"), "--cast", "{*}=BF16"}).code,
            0);
  ASSERT_EQ(Weir({"checkpoint", "export", Path("cast"), "--all", "-o", file}).code, 0);
  ASSERT_EQ(
      Weir({"checkpoint", "export", Path("cast"), "--all", "-o", parts, "--max-shard-size", "100"})
          .code,
      0);
  ASSERT_EQ(Weir({"checkpoint", "import", file, "-o", Path("back")}).code, 0);
  for (const std::string& source : {Path("cast"), file, parts + ".index.json", Path("back")}) {
    const Outcome refused = resume(source);
    EXPECT_EQ(refused.code, 65) << source;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("W0716 at " + source), HasSubstr("found "),
                                   HasSubstr("BF16"), HasSubstr("`weir checkpoint edit --cast ")));
  }
}

TEST_F(CheckpointVerbsTest, DiffEndsWithZeroIfEqualAndOneIfNot) {
  const Outcome equal = Weir({"checkpoint", "diff", run(), weights()});
  EXPECT_THAT(equal.out, StartsWith("equal"));
  EXPECT_EQ(equal.code, 0);
  const std::string other = Path("other.safetensors");
  const Outcome trained = Weir({"train", job(), "--threads", "1", "--steps", "1", "--save", other});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, StartsWith("1 step, loss "));
  const Outcome differs = Weir({"checkpoint", "diff", run(), other});
  EXPECT_THAT(differs.out, HasSubstr("differ"));
  EXPECT_EQ(differs.code, 1);
  EXPECT_EQ(differs.err, "");
  EXPECT_EQ(Weir({"checkpoint", "diff", run(), Path("none.safetensors")}).code, 66);
}

TEST_F(CheckpointVerbsTest, ADiffToWeightsAloneComparesTheWeights) {
  ASSERT_EQ(Weir({"train", job(), "--threads", "1", "--steps", "3", "--checkpoint", Path("c/"),
                  "--save", Path("w.safetensors")})
                .code,
            0);
  const Outcome b = Weir({"checkpoint", "diff", Path("c"), Path("w.safetensors")});
  EXPECT_EQ(b.code, 0);
  EXPECT_THAT(b.out, AllOf(StartsWith("equal: "), HasSubstr("\nB has only weights: "),
                           EndsWith(" other states of A are not compared\n")));
  EXPECT_THAT(Weir({"checkpoint", "diff", Path("w.safetensors"), Path("c")}).out,
              HasSubstr("\nA has only weights: "));
  const std::string earlier = Path("earlier.safetensors");
  ASSERT_EQ(Weir({"train", job(), "--threads", "1", "--steps", "1", "--save", earlier}).code, 0);
  const Outcome other = Weir({"checkpoint", "diff", Path("c"), earlier});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, AllOf(Not(HasSubstr("adam_m")), HasSubstr("B has only weights: ")));
  // An export of all states is a checkpoint, and what one lacks is a difference.
  ASSERT_EQ(
      Weir({"checkpoint", "edit", Path("c"), "-o", Path("less"), "--drop", "{*}/adam_m"}).code, 0);
  const Outcome less = Weir({"checkpoint", "diff", Path("c"), Path("less")});
  EXPECT_EQ(less.code, 1);
  EXPECT_THAT(less.out, AllOf(HasSubstr("adam_m"), Not(HasSubstr("only weights"))));
}

}  // namespace
}  // namespace weir::cli
