#include "tools/checkpoint/transition.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_testing.h"
#include "tools/checkpoint/find_whole.h"

namespace weir::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kStep = 12;

std::vector<float> Count(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

// A fused weight whose halves two ranks hold, another weight, and the optimiser's moment of it.
store::FolderForTest Sound() {
  store::FolderForTest from{store::FactsForTest(kStep), {}};
  from.tensors["gate_up"] = {{4, 3}, Count(12, 1.0f), {{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}}};
  from.tensors["wq"] = {{3, 2}, Count(6, 100.0f)};
  from.tensors["wq/adam_m"] = {{3, 2}, Count(6, 0.5f), {}, store::StateOwner::kOptimizerSlot};
  return from;
}

std::map<std::string, ExpectedState> StatesOfJob() {
  return {{"gate_up", {"F32", {4, 3}, store::StateOwner::kWeight}},
          {"wq", {"F32", {3, 2}, store::StateOwner::kWeight}},
          {"wq/adam_m", {"F32", {3, 2}, store::StateOwner::kOptimizerSlot}}};
}

absl::Status CheckAt(const std::string& path) {
  const auto shards = store::CheckpointShards::Open(path);
  if (!shards.ok()) return shards.status();
  const std::map<std::string, ExpectedState> states = StatesOfJob();
  TransitionOptions options;
  options.states = &states;
  options.depth = TransitionOptions::Depth::kContents;
  return CheckTransition(**shards, options);
}

// Writes the sound checkpoint, then what a faulty program makes of it: `values` changes the values
// that the files get (with checksums that fit them), `index` changes the index. The index keeps the
// content sums and seals of the sound one.
absl::Status CheckAfter(const std::function<void(store::FolderForTest*)>& values,
                        const std::function<void(store::CheckpointIndex*)>& index) {
  const TemporaryFolder folder;
  if (absl::Status written = store::WriteFolderForTest(folder.path(), 2, Sound()); !written.ok())
    return absl::InternalError(absl::StrCat("the test cannot write: ", written.message()));
  const std::string path = folder.PathFor(store::StepFolderName(kStep));
  store::CheckpointIndex changed = store::ReadIndex(path + "/" + store::kIndexFile).value();
  store::FolderForTest faulty = Sound();
  if (values) {
    values(&faulty);
    for (int32_t rank = 0; rank < 2; ++rank)
      changed.files[static_cast<size_t>(rank)] =
          store::WriteRankForTest(path, rank, faulty).value();
  }
  if (index) index(&changed);
  folder.Write(store::StepFolderName(kStep) + "/" + store::kIndexFile, store::EncodeIndex(changed));
  return CheckAt(path);
}

std::string TextAfter(const std::function<void(store::FolderForTest*)>& values,
                      const std::function<void(store::CheckpointIndex*)>& index = nullptr) {
  const absl::Status status = CheckAfter(values, index);
  return status.ok() ? "no fault was found" : std::string(status.message());
}

TEST(TransitionTest, ASoundCheckpointPasses) {
  EXPECT_TRUE(CheckAfter(nullptr, nullptr).ok());
  // The same values under another layout are the same contents.
  EXPECT_TRUE(CheckAfter(
                  [](store::FolderForTest* from) {
                    from->tensors["gate_up"].boxes = {{{0, 0}, {4, 1}}, {{0, 1}, {4, 2}}};
                  },
                  nullptr)
                  .ok());
}

// The ten faults of a conversion that a checkpoint must not survive unnoticed.

TEST(TransitionTest, Fault1PermutedValuesInsideATensor) {
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                std::swap(from->tensors["wq"].values[1], from->tensors["wq"].values[4]);
              }),
              AllOf(HasSubstr("W0715"), HasSubstr("tensor wq:")));
}

TEST(TransitionTest, Fault2FusedWeightSplitAtTheWrongPlace) {
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                // The halves exchange their places.
                std::vector<float>& values = from->tensors["gate_up"].values;
                std::rotate(values.begin(), values.begin() + 6, values.end());
              }),
              AllOf(HasSubstr("W0715"), HasSubstr("tensor gate_up:")));
}

TEST(TransitionTest, Fault3ATensorOverwrittenByAnother) {
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                from->tensors["wq"].values = from->tensors["wq/adam_m"].values;
              }),
              AllOf(HasSubstr("W0715"), HasSubstr("tensor wq:")));
}

TEST(TransitionTest, Fault4AStaleMoment) {
  // A whole file of an earlier step.
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->files[0].step = kStep - 1; }),
      AllOf(HasSubstr("W0717"), HasSubstr("tensor gate_up:"), HasSubstr("of step 11")));
  // The values of an earlier step in a file of this one.
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                for (float& value : from->tensors["wq/adam_m"].values) value *= 0.9f;
              }),
              AllOf(HasSubstr("W0715"), HasSubstr("tensor wq/adam_m:")));
}

TEST(TransitionTest, Fault5TheStepCounterReset) {
  EXPECT_THAT(TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.step = 0; }),
              AllOf(HasSubstr("W0717"), HasSubstr("tensor gate_up:")));
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.optimizer_step = 0; }),
      AllOf(HasSubstr("W0718"), HasSubstr("update 0")));
}

TEST(TransitionTest, Fault6APrecisionCast) {
  const auto cast = [](store::CheckpointIndex* index) {
    index->tensors["wq/adam_m"].dtype = "BF16";
    for (store::ShardRecord& shard : index->files[0].shards) {
      if (shard.tensor != "wq/adam_m") continue;
      shard.dtype = "BF16";
      shard.end = shard.begin + 12;
    }
  };
  EXPECT_THAT(TextAfter(nullptr, cast),
              AllOf(HasSubstr("W0716"), HasSubstr("tensor wq/adam_m:"),
                    HasSubstr("F32[3, 2]; found optimizer slot of BF16[3, 2]")));
  // Values that were rounded under the old type.
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                from->tensors["wq"].values[5] = ToFloat(ToBFloat16(100.5f + 1.0f / 512));
              }),
              AllOf(HasSubstr("W0715"), HasSubstr("tensor wq:")));
}

TEST(TransitionTest, Fault7TheDataCursorReset) {
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.cursor->samples = 0; }),
      AllOf(HasSubstr("W0718"), HasSubstr("data cursor: "),
            HasSubstr("found 0 samples at step 12")));
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.cursor.reset(); }),
      AllOf(HasSubstr("W0718"), HasSubstr("found none")));
}

TEST(TransitionTest, Fault8AShardNeverWritten) {
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->files[1].shards.clear(); }),
      AllOf(HasSubstr("W0714"), HasSubstr("tensor gate_up:"),
            HasSubstr("12 elements; found owners of 6")));
  // The file is there, and its data was never written.
  const TemporaryFolder folder;
  ASSERT_TRUE(store::WriteFolderForTest(folder.path(), 2, Sound()).ok());
  const std::string path = folder.PathFor("step-000000012/rank-00001.safetensors");
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 24);
  std::filesystem::resize_file(path, size);
  EXPECT_THAT(std::string(CheckAt(folder.path()).message()),
              AllOf(HasSubstr("W0713"), HasSubstr("tensor gate_up:")));
  std::filesystem::remove(path);
  EXPECT_THAT(std::string(CheckAt(folder.path()).message()),
              AllOf(HasSubstr("W0712"), HasSubstr("tensor gate_up:")));
}

TEST(TransitionTest, Fault9TwoOwners) {
  EXPECT_THAT(TextAfter(nullptr,
                        [](store::CheckpointIndex* index) {
                          index->files[1].shards[0].offset = {1, 0};
                        }),
              AllOf(HasSubstr("W0714"), HasSubstr("tensor gate_up:"), HasSubstr("found two")));
}

TEST(TransitionTest, Fault10TwoRandomKeysExchanged) {
  EXPECT_THAT(TextAfter(nullptr,
                        [](store::CheckpointIndex* index) {
                          std::swap(index->facts.keys[0].key, index->facts.keys[1].key);
                        }),
              AllOf(HasSubstr("W0719"), HasSubstr("random key training")));
  EXPECT_THAT(TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.keys.clear(); }),
              AllOf(HasSubstr("W0719"), HasSubstr("found none")));
}

TEST(TransitionTest, StatesOfAnotherJobAreRejectedByName) {
  EXPECT_THAT(TextAfter(nullptr,
                        [](store::CheckpointIndex* index) {
                          index->tensors["wq/adam_m"].owner = store::StateOwner::kWeight;
                        }),
              AllOf(HasSubstr("W0716"), HasSubstr("tensor wq/adam_m:"),
                    HasSubstr("expected optimizer slot")));
}

class FindWholeTest : public ::testing::Test {
 protected:
  // The folder has checkpoints of the steps 12, 24 and 36, and `latest` names the last.
  FindWholeTest() {
    for (const int64_t step : {12, 24, 36}) {
      store::FolderForTest from = Sound();
      from.facts = store::FactsForTest(step);
      EXPECT_TRUE(store::WriteFolderForTest(folder_.path(), 2, from).ok());
    }
  }
  std::string Path(int64_t step) const { return folder_.PathFor(store::StepFolderName(step)); }
  // Turns a bit of a value, which leaves the size as it is.
  void Damage(int64_t step) const {
    std::fstream file(Path(step) + "/rank-00000.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }

  const TemporaryFolder folder_;
};

TEST_F(FindWholeTest, TheLatestIsTakenWithoutAWordIfItIsWhole) {
  const WholeCheckpoint whole = FindWhole(folder_.path()).value();
  EXPECT_EQ(whole.path, Path(36));
  EXPECT_TRUE(whole.warnings.empty());
  EXPECT_TRUE(CheckNamed(Path(36)).ok());
}

TEST_F(FindWholeTest, ADamagedOneIsPassedOverWithItsFileAndTensorNamed) {
  Damage(36);
  std::filesystem::remove(Path(24) + "/rank-00001.safetensors");
  const WholeCheckpoint whole = FindWhole(folder_.path()).value();
  EXPECT_EQ(whole.path, Path(12));
  ASSERT_EQ(whole.warnings.size(), 3u);
  EXPECT_THAT(whole.warnings[0], HasSubstr("W0713"));
  EXPECT_THAT(whole.warnings[0], HasSubstr("step-000000036/rank-00000.safetensors, tensor"));
  EXPECT_THAT(whole.warnings[1], HasSubstr("W0712"));
  EXPECT_THAT(whole.warnings[2], HasSubstr("does 24 steps again"));
  EXPECT_THAT(std::string(CheckNamed(Path(36)).message()),
              HasSubstr("Try: " + Path(12) + ", the newest before it that is whole"));
}

// They may be of another run.
TEST_F(FindWholeTest, CheckpointsNewerThanTheLatestAreNotTaken) {
  ASSERT_TRUE(store::PointLatest(folder_.path(), 24).ok());
  const WholeCheckpoint whole = FindWhole(folder_.path()).value();
  EXPECT_EQ(whole.path, Path(24));
  EXPECT_TRUE(whole.warnings.empty());
  Damage(24);
  EXPECT_EQ(FindWhole(folder_.path()).value().path, Path(12));
  EXPECT_THAT(FindWhole(folder_.path()).value().warnings[0],
              HasSubstr("`weir checkpoint verify " + folder_.path() + " --all-steps`"));
}

TEST_F(FindWholeTest, ALatestThatNamesNoneCostsNoCheckpoint) {
  std::filesystem::remove_all(Path(36));
  EXPECT_EQ(FindWhole(folder_.path()).value().path, Path(24));
  folder_.Write("latest", "step-000000012 00000000\n");
  EXPECT_EQ(FindWhole(folder_.path()).value().path, Path(24));
  std::filesystem::remove(folder_.PathFor("latest"));
  EXPECT_THAT(FindWhole(folder_.path()).value().warnings[0], HasSubstr("no `latest`"));
  ASSERT_EQ(::mkfifo(folder_.PathFor("latest").c_str(), 0600), 0);
  EXPECT_EQ(FindWhole(folder_.path()).value().path, Path(24));
  EXPECT_THAT(FindWhole(folder_.path()).value().warnings[0],
              HasSubstr("no plain file; the newest checkpoint that is whole counts"));
}

TEST_F(FindWholeTest, WithoutAnyThatIsWholeTheErrorTellsWhatTheNewestLacks) {
  for (const int64_t step : {12, 24, 36}) Damage(step);
  const std::string text(FindWhole(folder_.path()).status().message());
  EXPECT_THAT(text, HasSubstr("W0725"));
  EXPECT_THAT(text, HasSubstr("3 checkpoints, none of them whole"));
  EXPECT_THAT(text, HasSubstr("rank-00000.safetensors"));
  // One sentence, and one advice.
  EXPECT_THAT(text, Not(HasSubstr("..")));
  EXPECT_EQ(text.find("Try: "), text.rfind("Try: ")) << text;
  const TemporaryFolder empty;
  EXPECT_THAT(std::string(FindWhole(empty.path()).status().message()), HasSubstr("W0711"));
}

TEST_F(FindWholeTest, AFolderHasNoStepsIfNoCheckpointWasEverBegunInIt) {
  EXPECT_FALSE(HasNoSteps(folder_.path()));
  const TemporaryFolder empty;
  EXPECT_TRUE(HasNoSteps(empty.path()));
  EXPECT_TRUE(HasNoSteps(empty.PathFor("absent/")));
  empty.Write("metrics.jsonl", "");
  EXPECT_TRUE(HasNoSteps(empty.path()));
  EXPECT_FALSE(HasNoSteps(empty.PathFor("metrics.jsonl"))) << "it is no folder";
  std::filesystem::create_directory(empty.PathFor("step-000000012.partial-0123456789abcdef"));
  EXPECT_FALSE(HasNoSteps(empty.path()));
}

}  // namespace
}  // namespace weir::checkpoint
