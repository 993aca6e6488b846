#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_testing.h"
#include "runtime/store/content_sum.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/safetensors.h"

namespace weir::store {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string BytesOfFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::vector<float> Count(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// x f32[4, 6] in four boxes of unequal size, b f32[5] on ranks 1 and 2, and a scalar on rank 0.
FolderForTest Sample(int64_t step = 12) {
  FolderForTest from{FactsForTest(step), {}};
  from.tensors["x"] = {
      {4, 6}, Count(24), {{{0, 0}, {3, 2}}, {{0, 2}, {3, 4}}, {{3, 0}, {1, 5}}, {{3, 5}, {1, 1}}}};
  from.tensors["b"] = {{5}, Count(5), {{{0}, {0}}, {{0}, {2}}, {{2}, {3}}}};
  from.tensors["b/adam_m"] = {{5}, Count(5), {}, StateOwner::kOptimizerSlot};
  from.tensors["scale"] = {{}, {3.0f}};
  return from;
}

std::unique_ptr<SafetensorsReader> OpenOk(const std::string& path) {
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return reader.ok() ? *std::move(reader) : nullptr;
}

TEST(CheckpointTest, EverySliceOfAShardedTensorHasTheElementsOfTheWhole) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample()).ok());
  const auto reader = OpenOk(folder.path());
  ASSERT_NE(reader, nullptr);
  for (int64_t r0 = 0; r0 <= 4; ++r0)
    for (int64_t r1 = r0; r1 <= 4; ++r1)
      for (int64_t c0 = 0; c0 <= 6; ++c0)
        for (int64_t c1 = c0; c1 <= 6; ++c1) {
          const TensorSlice slice{DType::kF32, {r1 - r0, c1 - c0}, {r0, c0}, {4, 6}};
          std::vector<float> part(static_cast<size_t>(slice.num_elements()) + 1, -1.0f);
          ASSERT_TRUE(reader->Read("x", slice, part.data()).ok());
          size_t i = 0;
          for (int64_t r = r0; r < r1; ++r)
            for (int64_t c = c0; c < c1; ++c)
              ASSERT_EQ(part[i++], static_cast<float>(r * 6 + c + 1)) << ToText(slice);
          ASSERT_EQ(part[i], -1.0f) << "wrote past the slice " << ToText(slice);
        }
  // Runs with a stride, as a map of weights reads.
  const StoredElements elements = reader->ElementsOf("x", DType::kF32).value();
  for (int64_t first = 0; first < 24; ++first)
    for (int64_t stride = 1; stride <= 7; ++stride) {
      const int64_t count = (24 - first + stride - 1) / stride;
      std::vector<float> part(static_cast<size_t>(count));
      ASSERT_TRUE(elements.Copy(first, stride, count, part.data()).ok());
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(part[static_cast<size_t>(i)], static_cast<float>(first + i * stride + 1));
    }
  float scale = 0;
  ASSERT_TRUE(reader->Read("scale", TensorSlice::Whole(DType::kF32, {}), &scale).ok());
  EXPECT_EQ(scale, 3.0f);
  EXPECT_EQ(reader->metadata().at("step"), "12");
  EXPECT_TRUE(reader->SameBytes("b", "b/adam_m").value());
  EXPECT_TRUE(reader->CheckSums().ok());
}

TEST(CheckpointTest, AnyPathOfACheckpointOpensIt) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample(12)).ok());
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample(24)).ok());
  EXPECT_THAT(CommittedSteps(folder.path()), ElementsAre(12, 24));
  EXPECT_EQ(OpenOk(folder.path())->metadata().at("step"), "24");
  EXPECT_EQ(OpenOk(folder.PathFor("step-000000012"))->metadata().at("step"), "12");
  // Each file of the folder is safetensors by itself.
  EXPECT_EQ(
      OpenOk(folder.PathFor("step-000000012/rank-00001.safetensors"))->tensors().at("x").shape,
      (Shape{3, 4}));
  // Only the file `latest` is none, and the error names the folder.
  const absl::Status latest = SafetensorsReader::Open(folder.PathFor("latest")).status();
  EXPECT_THAT(std::string(latest.message()), HasSubstr("Try: the folder around it"));
  std::ofstream(folder.PathFor("other")) << "none";
  EXPECT_THAT(std::string(SafetensorsReader::Open(folder.PathFor("other")).status().message()),
              HasSubstr("W0042"));
}

TEST(CheckpointTest, AReaderTouchesOnlyTheChunksOfItsSlice) {
  const TemporaryFolder folder;
  FolderForTest from{FactsForTest(1), {}};
  const int64_t rows = 1024, columns = 1024;  // a chunk of 1 MiB holds 256 rows
  from.tensors["big"] = {{rows, columns},
                         Count(rows * columns),
                         {{{0, 0}, {512, columns}}, {{512, 0}, {512, columns}}}};
  from.tensors["small"] = {{3}, Count(3)};
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 2, from).ok());
  const auto reader = OpenOk(folder.path());
  EXPECT_EQ(reader->shards()->bytes_read(), 0);
  std::vector<float> out(static_cast<size_t>(rows * columns));
  ASSERT_TRUE(reader->Read("small", TensorSlice::Whole(DType::kF32, {3}), out.data()).ok());
  EXPECT_EQ(reader->shards()->bytes_read(), 12);
  const TensorSlice half{DType::kF32, {256, columns}, {512, 0}, {rows, columns}};
  ASSERT_TRUE(reader->Read("big", half, out.data()).ok());
  EXPECT_EQ(out[0], static_cast<float>(512 * columns + 1));
  EXPECT_EQ(reader->shards()->bytes_read(), 12 + kShardChunkBytes);
  ASSERT_TRUE(reader->Read("big", half, out.data()).ok());
  EXPECT_EQ(reader->shards()->bytes_read(), 12 + kShardChunkBytes) << "each chunk counts once";
}

TEST(CheckpointTest, AFlippedBitAnywhereIsFoundByAReaderOrByACheck) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample()).ok());
  const std::string step = folder.PathFor("step-000000012");
  size_t flips = 0;
  std::vector<std::string> names = {"../latest"};
  for (const auto& entry : fs::directory_iterator(step))
    names.push_back(entry.path().filename().string());
  EXPECT_EQ(names.size(), 6u);  // and index.pb, and four ranks
  for (const std::string& name : names) {
    const std::string path = step + "/" + name, sound = BytesOfFile(path);
    for (size_t i = flips % 11; i < sound.size(); i += 11, ++flips) {
      std::string bytes = sound;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
      const auto reader = SafetensorsReader::Open(folder.path());
      const absl::Status status = reader.ok() ? (*reader)->CheckSums().status() : reader.status();
      ASSERT_FALSE(status.ok()) << name << ", byte " << i;
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << sound;
  }
  EXPECT_GT(flips, 100u);
  EXPECT_TRUE(OpenOk(folder.path())->CheckSums().ok());
}

TEST(CheckpointTest, AFileOfAnotherRunIsRefusedAndNamed) {
  const TemporaryFolder place;
  FolderForTest other = Sample();
  other.facts.job_id = "j2";
  ASSERT_TRUE(WriteFolderForTest(place.PathFor("a"), 4, Sample()).ok());
  ASSERT_TRUE(WriteFolderForTest(place.PathFor("b"), 4, other).ok());
  // Both runs have the same values.
  const std::string name = "step-000000012/rank-00002.safetensors";
  fs::copy_file(place.PathFor("b/" + name), place.PathFor("a/" + name),
                fs::copy_options::overwrite_existing);
  const auto is_refused = AllOf(HasSubstr("W0967 at " + place.PathFor("a/" + name)),
                                HasSubstr("expected shards of run j1; found shards of run j2"));
  const auto reader = OpenOk(place.PathFor("a"));
  EXPECT_THAT(reader->CheckSums().status().message(), is_refused);
  EXPECT_THAT(reader->shards()->CheckSizes().message(), is_refused);
  std::vector<float> values(5);
  EXPECT_THAT(reader->Read("b", TensorSlice::Whole(DType::kF32, {5}), values.data()).message(),
              is_refused);
  // An index that was put together from the reports of two runs.
  CheckpointIndex index = ReadIndex(place.PathFor("b/step-000000012/index.pb")).value();
  EXPECT_EQ(index.files[2].job_id, "j2");
  index.facts.job_id = "j1";
  std::ofstream(place.PathFor("b/step-000000012/index.pb"), std::ios::binary) << EncodeIndex(index);
  EXPECT_THAT(SafetensorsReader::Open(place.PathFor("b")).status().message(),
              AllOf(HasSubstr("W0967"), HasSubstr("rank-00000.safetensors")));
}

TEST(CheckpointTest, ACheckpointWithoutTheIdOfItsRunIsSound) {
  const TemporaryFolder folder;
  FolderForTest from = Sample();
  from.facts.job_id = "";
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, from).ok());
  EXPECT_TRUE(OpenOk(folder.path())->CheckSums().ok());
}

TEST(CheckpointTest, AReaderThatLacksAFileNamesTheHostThatHasIt) {
  const TemporaryFolder folder;
  FolderForTest from = Sample();
  from.host = "b";
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, from).ok());
  fs::remove(folder.PathFor("step-000000012/rank-00002.safetensors"));
  const auto reader = OpenOk(folder.path());
  float out[24];
  // Rows 0 to 2 are on the ranks 0 and 1.
  EXPECT_TRUE(reader->Read("x", {DType::kF32, {3, 6}, {0, 0}, {4, 6}}, out).ok());
  const absl::Status status = reader->Read("x", TensorSlice::Whole(DType::kF32, {4, 6}), out);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("host 'b'"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank-00002.safetensors"));
}

TEST(CheckpointTest, NoElementHasTwoOwnersOrNone) {
  const TemporaryFolder folder;
  FolderForTest twice = Sample();
  twice.tensors["x"].boxes[2] = {{2, 0}, {2, 5}};
  EXPECT_THAT(std::string(WriteFolderForTest(folder.path(), 4, twice).message()),
              HasSubstr("tensor x: expected one owner of each element; found two"));
  FolderForTest hole = Sample();
  hole.tensors["x"].boxes[2] = {{3, 1}, {1, 4}};
  EXPECT_THAT(
      std::string(WriteFolderForTest(folder.path(), 4, hole).message()),
      HasSubstr("tensor x: expected an owner of each of its 24 elements; found owners of 23"));
  EXPECT_THAT(CommittedSteps(folder.path()), IsEmpty());
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a partial folder stays";
  EXPECT_TRUE(absl::IsNotFound(ResolveCheckpoint(folder.path()).status()));
}

TEST(CheckpointTest, AStepIsReplacedAndLeftoversOfKilledRunsGo) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample()).ok());
  fs::create_directory(folder.PathFor("step-000000009.partial-0123456789abcdef"));
  fs::create_directory(folder.PathFor("step-000000003.removed-0123456789abcdef"));
  FolderForTest other = Sample();
  other.tensors["scale"].values = {4.0f};
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, other).ok());
  float scale = 0;
  ASSERT_TRUE(
      OpenOk(folder.path())->Read("scale", TensorSlice::Whole(DType::kF32, {}), &scale).ok());
  EXPECT_EQ(scale, 4.0f);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    names.insert(entry.path().filename().string());
  EXPECT_THAT(names, ElementsAre("latest", "step-000000012"));
}

TEST(CheckpointTest, OneWhoWritesKeepsThePartialFolderFromOthers) {
  const TemporaryFolder folder;
  const auto open = [&](int64_t step, PendingCheckpoint::Role role) {
    return PendingCheckpoint::Open(folder.path(), step, "0123456789abcdef", role).value();
  };
  const auto joined = open(5, PendingCheckpoint::Role::kJoin);
  open(6, PendingCheckpoint::Role::kMake);
  EXPECT_TRUE(fs::is_directory(joined->folder()));
}

TEST(CheckpointIndexTest, TheFolderAroundAPathStaysAsItIsWritten) {
  EXPECT_EQ(FolderAround("step-000000002"), ".");
  EXPECT_EQ(FolderAround("./run/step-000000002//"), "./run");
  EXPECT_EQ(FolderAround("/run"), "/");
  EXPECT_EQ(WithoutSlashes("run//"), "run");
  EXPECT_EQ(WithoutSlashes("/"), "/");
}

TEST(CheckpointIndexTest, AnIndexThatContradictsItselfIsRefusedWithTheTensorNamed) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample()).ok());
  const CheckpointIndex sound = ReadIndex(folder.PathFor("step-000000012/index.pb")).value();
  const auto error_of = [&](const std::function<void(CheckpointIndex*)>& change) {
    CheckpointIndex changed = sound;
    change(&changed);
    const auto read = DecodeIndex(EncodeIndex(changed), "i");
    return read.ok() ? "no error" : std::string(read.status().message());
  };
  EXPECT_EQ(error_of([](CheckpointIndex*) {}), "no error");
  EXPECT_THAT(error_of([](CheckpointIndex* index) { index->files[0].shards[1].begin += 1000; }),
              AllOf(HasSubstr("W0710"), HasSubstr("rank-00000.safetensors, tensor b/adam_m")));
  EXPECT_THAT(error_of([](CheckpointIndex* index) {
                index->files[0].shards[1].shape = {int64_t{1} << 62, 4};
              }),
              HasSubstr("possible size"));
  EXPECT_THAT(
      error_of([](CheckpointIndex* index) { index->files[0].shards[1].chunk_sums.push_back(0); }),
      HasSubstr("expected 1 checksums, one for each chunk; found 2"));
  EXPECT_THAT(error_of([](CheckpointIndex* index) { index->files[1].name = "../x"; }),
              HasSubstr("in the folder of the checkpoint"));
  EXPECT_THAT(error_of([](CheckpointIndex* index) { index->files[1].name = index->files[0].name; }),
              HasSubstr("each file once"));
  EXPECT_THAT(error_of([](CheckpointIndex* index) { index->tensors["x"].shape = {-1}; }),
              HasSubstr("tensor x"));
  EXPECT_THAT(error_of([](CheckpointIndex* index) { index->facts.keys.resize(100'000); }),
              HasSubstr("messages of 16 bytes or more"));
  const std::string bytes = EncodeIndex(sound);
  for (size_t length = 0; length < bytes.size(); length += 7)
    EXPECT_FALSE(DecodeIndex(bytes.substr(0, length), "i").ok()) << length;
}

TEST(RetentionTest, RemovesOldStepsButNeverOneThatIsNamedOrRead) {
  const std::vector<int64_t> steps = {10, 20, 30, 40, 50};
  EXPECT_THAT(StepsToRemove(steps, {}, 50, {}), IsEmpty());
  EXPECT_THAT(StepsToRemove(steps, {2, 0}, 50, {}), ElementsAre(10, 20, 30));
  EXPECT_THAT(StepsToRemove(steps, {2, 20}, 50, {}), ElementsAre(10, 30));
  EXPECT_THAT(StepsToRemove(steps, {2, 0}, 10, {30}), ElementsAre(20));
  EXPECT_THAT(StepsToRemove(steps, {9, 0}, 50, {}), IsEmpty());
  EXPECT_THAT(StepsToRemove({}, {1, 0}, std::nullopt, {}), IsEmpty());
}

TEST(RetentionTest, ARemovedCheckpointIsGone) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample(12)).ok());
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample(24)).ok());
  ASSERT_TRUE(RemoveCheckpoint(folder.path(), 12).ok());
  EXPECT_THAT(CommittedSteps(folder.path()), ElementsAre(24));
  EXPECT_FALSE(RemoveCheckpoint(folder.path(), 12).ok());
}

// The step of a checkpoint is not enough to tell whose it is.
TEST(RetentionTest, CheckpointsOfOtherRunsAreNeitherCountedNorRemoved) {
  const TemporaryFolder folder;
  FolderForTest other = Sample(12);
  other.facts.job_id = "other";
  CheckpointSet own;
  for (const int64_t step : {6, 12, 18}) {
    ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample(step)).ok());
    own.insert({step, *ReadSumOfIndex(absl::StrCat(folder.path(), "/", StepFolderName(step), "/",
                                                   kIndexFile))});
  }
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, other).ok());
  ASSERT_TRUE(WriteFolderForTest(folder.path(), 4, Sample(15)).ok());
  const auto pending =
      PendingCheckpoint::Open(folder.path(), 24, "0123456789abcdef", PendingCheckpoint::Role::kMake)
          .value();
  const FolderForTest from = Sample(24);
  std::vector<ShardFileRecord> files;
  for (int32_t rank = 0; rank < 4; ++rank)
    files.push_back(WriteRankForTest(pending->folder(), rank, from).value());
  const CheckpointIndex index =
      MakeIndex(from.facts, TensorFactsForTest(from), files, pending->final_path()).value();
  EXPECT_EQ(pending->Commit(index, {2, 0, own}).value(), "");
  EXPECT_THAT(CommittedSteps(folder.path()), ElementsAre(12, 15, 18, 24));
}

TEST(FolderClaimTest, OneRunAtATimeHasTheRightToAFolder) {
  const TemporaryFolder folder;
  const std::string path = folder.PathFor("c");
  std::unique_ptr<FolderClaim> first = FolderClaim::Take(path).value();
  ASSERT_NE(first, nullptr);
  const absl::Status refused = FolderClaim::Take(path).status();
  EXPECT_EQ(ExitCode(refused), 66) << "as of each output that cannot be written";
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("W0741"), HasSubstr(absl::StrCat("(pid ", ::getpid(), ")"))));
  EXPECT_THAT(FolderClaim::Check(path).message(), HasSubstr("W0741"));
  std::ofstream(path + "/latest") << "";
  first.reset();
  EXPECT_TRUE(FolderClaim::Check(path).ok());
  EXPECT_NE(FolderClaim::Take(path).value(), nullptr);
}

TEST(FolderClaimTest, TheRightIsForTheFolderAndNotForItsName) {
  const TemporaryFolder folder;
  const std::string path = folder.PathFor("c");
  const auto first = FolderClaim::Take(path).value();
  EXPECT_TRUE(first->IsInPlace());
  fs::rename(path, folder.PathFor("moved"));
  EXPECT_FALSE(first->IsInPlace());
  EXPECT_EQ(fs::canonical(first->PresentPath()), fs::canonical(folder.PathFor("moved")));
  const auto second = FolderClaim::Take(path).value();
  EXPECT_TRUE(second->IsInPlace());
  EXPECT_FALSE(first->IsInPlace());
  const absl::Status refused = FolderClaim::Take(path).status();
  EXPECT_TRUE(FolderClaim::IsOfAnotherRun(refused)) << refused;
  EXPECT_FALSE(
      FolderClaim::IsOfAnotherRun(FolderClaim::Take(folder.PathFor("no/folder")).status()));
}

TEST(FolderClaimTest, ThePresentPathIsTheGivenOneUntilTheFolderIsRenamedAndNoneOnceItIsRemoved) {
  const TemporaryFolder folder;
  const std::string path = folder.PathFor("c"), moved = folder.PathFor("moved");
  const auto claim = FolderClaim::Take(path).value();
  EXPECT_EQ(claim->PresentPath(), path);
  fs::rename(path, moved);
  fs::create_directory(path);
  EXPECT_EQ(fs::canonical(claim->PresentPath()), fs::canonical(moved));
  fs::remove(moved);
  EXPECT_EQ(claim->PresentPath(), "");
}

TEST(FolderClaimTest, AFolderThatWasMadeForNothingGoesAway) {
  const TemporaryFolder folder;
  const std::string made = folder.PathFor("made"), found = folder.PathFor("found");
  fs::create_directory(found);
  for (const std::string& path : {made, found}) {
    ASSERT_NE(FolderClaim::Take(path).value(), nullptr);
    EXPECT_EQ(fs::exists(path), path == found) << path;
  }
  auto first = FolderClaim::Take(made).value();
  fs::rename(made, folder.PathFor("moved"));
  const auto second = FolderClaim::Take(made).value();
  first.reset();
  EXPECT_TRUE(fs::exists(made));
}

TEST(TryFolderTest, SaysWhatAFileSystemRefusesAndLeavesNothing) {
  const TemporaryFolder folder;
  EXPECT_TRUE(TryFolder(folder.PathFor("new")).ok());
  EXPECT_TRUE(TryFolder(folder.path()).ok());
  EXPECT_TRUE(fs::is_empty(folder.path()));
  // No permission bit says that nobody can make folders here.
  for (const char* path : {"/proc/x", "/proc"}) EXPECT_TRUE(IsCannotWrite(TryFolder(path))) << path;
  folder.Write("file", "");
  EXPECT_THAT(TryFolder(folder.PathFor("file")).message(), HasSubstr("Not a directory"));
}

TEST(CheckpointTest, APathInACheckpointIsKnownUnderAnyName) {
  const TemporaryFolder folder;
  for (const char* name : {"c", "other"}) fs::create_directory(folder.PathFor(name));
  ASSERT_TRUE(WriteFolderForTest(folder.PathFor("c"), 4, Sample()).ok());
  const std::string named = folder.PathFor("c/step-000000012"), copy = folder.PathFor("best");
  fs::copy(named, copy, fs::copy_options::recursive);
  folder.Write("other/index.pb", "of another program");
  EXPECT_EQ(fs::path(CheckpointAround(named + "/x/y/")).filename(), "step-000000012");
  EXPECT_EQ(fs::path(CheckpointAround(named)).filename(), "step-000000012");
  EXPECT_EQ(fs::path(CheckpointAround(copy + "/x")).filename(), "best");
  for (const char* path : {"c", "c/step-000000024", "other/x", "new"})
    EXPECT_EQ(CheckpointAround(folder.PathFor(path)), "") << path;
}

TEST(CheckpointTest, ACheckpointWhoseFolderWasRenamedIsNotCommittedIntoAnotherOfThatName) {
  const TemporaryFolder folder;
  const std::string path = folder.PathFor("c");
  const FolderForTest from = Sample();
  const auto pending =
      PendingCheckpoint::Open(path, 12, "0123456789abcdef", PendingCheckpoint::Role::kMake).value();
  fs::rename(path, folder.PathFor("moved"));
  // A process of the run that comes later makes both folders anew.
  const auto joined =
      PendingCheckpoint::Open(path, 12, "0123456789abcdef", PendingCheckpoint::Role::kJoin).value();
  std::vector<ShardFileRecord> files;
  for (int32_t rank = 0; rank < 4; ++rank)
    files.push_back(WriteRankForTest(joined->folder(), rank, from).value());
  const CheckpointIndex index =
      MakeIndex(from.facts, TensorFactsForTest(from), files, pending->final_path()).value();
  const absl::Status refused = pending->Commit(index, {}).status();
  EXPECT_TRUE(IsCannotWrite(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("renamed or removed"));
  EXPECT_THAT(CommittedSteps(path), IsEmpty());
  EXPECT_EQ(ReadLatest(path).value(), std::nullopt);
}

TEST(ContentSumTest, DoesNotDependOnHowATensorIsCutButOnWhereAValueIs) {
  const std::vector<float> values = Count(24);
  const uint32_t seed = ContentSeed("x");
  const uint64_t whole = AddContent(seed, 4, {4, 6}, {0, 0}, {4, 6}, 0, 24, values.data());
  for (int64_t cut = 0; cut <= 6; ++cut) {
    std::vector<float> left, right;
    for (int64_t i = 0; i < 24; ++i)
      (i % 6 < cut ? left : right).push_back(values[static_cast<size_t>(i)]);
    // The shards arrive in two parts each.
    uint64_t sum = 0;
    for (const auto& [part, offset, width] :
         {std::tuple{&left, int64_t{0}, cut}, std::tuple{&right, cut, 6 - cut}}) {
      const int64_t count = 4 * width, first = count / 3;
      sum += AddContent(seed, 4, {4, 6}, {0, offset}, {4, width}, 0, first, part->data());
      sum += AddContent(seed, 4, {4, 6}, {0, offset}, {4, width}, first, count - first,
                        part->data() + first);
    }
    EXPECT_EQ(sum, whole) << cut;
  }
  std::vector<float> swapped = values;
  std::swap(swapped[3], swapped[17]);
  EXPECT_NE(AddContent(seed, 4, {4, 6}, {0, 0}, {4, 6}, 0, 24, swapped.data()), whole);
  EXPECT_NE(AddContent(ContentSeed("y"), 4, {4, 6}, {0, 0}, {4, 6}, 0, 24, values.data()), whole);
}

}  // namespace
}  // namespace weir::store
