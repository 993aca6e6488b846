// Import, edit, export and diff: what goes in comes out, under other names, types and files.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/checkpoint_testing.h"
#include "tools/checkpoint/describe.h"
#include "tools/checkpoint/diff_checkpoints.h"
#include "tools/checkpoint/export_safetensors.h"
#include "tools/checkpoint/open_tensors.h"
#include "tools/checkpoint/rewrite.h"

namespace weir::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

std::vector<float> CountFrom(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

class ConvertTest : public ::testing::Test {
 protected:
  ConvertTest() {
    store::FolderForTest from{store::FactsForTest(12), {}};
    from.tensors["layers.0.wq"] = {
        {4, 6}, CountFrom(24, 1.0f), {{{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}}};
    from.tensors["layers.0.wq/adam_m"] = {
        {4, 6}, CountFrom(24, 0.5f), {}, store::StateOwner::kOptimizerSlot};
    from.tensors["head"] = {{5}, CountFrom(5, 9.0f)};
    EXPECT_TRUE(store::WriteFolderForTest(run(), 2, from).ok());
  }

  std::string run() const { return folder_.PathFor("run"); }
  OpenTensors Opened(const std::string& path) const {
    absl::StatusOr<OpenTensors> opened = OpenSound(path);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  CheckpointDiff DiffTo(const std::string& path) const {
    return Diff(Opened(run()), Opened(path)).value();
  }
  // Edits the run and returns the message of the error.
  std::string ErrorOfEdit(const Edits& edits) const {
    const OpenTensors from = Opened(run());
    return std::string(Apply(edits, AllOf(from).value(), run()).status().message());
  }

  const TemporaryFolder folder_;
};

// Returns the facts and their seals as bytes.
std::string BytesOf(store::CheckpointFacts facts) {
  std::sort(facts.keys.begin(), facts.keys.end(),
            [](const store::RandomKey& a, const store::RandomKey& b) { return a.name < b.name; });
  return store::EncodeIndex({facts, {}, {}});
}

TEST_F(ConvertTest, AnExportOfAllStatesIsTheCheckpointInAnotherForm) {
  for (const int64_t file_bytes : {1 << 20, 50}) {
    SCOPED_TRACE(file_bytes);
    const std::string name = std::to_string(file_bytes);
    const std::string copy = folder_.PathFor("copy-" + name);
    const auto paths = ExportSafetensors(Opened(run()), {folder_.PathFor(name + ".safetensors"),
                                                         file_bytes, ExportOrder::What::kAll});
    ASSERT_TRUE(paths.ok()) << paths.status();
    EXPECT_EQ(paths->size(), file_bytes == 50 ? 4u : 1u);
    EXPECT_THAT(DiffTo(paths->back()).tensors, ElementsAre());
    const OpenTensors opened = Opened(paths->back());
    EXPECT_EQ(opened.facts.step, 12);
    EXPECT_EQ(opened.reader->metadata(), Opened(run()).reader->metadata());
    EXPECT_EQ(opened.tensors.at("layers.0.wq/adam_m").owner, store::StateOwner::kOptimizerSlot);
    ASSERT_TRUE(WriteFolder(copy, opened.facts, AllOf(opened).value(), Existing::kRefuse).ok());
    EXPECT_EQ(DiffTo(copy).equal, 3);
    EXPECT_EQ(BytesOf(Opened(copy).facts), BytesOf(Opened(run()).facts));
  }
}

TEST_F(ConvertTest, AnExportOfAllStatesOfWeightsAloneIsNoCheckpoint) {
  store::FolderForTest weights{store::FactsForTest(24), {}};
  weights.facts.cursor.reset();
  weights.tensors["head"] = {{5}, CountFrom(5, 9.0f)};
  ASSERT_TRUE(store::WriteFolderForTest(run(), 1, weights).ok());
  const std::string file = folder_.PathFor("weights.safetensors");
  ASSERT_TRUE(ExportSafetensors(Opened(run()), {file, 1 << 20, ExportOrder::What::kAll}).ok());
  EXPECT_FALSE(store::IsOfCheckpoint(Opened(file).reader->metadata()));
  EXPECT_EQ(Opened(file).facts.step, 24);
}

TEST_F(ConvertTest, ACheckpointOfTheSameStepIsReplacedOnlyOnDemand) {
  const OpenTensors opened = Opened(run() + "/step-000000012");
  const auto tensors = AllOf(opened).value();
  const std::string copy = folder_.PathFor("copy");
  ASSERT_TRUE(WriteFolder(copy, opened.facts, tensors, Existing::kRefuse).ok());
  const absl::Status refused = WriteFolder(copy, opened.facts, tensors, Existing::kRefuse).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("W0724"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("step-000000012"));
  EXPECT_TRUE(WriteFolder(copy, opened.facts, tensors, Existing::kReplace).ok());
  const auto claim = store::FolderClaim::Take(copy).value();
  EXPECT_THAT(
      std::string(WriteFolder(copy, opened.facts, tensors, Existing::kReplace).status().message()),
      HasSubstr("W0741"));
}

TEST_F(ConvertTest, ALargeExportHasSeveralFilesAndAnIndexThatReadersFollow) {
  const std::string file = folder_.PathFor("m.safetensors");
  const auto paths = ExportSafetensors(Opened(run()), {file, 50});
  ASSERT_TRUE(paths.ok()) << paths.status();
  EXPECT_THAT(*paths, ElementsAre(folder_.PathFor("m-00001-of-00002.safetensors"),
                                  folder_.PathFor("m-00002-of-00002.safetensors"),
                                  folder_.PathFor("m.safetensors.index.json")));
  EXPECT_THAT(ExportSafetensors(Opened(run()), {file, 1 << 20}).status().ToString(),
              HasSubstr("no index of several files beside a single file"));
  const OpenTensors opened = Opened(paths->back());
  EXPECT_THAT(opened.tensors, ElementsAre(Key("head"), Key("layers.0.wq")));
  const CheckpointDiff diff = DiffTo(paths->back());
  EXPECT_EQ(diff.equal, 2);
  EXPECT_THAT(diff.tensors, ElementsAre());
  EXPECT_EQ(DiffText(diff, 0),
            "equal: 2 tensors\nB has only weights: 1 other state of A is not compared\n");
  EXPECT_THAT(SummaryText(opened), HasSubstr("in 2 files, step 12"));
  std::filesystem::remove(paths->back());
  EXPECT_THAT(std::string(OpenSound(folder_.path()).status().message()),
              HasSubstr("W0047 at " + paths->back()));
}

// Lets files of this process have at most so many bytes, as a disk with too little room would.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : before_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    ::signal(SIGXFSZ, before_);
  }

 private:
  void (*const before_)(int);
  rlimit limit_{};
};

TEST_F(ConvertTest, WhatCannotBeWrittenToItsEndLeavesNothing) {
  store::FolderForTest large{store::FactsForTest(24), {}};
  large.tensors["a"] = {{8}, CountFrom(8, 1.0f)};
  large.tensors["b"] = {{65536}, CountFrom(65536, 1.0f)};
  ASSERT_TRUE(store::WriteFolderForTest(run(), 1, large).ok());
  const OpenTensors opened = Opened(run());
  const auto tensors = AllOf(opened).value();
  const std::string out = folder_.PathFor("out"), copy = out + "/copy";
  std::filesystem::create_directory(out);
  {
    const SmallFiles limit(65536);
    for (const int64_t file_bytes : {100, 1 << 30}) {
      const absl::Status failed =
          ExportSafetensors(opened, {out + "/m.safetensors", file_bytes}).status();
      EXPECT_THAT(std::string(failed.message()), HasSubstr("W0046"));
    }
    const absl::Status failed =
        WriteFolder(copy, opened.facts, tensors, Existing::kRefuse).status();
    EXPECT_THAT(std::string(failed.message()), HasSubstr("W0046"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(out));
  EXPECT_TRUE(ExportSafetensors(opened, {out + "/m.safetensors", 100}).ok());
  {
    const SmallFiles limit(65536);
    EXPECT_FALSE(ExportSafetensors(opened, {out + "/m.safetensors", 100}).ok());
  }
  EXPECT_TRUE(store::SafetensorsReader::Open(out + "/m.safetensors.index.json").ok())
      << "the earlier export stays";
  EXPECT_TRUE(WriteFolder(copy, opened.facts, tensors, Existing::kRefuse).ok());
}

// Otherwise the export would carry checksums that fit the damage.
TEST_F(ConvertTest, WhatIsDamagedIsNotExported) {
  const std::string file = folder_.PathFor("all.safetensors");
  const std::string out = folder_.PathFor("out.safetensors");
  ASSERT_TRUE(ExportSafetensors(Opened(run()), {file, 1 << 20, ExportOrder::What::kAll}).ok());
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-1, std::ios::end);
  bytes.put('\x7f');
  bytes.close();
  const absl::Status refused =
      ExportSafetensors(Open(file).value(), {out, 1 << 20, ExportOrder::What::kAll}).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("W0960"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(ConvertTest, AnExportOfAveragesHasThemUnderTheNamesOfTheWeights) {
  const std::string file = folder_.PathFor("average.safetensors");
  const ExportOrder order{file, 1 << 20, ExportOrder::What::kAverages};
  EXPECT_THAT(std::string(ExportSafetensors(Opened(run()), order).status().message()),
              HasSubstr("W0084"));
  store::FolderForTest with{store::FactsForTest(24), {}};
  with.tensors["layers.0.wq"] = {{4, 6}, CountFrom(24, 1.0f)};
  with.tensors["layers.0.wq/average"] = {
      {4, 6}, CountFrom(24, 7.0f), {}, store::StateOwner::kOptimizerSlot};
  with.tensors["head"] = {{5}, CountFrom(5, 9.0f)};
  ASSERT_TRUE(store::WriteFolderForTest(run(), 1, with).ok());
  ASSERT_TRUE(ExportSafetensors(Opened(run()), order).ok());
  const OpenTensors written = Opened(file);
  EXPECT_THAT(written.tensors, ElementsAre(Key("head"), Key("layers.0.wq")));
  std::vector<float> values(24);
  ASSERT_TRUE(
      written.reader->Read("layers.0.wq", TensorSlice::Whole(DType::kF32, {4, 6}), values.data())
          .ok());
  EXPECT_EQ(values, CountFrom(24, 7.0f));
  with.tensors["head/adam_m"] = {{5}, CountFrom(5, 2.0f), {}, store::StateOwner::kOptimizerSlot};
  ASSERT_TRUE(store::WriteFolderForTest(run(), 1, with).ok());
  EXPECT_THAT(std::string(ExportSafetensors(Opened(run()), order).status().message()),
              AllOf(HasSubstr("W0084"), HasSubstr("head/average")))
      << "the head was trained";
}

// The first update sets the averages. Before, they are zeros, and no weights.
TEST_F(ConvertTest, ACheckpointBeforeTheFirstUpdateHasNoAverages) {
  store::FolderForTest with{store::FactsForTest(24), {}};
  with.facts.optimizer_step = 0;
  with.tensors["head"] = {{5}, CountFrom(5, 9.0f)};
  with.tensors["head/average"] = {
      {5}, std::vector<float>(5, 0.0f), {}, store::StateOwner::kOptimizerSlot};
  ASSERT_TRUE(store::WriteFolderForTest(run(), 1, with).ok());
  const ExportOrder order{folder_.PathFor("a.safetensors"), 1 << 20, ExportOrder::What::kAverages};
  const std::string refused(ExportSafetensors(Opened(run()), order).status().message());
  EXPECT_THAT(refused, HasSubstr("W0084"));
  EXPECT_THAT(refused, HasSubstr("step 24, before the first update"));
}

TEST_F(ConvertTest, AnEditTakesTheOptimizerStatesOfAWeightAlong) {
  const OpenTensors from = Opened(run());
  Edits edits;
  edits.drop = {"head"};
  edits.rename = {"layers.{i}.wq=blocks.{i}.q"};
  edits.cast = {"blocks.0.q=BF16"};
  auto tensors = Apply(edits, AllOf(from).value(), run());
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_THAT(*tensors, ElementsAre(Key("blocks.0.q"), Key("blocks.0.q/adam_m")));
  EXPECT_EQ(AddMissing(from, &*tensors).value(), 3);
  const std::string out = folder_.PathFor("out");
  ASSERT_TRUE(WriteFolder(out, from.facts, *tensors, Existing::kRefuse).ok());
  const OpenTensors written = Opened(out);
  EXPECT_EQ(written.tensors.at("blocks.0.q").dtype, "BF16");
  EXPECT_EQ(written.facts.cursor->samples, 48);
  std::vector<float> values(24);
  ASSERT_TRUE(
      written.reader
          ->Read("blocks.0.q/adam_m", TensorSlice::Whole(DType::kF32, {4, 6}), values.data())
          .ok());
  EXPECT_EQ(values, CountFrom(24, 0.5f));
}

TEST_F(ConvertTest, AnEditThatFitsNothingNamesTheNearestTensor) {
  EXPECT_THAT(ErrorOfEdit({{"haed"}, {}, {}}), HasSubstr("the nearest name is head"));
  EXPECT_THAT(ErrorOfEdit({{}, {"head"}, {}}), HasSubstr("no '='"));
  EXPECT_THAT(ErrorOfEdit({{}, {"head=layers.0.wq"}, {}}),
              HasSubstr("a second tensor named layers.0.wq"));
  EXPECT_THAT(ErrorOfEdit({{}, {}, {"head=F64"}}), HasSubstr("NAME=F32, NAME=BF16 or NAME=F16"));
}

TEST_F(ConvertTest, AnEditTakesPatternsAndSaysHowTheyAreWritten) {
  const OpenTensors from = Opened(run());
  const auto dropped = Apply({{"layers.0.{*}"}, {}, {}}, AllOf(from).value(), run());
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_THAT(*dropped, ElementsAre(Key("head")));
  EXPECT_THAT(ErrorOfEdit({{"layers.0.*"}, {}, {}}),
              HasSubstr("Try: layers.0.{*}: {*} is any text"));
  EXPECT_THAT(ErrorOfEdit({{"layers.*.*"}, {}, {}}), HasSubstr("{i} is a number and {*}, once"));
  EXPECT_THAT(ErrorOfEdit({{"layers.{i"}, {}, {}}), HasSubstr("{i} is a number and {*}, once"));
}

TEST_F(ConvertTest, ADiffCountsElementsAndSaysHowFarTheyAreApart) {
  store::FolderForTest other{store::FactsForTest(24), {}};
  other.tensors["layers.0.wq"] = {{4, 6}, CountFrom(24, 1.0f)};
  other.tensors["layers.0.wq"].values[7] += 2.0f;
  other.tensors["head"] = {{4}, CountFrom(4, 9.0f)};
  ASSERT_TRUE(store::WriteFolderForTest(run(), 1, other).ok());
  const CheckpointDiff diff = Diff(Opened(run() + "/step-000000012"), Opened(run())).value();
  ASSERT_EQ(diff.tensors.size(), 3u);
  EXPECT_EQ(diff.tensors[0].kind, TensorDiff::Kind::kOtherType);
  EXPECT_EQ(diff.tensors[1].differing, 1);
  EXPECT_EQ(diff.tensors[1].max_difference, 2.0);
  EXPECT_EQ(diff.tensors[2].kind, TensorDiff::Kind::kOnlyInA);
  EXPECT_THAT(DiffText(diff, 0), HasSubstr("1 of 24"));
  EXPECT_THAT(DiffText(diff, 1), HasSubstr("... and 2 tensors more"));
}

TEST_F(ConvertTest, TheListNamesTheLatestAndWhatIsDamaged) {
  store::FolderForTest other{store::FactsForTest(24), {}};
  other.tensors["head"] = {{4}, CountFrom(4, 9.0f)};
  ASSERT_TRUE(store::WriteFolderForTest(run(), 1, other).ok());
  folder_.Write("run/step-000000012/index.pb", "WEIRCKPT");
  const std::string text = ListText(run()).value();
  EXPECT_THAT(text, HasSubstr("96 samples, 0.96 epochs"));
  EXPECT_THAT(text, HasSubstr("latest"));
  EXPECT_THAT(text, HasSubstr("damaged"));
  EXPECT_THAT(text, HasSubstr("W0710"));
  EXPECT_THAT(text, HasSubstr("`weir checkpoint verify " + run() + " --all-steps` says which"));
  EXPECT_THAT(text, HasSubstr("`weir checkpoint verify " + run() + " --all-steps` also reads"));
  EXPECT_TRUE(absl::IsNotFound(ListText(folder_.PathFor("none")).status()));
}

TEST_F(ConvertTest, TheErrorForAFolderWithoutCheckpointsNamesWhatIsThere) {
  const std::string other = folder_.PathFor("other");
  std::filesystem::create_directories(other + "/step-000000006");
  std::filesystem::create_directory(other + "/step-000000024.partial-0123456789abcdef");
  const std::string text(ListText(other).status().message());
  EXPECT_THAT(text, HasSubstr("W0711"));
  EXPECT_THAT(text, HasSubstr("none that is committed, beside step-000000006 (no index), "
                              "step-000000024.partial-0123456789abcdef (left over)"));
  for (int step = 10; step < 20; ++step)
    std::filesystem::create_directory(other + "/" + store::StepFolderName(step));
  EXPECT_THAT(std::string(ListText(other).status().message()), HasSubstr(" and 4 more"));
}

TEST_F(ConvertTest, TheListTellsFilesOfAnotherSizeAndWhatIsLeftOver) {
  std::filesystem::resize_file(run() + "/step-000000012/rank-00000.safetensors", 100);
  std::filesystem::create_directory(run() + "/step-000000024.partial-0123456789abcdef");
  std::filesystem::create_directory(run() + "/step-000000006");
  const std::string text = ListText(run()).value();
  EXPECT_THAT(text, HasSubstr("latest, damaged"));
  EXPECT_THAT(text, HasSubstr("found 100 bytes"));
  EXPECT_THAT(text, HasSubstr("left over"));
  EXPECT_THAT(text, HasSubstr("no index"));
  const auto claim = store::FolderClaim::Take(run()).value();
  EXPECT_THAT(ListText(run()).value(), HasSubstr("being written"));
  std::filesystem::remove(run() + "/step-000000012/rank-00000.safetensors");
  EXPECT_THAT(ListText(run()).value(), HasSubstr("incomplete"));
}

}  // namespace
}  // namespace weir::checkpoint
