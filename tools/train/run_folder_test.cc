// Tests what a run knows of its folder of checkpoints while people rename and remove things there.
#include "tools/train/run_folder.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/checkpoint_testing.h"
#include "runtime/store/safetensors.h"

namespace weir::train {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

class RunFolderTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return place_.PathFor(name); }
  std::string StepIn(const std::string& folder, int64_t step) const {
    return absl::StrCat(Path(folder), "/", store::StepFolderName(step));
  }
  // Does what a run does for a checkpoint. Returns what it says before.
  std::string Write(int64_t step) {
    std::string said = folder_.NoteRenaming();
    const absl::Status claimed = folder_.Claim();
    EXPECT_TRUE(claimed.ok()) << claimed;
    WriteOf(folder_.run_id(), "c", step);
    folder_.NoteWritten(step, checkpoint::IdentityOf(StepIn("c", step)).value().sum);
    return said;
  }
  // Writes a checkpoint of any run, in the place of one that is there.
  void WriteOf(const std::string& run, const std::string& folder, int64_t step,
               float value = 1.0f) const {
    store::FolderForTest from{store::FactsForTest(step), {}};
    from.facts.job_id = run;
    from.tensors["x"] = {{3}, {value, 2.0f, 3.0f}};
    EXPECT_TRUE(store::WriteFolderForTest(Path(folder), 1, from).ok());
  }
  // Returns the path of the newest checkpoint that is there, without symbolic links.
  std::string LastPath() const {
    const std::optional<RunFolder::Written> last = folder_.Last();
    return last.has_value() ? fs::canonical(last->path).string() : "";
  }

  const TemporaryFolder place_;
  RunFolder folder_{place_.PathFor("c") + "/"};
};

TEST_F(RunFolderTest, TheRightLastsFromTheFirstClaimToTheEndOfTheRun) {
  EXPECT_FALSE(folder_.has_begun());
  ASSERT_TRUE(folder_.Claim().ok());
  EXPECT_TRUE(folder_.has_begun());
  EXPECT_TRUE(folder_.Claim().ok());
  RunFolder other(Path("c"));
  EXPECT_TRUE(store::FolderClaim::IsOfAnotherRun(other.Claim()));
  EXPECT_FALSE(other.has_begun());
}

TEST_F(RunFolderTest, AFolderThatCannotBeMadeOrWrittenIsNotHeld) {
  RunFolder refused("/proc/");
  EXPECT_FALSE(refused.Claim().ok());
  EXPECT_FALSE(refused.has_begun());
  EXPECT_FALSE(RunFolder(Path("no/folder/")).Claim().ok());
}

TEST_F(RunFolderTest, CheckpointsInARenamedFolderCountUntilOneIsInTheNewFolder) {
  Write(2);
  Write(4);
  fs::rename(Path("c"), Path("moved"));
  EXPECT_EQ(LastPath(), fs::canonical(StepIn("moved", 4)));
  EXPECT_EQ(fs::canonical(folder_.PresentPathOf(StepIn("c", 2))),
            fs::canonical(StepIn("moved", 2)));
  EXPECT_THAT(
      folder_.NoteRenaming(),
      AllOf(HasSubstr("somebody has renamed or removed " + Path("c")), HasSubstr("/moved")));
  EXPECT_EQ(folder_.NoteRenaming(), "");
  EXPECT_EQ(LastPath(), fs::canonical(StepIn("moved", 4)));
  // Nobody else may write into either folder.
  EXPECT_FALSE(RunFolder(Path("moved")).Claim().ok());
  Write(6);
  EXPECT_EQ(LastPath(), fs::canonical(StepIn("c", 6)));
  EXPECT_FALSE(RunFolder(Path("c")).Claim().ok());
  EXPECT_TRUE(RunFolder(Path("moved")).Claim().ok());
}

TEST_F(RunFolderTest, AFolderThatIsRenamedBeforeTheFirstCheckpointHasNoneThatCount) {
  ASSERT_TRUE(folder_.Claim().ok());
  fs::rename(Path("c"), Path("moved"));
  EXPECT_THAT(folder_.NoteRenaming(), AllOf(HasSubstr("somebody has renamed or removed"),
                                            Not(HasSubstr("Those of before"))));
}

TEST_F(RunFolderTest, AFolderThatIsRenamedTwiceAndBackIsStillTheRuns) {
  Write(2);
  fs::rename(Path("c"), Path("moved"));
  EXPECT_NE(folder_.NoteRenaming(), "");
  ASSERT_TRUE(folder_.Claim().ok());
  // The new folder has no checkpoint when it goes, too.
  fs::rename(Path("c"), Path("empty"));
  EXPECT_NE(folder_.NoteRenaming(), "");
  fs::rename(Path("moved"), Path("farther"));
  EXPECT_EQ(LastPath(), fs::canonical(StepIn("farther", 2)));
  fs::rename(Path("farther"), Path("c"));
  EXPECT_TRUE(folder_.Claim().ok());
  EXPECT_EQ(folder_.NoteRenaming(), "");
  Write(4);
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(2, 4));
}

TEST_F(RunFolderTest, AFolderThatIsRemovedHasNothingOfTheRun) {
  Write(2);
  fs::remove_all(Path("c"));
  EXPECT_FALSE(folder_.Last().has_value());
  EXPECT_THAT(folder_.NoteRenaming(), HasSubstr("somebody has renamed or removed"));
  EXPECT_TRUE(folder_.has_begun()) << "the run goes on";
  Write(4);
  EXPECT_EQ(folder_.Last()->step, 4);
}

TEST_F(RunFolderTest, ARestartPassesOverWhatIsRemovedOrDamaged) {
  for (const int64_t step : {2, 4, 6, 8}) Write(step);
  EXPECT_THAT(folder_.GoBackToWhole().warnings, IsEmpty());
  fs::remove_all(StepIn("c", 8));
  EXPECT_EQ(folder_.Last()->step, 6);
  for (const auto& entry : fs::directory_iterator(StepIn("c", 6)))
    std::ofstream(entry.path()) << "damaged";
  const checkpoint::WholeCheckpoint whole = folder_.GoBackToWhole();
  EXPECT_EQ(whole.path, StepIn("c", 4));
  EXPECT_THAT(whole.warnings,
              ElementsAre(AllOf(HasSubstr(StepIn("c", 8)), HasSubstr("it is no longer there")),
                          AllOf(HasSubstr(StepIn("c", 6)), HasSubstr("is damaged")),
                          HasSubstr("does 4 steps again")));
  EXPECT_EQ(folder_.Last()->step, 4);
}

TEST_F(RunFolderTest, ARestartTakesNoCheckpointOfAnEarlierRunInTheSameFolder) {
  store::FolderForTest from{store::FactsForTest(1), {}};
  from.tensors["x"] = {{3}, {1.0f, 2.0f, 3.0f}};
  ASSERT_TRUE(store::WriteFolderForTest(Path("c"), 1, from).ok());
  EXPECT_FALSE(folder_.Last().has_value());
  Write(2);
  fs::remove_all(StepIn("c", 2));
  EXPECT_FALSE(folder_.Last().has_value());
  EXPECT_EQ(folder_.GoBackToWhole().path, "");
}

TEST_F(RunFolderTest, EachRunHasAnIdOfItsOwn) {
  EXPECT_EQ(folder_.run_id().size(), 16u);
  EXPECT_NE(folder_.run_id(), RunFolder(Path("c")).run_id());
}

TEST_F(RunFolderTest, ARestartTakesNoCheckpointThatAnotherRunHasPutInThePlaceOfOneOfThisRun) {
  Write(2);
  Write(4);
  WriteOf("other", "c", 4);
  const RunFolder::Found found = folder_.FindWritten(RunFolder::Depth::kIdentity);
  EXPECT_EQ(found.written->step, 2);
  const auto is_another =
      AllOf(HasSubstr(StepIn("c", 4) + " is passed over: W0967"),
            HasSubstr("expected the checkpoint of step 4 of run " + folder_.run_id()),
            HasSubstr("found the checkpoint of step 4 of run other"), Not(HasSubstr("Try:")));
  EXPECT_THAT(found.warnings, ElementsAre(is_another));
  EXPECT_THAT(folder_.CheckKnown(StepIn("c", 4)).message(), HasSubstr("W0967"));
  const checkpoint::WholeCheckpoint whole = folder_.GoBackToWhole();
  EXPECT_EQ(whole.path, StepIn("c", 2));
  EXPECT_THAT(whole.warnings, ElementsAre(is_another, HasSubstr("does 2 steps again")));
}

TEST_F(RunFolderTest, ARestartBeginsWithTheCheckpointOfTheFirstStartOrWithAnOlderOneThatIsTheSame) {
  for (const int64_t step : {5, 10, 20}) WriteOf("earlier", "e", step);
  folder_.NoteStart(StepIn("e", 20));
  EXPECT_TRUE(folder_.CheckKnown(StepIn("e", 20)).ok());
  EXPECT_EQ(folder_.GoBackToWhole().path, StepIn("e", 20));
  EXPECT_THAT(folder_.GoBackToWhole().warnings, IsEmpty());
  WriteOf("other", "e", 20);
  WriteOf("other", "e", 15);  // nothing is known of it
  EXPECT_THAT(folder_.CheckKnown(StepIn("e", 20)).message(),
              AllOf(HasSubstr("W0967 at " + StepIn("e", 20)),
                    HasSubstr("expected the checkpoint of step 20 of run earlier"),
                    HasSubstr("found the checkpoint of step 20 of run other")));
  const checkpoint::WholeCheckpoint older = folder_.GoBackToWhole();
  EXPECT_EQ(older.path, StepIn("e", 10));
  EXPECT_THAT(older.warnings, ElementsAre(HasSubstr("W0967"), HasSubstr("does 10 steps again")));
  fs::remove_all(StepIn("e", 10));
  WriteOf("other", "e", 5);
  // Whoever loads the checkpoint of the first start gets the error.
  EXPECT_EQ(folder_.GoBackToWhole().path, StepIn("e", 20));
  EXPECT_FALSE(folder_.CheckKnown(StepIn("e", 20)).ok());
}

TEST_F(RunFolderTest, ARestartTakesNoCopyOfACheckpointOfThisRunThatSomebodyHasEdited) {
  Write(2);
  Write(4);
  WriteOf(folder_.run_id(), "c", 4);
  EXPECT_EQ(folder_.GoBackToWhole().path, StepIn("c", 4)) << "the same bytes";
  WriteOf(folder_.run_id(), "c", 4, 7.0f);
  EXPECT_THAT(folder_.CheckKnown(StepIn("c", 4)).message(), HasSubstr("W0967"));
  EXPECT_EQ(folder_.GoBackToWhole().path, StepIn("c", 2));
}

TEST_F(RunFolderTest, AStartThatHasLoadedNothingGoesBackFurtherOnlyIfItsCheckpointIsNotWhatItWas) {
  for (const int64_t step : {2, 4, 6, 8}) Write(step);
  EXPECT_FALSE(folder_.GoBackFurther(StepIn("c", 8)).has_value()) << "the error is another one";
  EXPECT_FALSE(folder_.GoBackFurther(StepIn("c", 4)).has_value()) << "though newer ones are there";
  fs::remove_all(StepIn("c", 8));
  const std::optional<checkpoint::WholeCheckpoint> other = folder_.GoBackFurther(StepIn("c", 8));
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->path, StepIn("c", 6));
  EXPECT_THAT(other->warnings,
              ElementsAre(HasSubstr(StepIn("c", 8)), HasSubstr("does 2 steps again")));
  WriteOf("other", "c", 6);
  EXPECT_EQ(folder_.GoBackFurther(StepIn("c", 6))->path, StepIn("c", 4));
  for (const auto& entry : fs::directory_iterator(StepIn("c", 4)))
    std::ofstream(entry.path()) << "damaged";
  EXPECT_EQ(folder_.GoBackFurther(StepIn("c", 4))->path, StepIn("c", 2));
  fs::remove_all(StepIn("c", 2));
  EXPECT_EQ(folder_.GoBackFurther(StepIn("c", 2))->path, "") << "the run began without one";
  EXPECT_FALSE(folder_.GoBackFurther("").has_value()) << "nothing is left to pass over";
}

TEST_F(RunFolderTest, AStartThatHasLoadedNothingFollowsAFolderThatIsRenamed) {
  Write(2);
  fs::rename(Path("c"), Path("moved"));
  const std::optional<checkpoint::WholeCheckpoint> moved = folder_.GoBackFurther(StepIn("c", 2));
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(fs::canonical(moved->path), fs::canonical(StepIn("moved", 2)));
  EXPECT_FALSE(folder_.GoBackFurther(moved->path).has_value());
}

TEST_F(RunFolderTest, AStartGoesBackFurtherThanTheCheckpointOfTheFirstStartWhileThereAreOlderOnes) {
  for (const int64_t step : {10, 20}) WriteOf("earlier", "e", step);
  folder_.NoteStart(StepIn("e", 20));
  EXPECT_FALSE(folder_.GoBackFurther(StepIn("e", 20)).has_value());
  WriteOf("other", "e", 20);
  EXPECT_EQ(folder_.GoBackFurther(StepIn("e", 20))->path, StepIn("e", 10));
  fs::remove_all(StepIn("e", 10));
  EXPECT_EQ(folder_.GoBackFurther(StepIn("e", 10))->path, StepIn("e", 20));
  EXPECT_FALSE(folder_.GoBackFurther(StepIn("e", 20)).has_value()) << "its own error is told";
}

TEST_F(RunFolderTest, ARunThatEndsWithItsFirstFailureReadsNoCheckpointToCompareLater) {
  for (const int64_t step : {10, 20}) WriteOf("earlier", "e", step);
  RunFolder once(Path("c") + "/", RunFolder::Loads::kOnce);
  once.NoteStart(StepIn("e", 20));
  WriteOf("other", "e", 20);
  EXPECT_TRUE(once.CheckKnown(StepIn("e", 20)).ok());
  EXPECT_EQ(once.GoBackToWhole().path, StepIn("e", 20));
}

TEST_F(RunFolderTest, ACheckpointWithoutAnIdIsToldFromAnotherByItsChecksum) {
  WriteOf("", "e", 20);
  folder_.NoteStart(StepIn("e", 20));
  EXPECT_TRUE(folder_.CheckKnown(StepIn("e", 20)).ok());
  WriteOf("", "e", 20);
  EXPECT_TRUE(folder_.CheckKnown(StepIn("e", 20)).ok()) << "the same bytes";
  WriteOf("", "e", 20, 7.0f);
  EXPECT_THAT(folder_.CheckKnown(StepIn("e", 20)).message(),
              AllOf(HasSubstr("W0967"), HasSubstr("with the checksum ")));
}

TEST_F(RunFolderTest, TheRunMayReplaceTheCheckpointWithWhichItBegan) {
  WriteOf("earlier", "c", 2);
  folder_.NoteStart(StepIn("c", 2));
  Write(2);
  EXPECT_TRUE(folder_.CheckKnown(StepIn("c", 2)).ok());
  EXPECT_EQ(folder_.GoBackToWhole().path, StepIn("c", 2));
}

TEST_F(RunFolderTest, TheRunsOwnAreThoseThatItHasWrittenAndThoseUpToTheOneThatItResumed) {
  const auto sum_of = [this](int64_t step) {
    return checkpoint::IdentityOf(StepIn("c", step)).value().sum;
  };
  for (const int64_t step : {2, 4, 6}) WriteOf("earlier", "c", step);
  folder_.NoteStart(StepIn("c", 4) + "/");
  const uint32_t first = sum_of(2), second = sum_of(4);
  EXPECT_THAT(folder_.own(), ElementsAre(Pair(2, first), Pair(4, second)));
  Write(8);
  fs::rename(Path("c"), Path("moved"));
  WriteOf("other", "c", 2);
  const uint32_t before = checkpoint::IdentityOf(StepIn("moved", 8)).value().sum;
  Write(10);
  EXPECT_THAT(folder_.own(),
              ElementsAre(Pair(2, first), Pair(4, second), Pair(8, before), Pair(10, sum_of(10))));
}

TEST_F(RunFolderTest, ACheckpointOfAnotherFolderThatARunResumesIsNotItsOwn) {
  for (const char* folder : {"c", "e"}) WriteOf("earlier", folder, 4);
  folder_.NoteStart(StepIn("e", 4));
  EXPECT_THAT(folder_.own(), IsEmpty());
}

// Writes a checkpoint of `step` in one file, which does not name its run, and returns the sum of
// its header.
uint32_t WriteFile(const std::string& path, int64_t step, float value) {
  store::CheckpointFacts facts = store::FactsForTest(step);
  facts.job_id.clear();
  store::SealFacts(&facts);
  const auto writer = store::SafetensorsWriter::Create(path, {{"x", DType::kF32, {1}}},
                                                       store::CheckpointMetadataOf(facts));
  EXPECT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE((*writer)->Write(0, &value).ok());
  EXPECT_TRUE((*writer)->Commit().ok());
  return (*writer)->header_sum();
}

TEST_F(RunFolderTest, AFileIsThereOrNot) {
  RunFolder file(Path("file"));
  EXPECT_FALSE(file.has_begun());
  ASSERT_TRUE(file.Claim().ok());
  EXPECT_TRUE(file.has_begun());
  EXPECT_FALSE(file.Last().has_value());
  file.NoteFile(2, WriteFile(Path("file"), 2, 1.0f));
  file.NoteFile(4, WriteFile(Path("file"), 4, 1.0f));
  EXPECT_EQ(file.Last()->step, 4);
  EXPECT_EQ(file.GoBackToWhole().path, Path("file"));
  fs::remove(Path("file"));
  EXPECT_FALSE(file.Last().has_value());
  EXPECT_EQ(file.GoBackToWhole().path, "");
}

TEST_F(RunFolderTest, AFileThatAnotherRunHasReplacedIsToldByItsChecksum) {
  const auto is_another = AllOf(HasSubstr("W0967"), HasSubstr("of step 4 with the checksum "));
  RunFolder file(Path("file"));
  WriteFile(Path("begun"), 4, 1.0f);
  file.NoteStart(Path("begun"));
  ASSERT_TRUE(file.Claim().ok());
  file.NoteFile(4, WriteFile(Path("file"), 4, 1.0f));
  EXPECT_TRUE(file.CheckKnown(Path("file")).ok());
  EXPECT_EQ(file.GoBackToWhole().path, Path("file"));
  // The step is the same, and so are all sizes.
  WriteFile(Path("file"), 4, 2.0f);
  EXPECT_THAT(file.CheckKnown(Path("file")).message(), is_another);
  const checkpoint::WholeCheckpoint begun = file.GoBackToWhole();
  EXPECT_EQ(begun.path, Path("begun"));
  EXPECT_THAT(begun.warnings, ElementsAre(is_another));
  EXPECT_TRUE(file.CheckKnown(Path("begun")).ok());
  WriteFile(Path("begun"), 4, 2.0f);
  EXPECT_THAT(file.CheckKnown(Path("begun")).message(), is_another);
  // Whoever loads the checkpoint of the first start gets the error.
  EXPECT_EQ(file.GoBackToWhole().path, Path("begun"));
}

TEST_F(RunFolderTest, ADamagedFileIsPassedOverForTheCheckpointWithWhichTheRunBegan) {
  RunFolder file(Path("file"));
  WriteFile(Path("begun"), 2, 1.0f);
  file.NoteStart(Path("begun"));
  ASSERT_TRUE(file.Claim().ok());
  file.NoteFile(4, WriteFile(Path("file"), 4, 1.0f));
  EXPECT_FALSE(file.GoBackFurther(Path("file")).has_value());
  std::fstream stream(Path("file"), std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(-1, std::ios::end).put('\x7f');  // in the last value
  stream.close();
  EXPECT_TRUE(file.CheckKnown(Path("file")).ok()) << "the header is as it was";
  const std::optional<checkpoint::WholeCheckpoint> other = file.GoBackFurther(Path("file"));
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->path, Path("begun"));
  EXPECT_THAT(other->warnings, ElementsAre(HasSubstr("is damaged and is passed over")));
  EXPECT_FALSE(file.GoBackFurther(Path("begun")).has_value());
}

TEST(RunWithoutCheckpointsTest, TheRunHasBegunOnceItHasAskedForItsPlace) {
  RunFolder none("");
  EXPECT_FALSE(none.has_begun());
  ASSERT_TRUE(none.Claim().ok());
  EXPECT_TRUE(none.has_begun());
}

TEST(IsFolderPathTest, ASlashOrAFolderSaysSo) {
  const TemporaryFolder folder;
  EXPECT_TRUE(IsFolderPath(folder.PathFor("new") + "/"));
  EXPECT_FALSE(IsFolderPath(folder.PathFor("new")));
  EXPECT_FALSE(IsFolderPath(""));
  std::filesystem::create_directory(folder.PathFor("new"));
  EXPECT_TRUE(IsFolderPath(folder.PathFor("new")));
}

}  // namespace
}  // namespace weir::train
