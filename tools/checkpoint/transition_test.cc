#include "tools/checkpoint/transition.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/checkpoint_testing.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/stored_dtype.h"
#include "tools/checkpoint/find_whole.h"

namespace weir::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

absl::Status CheckAt(const std::string& path,
                     TransitionOptions::Purpose purpose = TransitionOptions::Purpose::kResume) {
  const auto reader = store::SafetensorsReader::Open(path);
  if (!reader.ok()) return reader.status();
  const std::map<std::string, ExpectedState> states = StatesOfJob();
  TransitionOptions options;
  options.states = &states;
  options.purpose = purpose;
  options.depth = TransitionOptions::Depth::kContents;
  return CheckTransition(**reader, options).status();
}

// The sources of a run that goes on: the folder of a run, one file of all states, or the index of
// two files, the second one with the states of wq.
enum class Form : uint8_t { kFolder, kFile, kIndex };

std::string NameOf(const ::testing::TestParamInfo<Form>& form) {
  switch (form.param) {
    case Form::kFolder: return "Folder";
    case Form::kFile: return "File";
    case Form::kIndex: return "Index";
  }
  return "";
}

using ChangeValues = std::function<void(store::FolderForTest*)>;
using ChangeRecords = std::function<void(store::CheckpointIndex*)>;

class TransitionTest : public ::testing::TestWithParam<Form> {
 protected:
  bool is_folder() const { return GetParam() == Form::kFolder; }
  // The code for values that are not those that the run wrote. The checksum of a tensor in a file
  // takes the place of the checksums and the content sum in a folder.
  std::string ValueCode() const { return is_folder() ? "W0715" : "W0960"; }
  std::string Path(const std::string& name) const { return folder_.PathFor(name); }
  std::string FolderPath() const { return Path(store::StepFolderName(kStep)); }
  // The files of tensors of the form.
  std::vector<std::string> Files() const {
    if (GetParam() == Form::kFile) return {Path("c.safetensors")};
    return {Path("part-1.safetensors"), Path("part-2.safetensors")};
  }
  std::string SourcePath() const {
    if (is_folder()) return FolderPath();
    return GetParam() == Form::kFile ? Files()[0] : Path("c.json");
  }

  // Writes the sound checkpoint, then what a faulty program makes of it: `values` changes the
  // values, `records` what the checkpoint says of itself. Checksums of files of shards and of
  // headers fit what was written. Content sums, checksums of tensors in a file and seals stay those
  // of the sound one.
  void Write(const ChangeValues& values, const ChangeRecords& records = nullptr) {
    store::FolderForTest faulty = Sound();
    if (values) values(&faulty);
    if (is_folder()) {
      WriteFolder(faulty, records);
      return;
    }
    store::CheckpointIndex as;
    as.facts = Sound().facts;
    as.tensors = store::TensorFactsForTest(Sound());
    store::SealFacts(&as.facts);
    if (records) records(&as);
    std::vector<std::string> first, second;
    for (const auto& [name, tensor] : as.tensors)
      (GetParam() == Form::kIndex && name.starts_with("wq") ? second : first).push_back(name);
    WriteStates(Files()[0], as, first);
    if (GetParam() == Form::kIndex) {
      WriteStates(Files()[1], as, second);
      WriteIndexOf(first, second);
    }
    for (const auto& [name, tensor] : faulty.tensors) {
      if (tensor.values != Sound().tensors.at(name).values) Overwrite(name, tensor.values);
    }
  }
  // Writes one file with these tensors of the sound checkpoint, and zeros for others.
  void WriteStates(const std::string& path, const store::CheckpointIndex& as,
                   const std::vector<std::string>& names) {
    std::vector<store::SafetensorsWriter::Entry> entries;
    for (const std::string& name : names) {
      const store::TensorFacts& tensor = as.tensors.at(name);
      entries.push_back({name, *store::DTypeFromStoredName(tensor.dtype), tensor.shape});
    }
    const auto writer =
        store::SafetensorsWriter::Create(path, entries, store::CheckpointMetadataOf(as.facts))
            .value();
    const store::FolderForTest sound = Sound();
    for (size_t i = 0; i < writer->entries().size(); ++i) {
      const store::SafetensorsWriter::Entry& entry = writer->entries()[i];
      const auto known = sound.tensors.find(entry.name);
      std::vector<float> values = known != sound.tensors.end()
                                      ? known->second.values
                                      : std::vector<float>(NumElements(entry.shape));
      std::vector<decltype(ToBFloat16(0.0f))> rounded;
      for (const float value : values) rounded.push_back(ToBFloat16(value));
      const void* const data = entry.dtype == DType::kBF16
                                   ? static_cast<const void*>(rounded.data())
                                   : static_cast<const void*>(values.data());
      ASSERT_TRUE(writer->Write(i, data).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }
  void WriteIndexOf(const std::vector<std::string>& first, const std::vector<std::string>& second) {
    std::string map;
    for (const std::string& name : first)
      absl::StrAppend(&map, map.empty() ? "" : ",", "\"", name, "\":\"part-1.safetensors\"");
    for (const std::string& name : second)
      absl::StrAppend(&map, map.empty() ? "" : ",", "\"", name, "\":\"part-2.safetensors\"");
    folder_.Write("c.json", absl::StrCat("{\"weight_map\":{", map, "}}"));
  }

  std::string Text() const {
    const absl::Status status = CheckAt(SourcePath());
    return status.ok() ? "no fault was found" : std::string(status.message());
  }
  std::string TextAfter(const ChangeValues& values, const ChangeRecords& records = nullptr) {
    Write(values, records);
    return Text();
  }

  const TemporaryFolder folder_;

 private:
  void WriteFolder(const store::FolderForTest& faulty, const ChangeRecords& records) {
    ASSERT_TRUE(store::WriteFolderForTest(folder_.path(), 2, Sound()).ok());
    store::CheckpointIndex changed =
        store::ReadIndex(FolderPath() + "/" + store::kIndexFile).value();
    for (int32_t rank = 0; rank < 2; ++rank)
      changed.files[static_cast<size_t>(rank)] =
          store::WriteRankForTest(FolderPath(), rank, faulty).value();
    if (records) records(&changed);
    folder_.Write(store::StepFolderName(kStep) + "/" + store::kIndexFile,
                  store::EncodeIndex(changed));
  }
  // Puts values in the place of those of a tensor, and leaves the checksum as it is.
  void Overwrite(const std::string& name, const std::vector<float>& values) {
    for (const std::string& path : Files()) {
      const auto reader = store::SafetensorsReader::Open(path).value();
      const auto tensor = reader->tensors().find(name);
      if (tensor == reader->tensors().end()) continue;
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(tensor->second.begin);
      file.write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size() * sizeof(float)));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Forms, TransitionTest,
                         ::testing::Values(Form::kFolder, Form::kFile, Form::kIndex), NameOf);

TEST_P(TransitionTest, ASoundCheckpointPasses) {
  Write(nullptr);
  EXPECT_EQ(CheckAt(SourcePath()), absl::OkStatus());
}

TEST_P(TransitionTest, TheSameValuesUnderAnotherLayoutAreTheSameContents) {
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                from->tensors["gate_up"].boxes = {{{0, 0}, {4, 1}}, {{0, 1}, {4, 2}}};
              }),
              HasSubstr("no fault"));
}

// The ten faults of a conversion that a checkpoint must not survive unnoticed.

TEST_P(TransitionTest, Fault1PermutedValuesInsideATensor) {
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                std::swap(from->tensors["wq"].values[1], from->tensors["wq"].values[4]);
              }),
              AllOf(HasSubstr(ValueCode()), HasSubstr("tensor wq:")));
}

TEST_P(TransitionTest, Fault2FusedWeightSplitAtTheWrongPlace) {
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                // The halves exchange their places.
                std::vector<float>& values = from->tensors["gate_up"].values;
                std::rotate(values.begin(), values.begin() + 6, values.end());
              }),
              AllOf(HasSubstr(ValueCode()), HasSubstr("tensor gate_up:")));
}

TEST_P(TransitionTest, Fault3ATensorOverwrittenByAnother) {
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                from->tensors["wq"].values = from->tensors["wq/adam_m"].values;
              }),
              AllOf(HasSubstr(ValueCode()), HasSubstr("tensor wq:")));
}

TEST_P(TransitionTest, Fault4AStaleMoment) {
  // The values of an earlier step among those of this one.
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                for (float& value : from->tensors["wq/adam_m"].values) value *= 0.9f;
              }),
              AllOf(HasSubstr(ValueCode()), HasSubstr("tensor wq/adam_m:")));
  // A whole file of an earlier step.
  if (is_folder()) {
    EXPECT_THAT(
        TextAfter(nullptr, [](store::CheckpointIndex* index) { index->files[0].step = kStep - 1; }),
        AllOf(HasSubstr("W0717"), HasSubstr("tensor gate_up:"), HasSubstr("of step 11")));
  } else if (GetParam() == Form::kIndex) {
    Write(nullptr);
    store::CheckpointIndex earlier;
    earlier.facts = store::FactsForTest(kStep - 1);
    earlier.tensors = store::TensorFactsForTest(Sound());
    WriteStates(Files()[1], earlier, {"wq", "wq/adam_m"});
    EXPECT_THAT(Text(), AllOf(HasSubstr("W0717"), HasSubstr("of step 11")));
  }
}

TEST_P(TransitionTest, Fault5TheStepCounterReset) {
  // The files of a folder say of which step they are. A file says it once, under the seal.
  EXPECT_THAT(TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.step = 0; }),
              AllOf(HasSubstr(is_folder() ? "W0717" : "W0718"), HasSubstr("step 0")));
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.optimizer_step = 0; }),
      AllOf(HasSubstr("W0718"), HasSubstr("update 0")));
}

TEST_P(TransitionTest, Fault6APrecisionCast) {
  const auto cast = [](store::CheckpointIndex* index) {
    index->tensors["wq/adam_m"].dtype = "BF16";
    if (index->files.empty()) return;
    for (store::ShardRecord& shard : index->files[0].shards) {
      if (shard.tensor != "wq/adam_m") continue;
      shard.dtype = "BF16";
      shard.end = shard.begin + 12;
    }
  };
  EXPECT_THAT(TextAfter(nullptr, cast),
              AllOf(HasSubstr("W0716"), HasSubstr("tensor wq/adam_m:"),
                    HasSubstr(is_folder() ? "F32[3, 2]; found optimizer slot of BF16[3, 2]"
                                          : "F32[3, 2]; found BF16[3, 2]"),
                    HasSubstr("`weir checkpoint edit --cast wq/adam_m=F32`")));
  // Values that were rounded under the old type.
  EXPECT_THAT(TextAfter([](store::FolderForTest* from) {
                from->tensors["wq"].values[5] = ToFloat(ToBFloat16(100.5f + 1.0f / 512));
              }),
              AllOf(HasSubstr(ValueCode()), HasSubstr("tensor wq:")));
}

TEST_P(TransitionTest, Fault7TheDataCursorReset) {
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.cursor->samples = 0; }),
      AllOf(HasSubstr("W0718"), HasSubstr("data cursor: "),
            HasSubstr("found 0 samples at step 12")));
  EXPECT_THAT(
      TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.cursor.reset(); }),
      AllOf(HasSubstr("W0718"), HasSubstr("found none")));
}

TEST_P(TransitionTest, Fault8AShardNeverWritten) {
  if (is_folder()) {
    EXPECT_THAT(
        TextAfter(nullptr, [](store::CheckpointIndex* index) { index->files[1].shards.clear(); }),
        AllOf(HasSubstr("W0714"), HasSubstr("tensor gate_up:"),
              HasSubstr("12 elements; found owners of 6")));
  } else {
    EXPECT_THAT(TextAfter(nullptr,
                          [](store::CheckpointIndex* index) { index->tensors.erase("wq/adam_m"); }),
                AllOf(HasSubstr("W0716"), HasSubstr("tensor wq/adam_m:"), HasSubstr("found none")));
  }
  // The file is there, and its data was never written.
  Write(nullptr);
  const std::string last = is_folder() ? FolderPath() + "/rank-00001.safetensors" : Files().back();
  const auto size = std::filesystem::file_size(last);
  std::filesystem::resize_file(last, size - 24);
  std::filesystem::resize_file(last, size);
  EXPECT_THAT(Text(), is_folder() ? AllOf(HasSubstr("W0713"), HasSubstr("tensor gate_up:"))
                                  : AllOf(HasSubstr("W0960"), HasSubstr("tensor wq/adam_m:")));
  std::filesystem::remove(last);
  EXPECT_THAT(Text(), is_folder() ? AllOf(HasSubstr("W0712"), HasSubstr("tensor gate_up:"))
                                  : AllOf(HasSubstr("W0040"), HasSubstr(last)));
}

TEST_P(TransitionTest, Fault9TwoOwners) {
  if (is_folder()) {
    EXPECT_THAT(TextAfter(nullptr,
                          [](store::CheckpointIndex* index) {
                            index->files[1].shards[0].offset = {1, 0};
                          }),
                AllOf(HasSubstr("W0714"), HasSubstr("tensor gate_up:"), HasSubstr("found two")));
    return;
  }
  Write(nullptr);
  if (GetParam() == Form::kIndex) {
    store::CheckpointIndex as;
    as.facts = Sound().facts;
    as.tensors = store::TensorFactsForTest(Sound());
    WriteStates(Files()[0], as, {"gate_up", "wq"});
    EXPECT_THAT(Text(), AllOf(HasSubstr("W0047"), HasSubstr("tensor wq:")));
    return;
  }
  // The bytes of wq are those of its moment, too.
  std::ifstream in(Files()[0], std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  const size_t at = bytes.find("[72,96]");
  ASSERT_NE(at, std::string::npos);
  folder_.Write("c.safetensors", bytes.replace(at, 7, "[48,72]"));
  EXPECT_THAT(Text(), AllOf(HasSubstr("W0042"), HasSubstr("an overlap")));
}

TEST_P(TransitionTest, Fault10TwoRandomKeysExchanged) {
  EXPECT_THAT(TextAfter(nullptr,
                        [](store::CheckpointIndex* index) {
                          std::swap(index->facts.keys[0].key, index->facts.keys[1].key);
                        }),
              AllOf(HasSubstr("W0719"), HasSubstr("random key ")));
  EXPECT_THAT(TextAfter(nullptr, [](store::CheckpointIndex* index) { index->facts.keys.clear(); }),
              AllOf(HasSubstr("W0719"), HasSubstr("found none")));
  // A checkpoint without a cursor is read as weights, and its keys are compared with their seals.
  const auto without_cursor = [](store::CheckpointIndex* index) { index->facts.cursor.reset(); };
  Write(nullptr, without_cursor);
  EXPECT_EQ(CheckAt(SourcePath(), TransitionOptions::Purpose::kKeep), absl::OkStatus());
  Write(nullptr, [&](store::CheckpointIndex* index) {
    without_cursor(index);
    std::swap(index->facts.keys[0].key, index->facts.keys[1].key);
  });
  EXPECT_THAT(CheckAt(SourcePath(), TransitionOptions::Purpose::kKeep).message(),
              AllOf(HasSubstr("W0719"), HasSubstr("under another seal")));
}

TEST_P(TransitionTest, AFileOfAnotherRunOfTheSameStepIsRejected) {
  if (is_folder()) {
    EXPECT_THAT(
        TextAfter(nullptr, [](store::CheckpointIndex* index) { index->files[1].job_id = "j2"; }),
        AllOf(HasSubstr("W0967"), HasSubstr("rank-00001"), HasSubstr("shards of run j2")));
  } else if (GetParam() == Form::kIndex) {
    Write(nullptr);
    store::CheckpointIndex other;
    other.facts = store::FactsForTest(kStep);
    other.facts.job_id = "j2";
    other.facts.schedule = "0.2, constant";
    other.tensors = store::TensorFactsForTest(Sound());
    store::SealFacts(&other.facts);
    WriteStates(Files()[1], other, {"wq", "wq/adam_m"});
    EXPECT_THAT(Text(), AllOf(HasSubstr("W0967"), HasSubstr("part-1.safetensors of run j1"),
                              HasSubstr("part-2.safetensors of run j2")));
  }
}

TEST_P(TransitionTest, StatesOfAnotherJobAreRejectedByName) {
  if (is_folder()) {
    EXPECT_THAT(TextAfter(nullptr,
                          [](store::CheckpointIndex* index) {
                            index->tensors["wq/adam_m"].owner = store::StateOwner::kWeight;
                          }),
                AllOf(HasSubstr("W0716"), HasSubstr("tensor wq/adam_m:"),
                      HasSubstr("expected optimizer slot")));
    return;
  }
  EXPECT_THAT(
      TextAfter(nullptr,
                [](store::CheckpointIndex* as) {
                  as->tensors["wq"].shape = {2, 3};
                }),
      AllOf(HasSubstr("W0716"), HasSubstr("tensor wq: expected F32[3, 2]; found F32[2, 3]")));
  EXPECT_THAT(
      TextAfter(nullptr,
                [](store::CheckpointIndex* as) {
                  as->tensors["more"] = {"F32", {2}};
                }),
      AllOf(HasSubstr("W0716"), HasSubstr("tensor more:"), HasSubstr("the job does not have")));
}

// Opens files of one weight, whose metadata the tests choose.
class FileOfVersionTest : public ::testing::Test {
 protected:
  std::unique_ptr<store::SafetensorsReader> OpenWith(const store::Metadata& metadata) const {
    const std::string path = folder_.PathFor("c.safetensors");
    const auto writer =
        store::SafetensorsWriter::Create(path, {{"w", DType::kF32, {1}}}, metadata).value();
    const float value = 1;
    EXPECT_TRUE(writer->Write(0, &value).ok());
    EXPECT_TRUE(writer->Commit().ok());
    return store::SafetensorsReader::Open(path).value();
  }

  const TemporaryFolder folder_;
  const TransitionOptions options_{nullptr, TransitionOptions::Purpose::kResume,
                                   TransitionOptions::Depth::kContentsIfHere};
};

// The checksum of the header binds what such a file says of itself.
TEST_F(FileOfVersionTest, WithoutSealsPassesAndIsReadAsTheRunWroteIt) {
  store::CheckpointFacts facts = store::FactsForTest(kStep);
  facts.keys.clear();
  store::Metadata metadata = store::CheckpointMetadataOf(facts);
  metadata.erase("seal");
  const auto reader = OpenWith(metadata);
  EXPECT_EQ(CheckTransition(*reader, options_).value(), Contents::kChecked);
  EXPECT_EQ(RecordedIn(*reader).facts.keys.at(0).key, facts.cursor->seed);
}

TEST_F(FileOfVersionTest, WithSealsLacksNoneOfThem) {
  store::CheckpointFacts facts = store::FactsForTest(kStep);
  store::SealFacts(&facts);
  const store::Metadata sound = store::CheckpointMetadataOf(facts);
  EXPECT_EQ(CheckTransition(*OpenWith(sound), options_).value(), Contents::kChecked);
  for (const auto& [seal, code] :
       {std::make_pair("seal", "W0718"), std::make_pair("seal:dropout", "W0719")}) {
    store::Metadata metadata = sound;
    ASSERT_EQ(metadata.erase(seal), 1u);
    EXPECT_THAT(CheckTransition(*OpenWith(metadata), options_).status().message(), HasSubstr(code));
  }
}

// A file that is older than cursors says no more than this.
TEST_F(FileOfVersionTest, WithoutACursorIsForInit) {
  const auto reader = OpenWith({{"step", "12"}, {"key:training", "7"}});
  EXPECT_THAT(CheckTransition(*reader, options_).status().message(),
              AllOf(HasSubstr("W0718"), HasSubstr("found none. Try: --init")));
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

TEST_F(FindWholeTest, AStepWithoutItsIndexIsPassedOverWithAWord) {
  const auto has_none = [this](int64_t step) {
    return AllOf(StartsWith(Path(step) + " is damaged and is passed over: W0711 at "),
                 HasSubstr(absl::StrCat("expected ", store::StepFolderName(step),
                                        " with its index; found none in it")));
  };
  Damage(36);
  std::filesystem::remove(Path(24) + "/index.pb");
  std::vector<std::string> warnings = FindWhole(folder_.path()).value().warnings;
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_THAT(warnings[0], HasSubstr("W0713"));
  EXPECT_THAT(warnings[1], has_none(24));
  EXPECT_THAT(warnings[2], HasSubstr("does 24 steps again"));
  // `latest` names such a step.
  std::filesystem::remove(Path(36) + "/index.pb");
  const WholeCheckpoint whole = FindWhole(folder_.path()).value();
  EXPECT_EQ(whole.path, Path(12));
  ASSERT_EQ(whole.warnings.size(), 3u);
  EXPECT_THAT(whole.warnings[0], has_none(36));
  EXPECT_THAT(whole.warnings[1], has_none(24));
  // A later step than the latest is not passed over, and a file of such a name is no checkpoint.
  ASSERT_TRUE(store::PointLatest(folder_.path(), 12).ok());
  folder_.Write(store::StepFolderName(6), "");
  EXPECT_TRUE(FindWhole(folder_.path()).value().warnings.empty());
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
              AllOf(StartsWith(Path(24) + " is damaged and is passed over: W0713 at "),
                    Not(HasSubstr("Try:"))));
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

TEST_F(FindWholeTest, AFolderHasNoStepsIfNoCheckpointWasEverCommittedInIt) {
  EXPECT_FALSE(HasNoSteps(folder_.path()));
  const TemporaryFolder empty;
  EXPECT_TRUE(HasNoSteps(empty.path()));
  EXPECT_TRUE(HasNoSteps(empty.PathFor("absent/")));
  empty.Write("metrics.jsonl", "");
  EXPECT_TRUE(HasNoSteps(empty.path()));
  EXPECT_FALSE(HasNoSteps(empty.PathFor("metrics.jsonl"))) << "it is no folder";
  empty.Write("step-000000012.partial-0123456789abcdef/index.pb", "");
  EXPECT_TRUE(HasNoSteps(empty.path())) << "a killed run was writing the step";
  std::filesystem::create_directory(empty.PathFor("step-000000012"));
  EXPECT_FALSE(HasNoSteps(empty.path())) << "the step has lost its index";
}

}  // namespace
}  // namespace weir::checkpoint
