#include "tools/train/session_states.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_metadata.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

// The class decides what a state is for; none of these names does. So a file passes whose names say
// otherwise.
const std::map<std::string, StateType> kStates = {
    {"a/b", {DType::kF32, {2}, actors::StateClass::kWeight}},
    {"moment", {DType::kF32, {2}, actors::StateClass::kOptimizerSlot}},
    {"late", {DType::kF32, {2}, actors::StateClass::kDelayedGradient}},
    {"logits", {DType::kF32, {2}, actors::StateClass::kFetched}},
};

// Writes a file with the states of `set` but those that are `left_out`, and opens it.
std::unique_ptr<store::SafetensorsReader> Written(StateSet set, const std::string& left_out,
                                                  const std::string& name = "states.safetensors") {
  std::map<std::string, StateType> states = kStates;
  states.erase(left_out);
  const std::string path = TemporaryPath(name);
  store::CheckpointFacts facts;
  facts.cursor = store::DataCursor{};
  facts.keys = {{"training", 0}};
  store::SealFacts(&facts);
  absl::StatusOr<std::unique_ptr<store::SafetensorsWriter>> writer =
      BeginSave(states, set, store::CheckpointMetadataOf(facts), path);
  EXPECT_TRUE(writer.ok()) << writer.status();
  const float values[2] = {1, 2};
  for (size_t i = 0; i < (*writer)->entries().size(); ++i)
    EXPECT_EQ((*writer)->Write(i, values), absl::OkStatus());
  EXPECT_EQ((*writer)->Commit(), absl::OkStatus());
  absl::StatusOr<std::unique_ptr<store::SafetensorsReader>> file =
      store::SafetensorsReader::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

std::vector<std::string> NamesIn(const store::SafetensorsReader& file) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors()) names.push_back(name);
  return names;
}

TEST(SessionStatesTest, ClassesDecideWhatAFileHas) {
  EXPECT_THAT(NamesIn(*Written(StateSet::kWeights, "")), ::testing::ElementsAre("a/b"));
  EXPECT_THAT(NamesIn(*Written(StateSet::kAll, "")),
              ::testing::ElementsAre("a/b", "late", "moment"));
}

TEST(SessionStatesTest, ClassesDecideWhatACheckpointMustHave) {
  EXPECT_EQ(CheckCheckpoint(*Written(StateSet::kAll, ""), kStates), absl::OkStatus());
  const absl::Status no_weight = CheckCheckpoint(*Written(StateSet::kAll, "a/b"), kStates);
  EXPECT_THAT(std::string(no_weight.message()), HasSubstr("found no a/b"));
}

TEST(SessionStatesTest, AFileOfOtherTypesOrShapesIsRefusedAsAFolderIs) {
  std::map<std::string, StateType> states = kStates;
  states.at("moment").dtype = DType::kBF16;
  EXPECT_THAT(std::string(CheckCheckpoint(*Written(StateSet::kAll, ""), states).message()),
              HasSubstr("tensor moment: expected BF16[2]; found F32[2]"));
  states = kStates;
  states.at("a/b").shape = {1, 2};
  EXPECT_THAT(std::string(CheckCheckpoint(*Written(StateSet::kAll, ""), states).message()),
              HasSubstr("tensor a/b: expected F32[1, 2]; found F32[2]"));
}

TEST(SessionStatesTest, WhoResumesFromWeightsAloneIsTold) {
  EXPECT_THAT(std::string(CheckCheckpoint(*Written(StateSet::kWeights, ""), kStates).message()),
              HasSubstr("--resume needs a --checkpoint"));
}

// The checkpoint of a run with another optimiser, say, is one, and --resume is not to blame.
TEST(SessionStatesTest, WhoResumesWithOtherSettingsIsToldWhichOnes) {
  const auto hint = [](const std::string& left_out) {
    return std::string(CheckCheckpoint(*Written(StateSet::kAll, left_out), kStates).message());
  };
  EXPECT_THAT(hint("moment"), HasSubstr("Try: the training.optimizer, training.group"));
  EXPECT_THAT(hint("late"), HasSubstr("or --init "));
  EXPECT_THAT(hint("a/b"), HasSubstr("use weights saved from the same model"));
}

TEST(SessionStatesTest, WhoResumesFromOneFileOfSeveralIsToldTheIndex) {
  const auto one = Written(StateSet::kAll, "moment", "c-00001-of-00002.safetensors");
  const std::string index = TemporaryPath("c.safetensors.index.json");
  EXPECT_THAT(
      std::string(CheckCheckpoint(*one, kStates).message()),
      HasSubstr("no moment; the file is one of the 2 files of " + index + ". Try: " + index));
}

TEST(SessionStatesTest, WeightTypesAreThoseOfWeights) {
  const weights::WeightTypes types = WeightTypesOf(kStates);
  ASSERT_EQ(types.size(), 1u);
  EXPECT_EQ(types.at("a/b").shape, Shape({2}));
}

}  // namespace
}  // namespace weir::train
