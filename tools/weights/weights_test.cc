// Patterns, maps, layouts and conversions of weights.
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_metadata.h"
#include "tools/weights/averages.h"
#include "tools/weights/convert_weights.h"
#include "tools/weights/export_files.h"
#include "tools/weights/find_weights.h"
#include "tools/weights/mapped_weights.h"

namespace weir::weights {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using SharedFile = std::shared_ptr<const store::SafetensorsReader>;

struct Tensor {
  Shape shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

// Numbers that differ from each other and between tensors.
Tensor Counted(Shape shape, float first) {
  Tensor tensor{shape, std::vector<float>(static_cast<size_t>(NumElements(shape)))};
  std::iota(tensor.values.begin(), tensor.values.end(), first);
  return tensor;
}

SharedFile Written(const std::string& name, const Tensors& tensors,
                   const store::Metadata& metadata = {}) {
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (const auto& [tensor, value] : tensors) entries.push_back({tensor, DType::kF32, value.shape});
  const std::string path = TemporaryPath(name);
  auto writer = store::SafetensorsWriter::Create(path, entries, metadata).value();
  for (size_t i = 0; i < writer->entries().size(); ++i) {
    const std::vector<float>& values = tensors.at(writer->entries()[i].name).values;
    EXPECT_EQ(writer->Write(i, values.data()), absl::OkStatus());
  }
  EXPECT_EQ(writer->Commit(), absl::OkStatus());
  return store::SafetensorsReader::Open(path).value();
}

std::shared_ptr<const WeightMap> MapOf(const std::string& text) {
  return std::make_shared<const WeightMap>(WeightMap::Parse(text, "m").value());
}

std::vector<float> ReadPart(const MappedWeights& from, const std::string& weight,
                            const TensorSlice& slice) {
  std::vector<float> values(static_cast<size_t>(slice.num_elements()));
  EXPECT_EQ(from.Read(weight, slice, values.data()), absl::OkStatus());
  return values;
}

std::vector<float> ReadWhole(const MappedWeights& from, const std::string& weight,
                             const Shape& shape) {
  return ReadPart(from, weight, TensorSlice::Whole(DType::kF32, shape));
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ErrorText(const absl::Status& status) { return std::string(status.message()); }

TEST(AveragesTest, NoUpdateHasSetThoseOfAFileOfStepZero) {
  const Tensors tensors = {{"w", Counted({2}, 0)}, {"w/average", Counted({2}, 5)}};
  const auto opened = [&](const store::Metadata& metadata) {
    return OpenValues(Written("averages.safetensors", tensors, metadata)->path(), Values::kAverages)
        .status();
  };
  EXPECT_EQ(opened({}), absl::OkStatus()) << "no step is known";
  EXPECT_EQ(opened({{store::kTrainedStepsKey, "3"}}), absl::OkStatus());
  EXPECT_EQ(opened({{store::kStepKey, "3"}, {store::kOptimizerStepKey, "1"}}), absl::OkStatus());
  for (const store::Metadata& metadata :
       {store::Metadata{{store::kStepKey, "3"}, {store::kOptimizerStepKey, "0"}},
        store::Metadata{{store::kStepKey, "0"}}}) {
    EXPECT_THAT(ErrorText(opened(metadata)), HasSubstr("W0084"));
  }
}

TEST(AveragesTest, ATrainedWeightWithoutAnAverageIsNamed) {
  const auto opened = [&](const Tensors& tensors) {
    return OpenValues(Written("some_averages.safetensors", tensors)->path(), Values::kAverages);
  };
  Tensors tensors = {{"a", Counted({2}, 0)},         {"a/adam_m", Counted({2}, 3)},
                     {"a/average", Counted({2}, 5)}, {"b", Counted({2}, 10)},
                     {"b/adam_m", Counted({2}, 13)}, {"b/average", Counted({2}, 15)},
                     {"frozen", Counted({2}, 20)},   {"loss_scale/factor", Counted({}, 1)}};
  const auto all = opened(tensors);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(ReadWhole(MappedWeights(*all), "b", {2}), (std::vector<float>{15, 16}));
  EXPECT_EQ(ReadWhole(MappedWeights(*all), "frozen", {2}), (std::vector<float>{20, 21}));
  tensors.erase("b/average");
  EXPECT_THAT(ErrorText(opened(tensors).status()),
              AllOf(HasSubstr("W0084"), HasSubstr("b/average")));
}

TEST(NamePatternTest, NumbersAndAnyTextAreCaptured) {
  const NamePattern pattern = NamePattern::Parse("h.{i}.x{j}.{*}.weight").value();
  const std::optional<Captures> captures = pattern.Match("h.12.x3.a.b.weight");
  ASSERT_TRUE(captures.has_value());
  EXPECT_EQ(captures->at("i"), "12");
  EXPECT_EQ(captures->at("j"), "3");
  EXPECT_EQ(captures->at("*"), "a.b");
  EXPECT_EQ(NamePattern::Parse("q.{*}.{i}").value().Fill(*captures), "q.a.b.12");
}

TEST(NamePatternTest, OtherNamesDoNotFit) {
  const NamePattern pattern = NamePattern::Parse("h.{i}.{*}.w{k}").value();
  for (const char* name : {"h.x.a.w1", "h.1..w1", "h.1.a.w", "h.1.w1", "g.1.a.w1", "h.1.a.w1x"})
    EXPECT_FALSE(pattern.Match(name).has_value()) << name;
  EXPECT_TRUE(pattern.Match("h.1.a.w1").has_value());
}

TEST(NamePatternTest, WhatIsNoPatternIsRefused) {
  for (const char* text : {"", "a{i", "a{}", "{a.b}", "{i}{j}", "{i}.{i}", "{*}.{*}"})
    EXPECT_FALSE(NamePattern::Parse(text).ok()) << text;
  EXPECT_FALSE(NamePattern::Parse(std::string(kPatternBytesMax + 1, 'a')).ok());
}

constexpr char kEverything[] = R"(
  rule { weight: "q.{i}" from { tensor: "fused.{i}" transpose: [1, 0] part { axis: 1 index: 1 of: 3 } } }
  rule { weight: "both" from { tensor: "left" } from { tensor: "right" transpose: [1, 0] } axis: 1 }
  rule { weight: "heads" from { tensor: "mixed" view: [2, 3, 2] range { axis: 1 begin: 1 size: 1 } } reshape: true }
  rule { weight: "start" from { tensor: ["absent", "table"] range { axis: 0 } } }
  optional_prefix: "model."
)";

class MappedWeightsTest : public ::testing::Test {
 protected:
  const SharedFile file_ = Written("public.safetensors", {{"fused.7", Counted({6, 2}, 0)},
                                                          {"left", Counted({2, 1}, 100)},
                                                          {"right", Counted({2, 2}, 200)},
                                                          {"mixed", Counted({6, 2}, 300)},
                                                          {"table", Counted({4, 2}, 400)}});
  const WeightTypes types_ = {{"q.7", {DType::kF32, {2, 2}}},
                              {"both", {DType::kF32, {2, 3}}},
                              {"heads", {DType::kF32, {2, 2}}},
                              {"start", {DType::kF32, {3, 2}}}};
  const MappedWeights mapped_{file_, MapOf(kEverything), nullptr};
};

TEST(AdaptersInFiles, AFileHasAllAdaptersOfAJobOrNone) {
  const WeightTypes types = {{"w", {DType::kF32, {2, 2}}},
                             {"w.lora_a", {DType::kF32, {2, 1}}},
                             {"w.lora_b", {DType::kF32, {1, 2}}},
                             {"x", {DType::kF32, {2}}}};
  const Tensors base = {{"w", Counted({2, 2}, 0)}, {"x", Counted({2}, 10)}};
  Tensors all = base;
  all["w.lora_a"] = Counted({2, 1}, 20);
  all["w.lora_b"] = Counted({1, 2}, 30);

  const MappedWeights without(Written("without.safetensors", base));
  EXPECT_EQ(without.Check(types), absl::OkStatus());
  EXPECT_EQ(without.CountFreshAdapters(types), 2);
  EXPECT_TRUE(without.IsFresh("w.lora_a"));
  EXPECT_FALSE(without.IsFresh("w"));
  EXPECT_EQ(without.SourceText("w.lora_b"), "its first values in the job");
  EXPECT_THAT(ErrorText(WriteForJob(without, types, TemporaryPath("converted.safetensors"))),
              AllOf(HasSubstr("W0063"), HasSubstr("the file has no adapters")));

  const MappedWeights with(Written("with.safetensors", all));
  EXPECT_EQ(with.Check(types), absl::OkStatus());
  EXPECT_EQ(with.CountFreshAdapters(types), 0);
  EXPECT_THAT(ReadWhole(with, "w.lora_b", {1, 2}), ElementsAre(30, 31));

  Tensors half = all;
  half.erase("w.lora_b");
  EXPECT_THAT(ErrorText(MappedWeights(Written("half.safetensors", half)).Check(types)),
              AllOf(HasSubstr("W0071"), HasSubstr("no w.lora_b")));
  Tensors other = all;
  other["w.lora_a"] = Counted({2, 3}, 0);
  EXPECT_THAT(ErrorText(MappedWeights(Written("rank.safetensors", other)).Check(types)),
              HasSubstr("W0044"))
      << "of another rank";
}

// A name alone makes no adapter.
TEST(AdaptersInFiles, AWeightThatIsOnlyNamedLikeAnAdapterNeedsASource) {
  const WeightTypes types = {{"w", {DType::kF32, {2}}}, {"w.lora_a", {DType::kF32, {2}}}};
  const MappedWeights file(Written("lone.safetensors", {{"w", Counted({2}, 0)}}));
  EXPECT_THAT(ErrorText(file.Check(types)), AllOf(HasSubstr("W0071"), HasSubstr("no w.lora_a")));
  EXPECT_EQ(file.CountFreshAdapters(types), 0);
}

TEST(AdaptersInFiles, UnderAMapAdaptersHaveTheirOwnNamesOrThoseOfARule) {
  const WeightTypes types = {{"w.3", {DType::kF32, {2, 2}}},
                             {"w.3.lora_a", {DType::kF32, {2, 1}}},
                             {"w.3.lora_b", {DType::kF32, {1, 2}}}};
  const char* const of_weights = "rule { weight: \"w.{i}\" from { tensor: \"h.{i}\" } }";
  const Tensors base = {{"h.3", Counted({2, 2}, 0)}};
  const MappedWeights without(Written("public.safetensors", base), MapOf(of_weights), nullptr);
  EXPECT_EQ(without.Check(types), absl::OkStatus());
  EXPECT_EQ(without.CountFreshAdapters(types), 2);

  Tensors own = base;
  own["w.3.lora_a"] = Counted({2, 1}, 20);
  own["w.3.lora_b"] = Counted({1, 2}, 30);
  const MappedWeights by_own(Written("own.safetensors", own), MapOf(of_weights), nullptr);
  EXPECT_EQ(by_own.Check(types), absl::OkStatus());
  EXPECT_THAT(ReadWhole(by_own, "w.3.lora_a", {2, 1}), ElementsAre(20, 21));
  EXPECT_THAT(ReadWhole(by_own, "w.3", {2, 2}), ElementsAre(0, 1, 2, 3));

  // As PEFT has them: [rank, in] and [out, rank].
  Tensors other = base;
  other["base_model.h.3.lora_A.weight"] = Counted({1, 2}, 20);
  other["base_model.h.3.lora_B.weight"] = Counted({2, 1}, 30);
  const MappedWeights by_rule(
      Written("peft.safetensors", other),
      MapOf(absl::StrCat(of_weights,
                         "rule { weight: \"w.{i}.lora_a\" from { tensor: "
                         "\"base_model.h.{i}.lora_A.weight\" transpose: [1, 0] } }"
                         "rule { weight: \"w.{i}.lora_b\" from { tensor: "
                         "\"base_model.h.{i}.lora_B.weight\" transpose: [1, 0] } }")),
      nullptr);
  EXPECT_EQ(by_rule.Check(types), absl::OkStatus());
  EXPECT_EQ(by_rule.CountFreshAdapters(types), 0);
  EXPECT_THAT(ReadWhole(by_rule, "w.3.lora_b", {1, 2}), ElementsAre(30, 31));
}

TEST(AdaptersInFiles, AJobWithoutAdaptersSaysWhatToDoWithAFileOfThem) {
  const MappedWeights file(
      Written("tuned.safetensors",
              {{"w", Counted({2}, 0)}, {"w.lora_a", {{1}, {0}}}, {"w.lora_b", {{1}, {0}}}}));
  EXPECT_THAT(ErrorText(file.Check({{"w", {DType::kF32, {2}}}})),
              AllOf(HasSubstr("W0071"), HasSubstr("weir lora merge")));
}

TEST_F(MappedWeightsTest, EachStepOfASourceIsAView) {
  ASSERT_EQ(mapped_.Check(types_), absl::OkStatus());
  // fused.7 is [6, 2] = 0 1 | 2 3 | …; its transpose [2, 6] has rows 0 2 4 6 8 10 and 1 3 5 7 9 11.
  EXPECT_THAT(ReadWhole(mapped_, "q.7", {2, 2}), ElementsAre(4, 6, 5, 7));
  EXPECT_THAT(ReadWhole(mapped_, "both", {2, 3}), ElementsAre(100, 200, 202, 101, 201, 203));
  EXPECT_THAT(ReadWhole(mapped_, "heads", {2, 2}), ElementsAre(302, 303, 308, 309));
  EXPECT_THAT(ReadWhole(mapped_, "start", {3, 2}), ElementsAre(400, 401, 402, 403, 404, 405));
}

TEST_F(MappedWeightsTest, APartOfAWeightIsThePartOfTheWhole) {
  for (const auto& [weight, type] : types_) {
    const std::vector<float> whole = ReadWhole(mapped_, weight, type.shape);
    for (int64_t row = 0; row < type.shape[0]; ++row) {
      for (int64_t column = 0; column < type.shape[1]; ++column) {
        const TensorSlice slice{DType::kF32, {1, 1}, {row, column}, type.shape};
        EXPECT_THAT(ReadPart(mapped_, weight, slice),
                    ElementsAre(whole[static_cast<size_t>(row * type.shape[1] + column)]))
            << weight << " " << row << " " << column;
      }
    }
  }
}

TEST_F(MappedWeightsTest, AMissingTensorAndAnUnusedOneAreBothNamed) {
  const SharedFile other = Written("other.safetensors", {{"fused.7", Counted({6, 2}, 0)},
                                                         {"left", Counted({2, 1}, 100)},
                                                         {"rihgt", Counted({2, 2}, 200)},
                                                         {"mixed", Counted({6, 2}, 300)},
                                                         {"table", Counted({4, 2}, 400)}});
  const std::string error =
      ErrorText(MappedWeights(other, MapOf(kEverything), nullptr).Check(types_));
  EXPECT_THAT(error, HasSubstr("W0071"));
  EXPECT_THAT(error, HasSubstr("no tensor right for weight both"));
  EXPECT_THAT(error, HasSubstr("no weight that uses tensor rihgt"));
  EXPECT_THAT(error, HasSubstr("weir weights check"));
}

TEST_F(MappedWeightsTest, AShapeThatDoesNotFitNamesTheTensor) {
  WeightTypes types = types_;
  types["q.7"].shape = {3, 2};
  const std::string error = ErrorText(mapped_.Check(types));
  EXPECT_THAT(error, HasSubstr("W0044"));
  EXPECT_THAT(error,
              HasSubstr("weight q.7: expected shape [3, 2]; found [2, 2] from fused.7 [6, 2]"));
  types = types_;
  types["start"].shape = {5, 2};
  EXPECT_THAT(ErrorText(mapped_.Check(types)), HasSubstr("elements 0 to 5 of axis 0, of [4, 2]"));
}

TEST(WeightMapTest, PrefixesBuffersAndAliasesMayBeInAFile) {
  const auto map = MapOf(R"(rule { weight: "w" from { tensor: "model.w" } }
      optional_prefix: "model." ignore: "model.{i}.mask" alias { tensor: "head" same_as: "model.w" })");
  const WeightTypes types = {{"w", {DType::kF32, {2}}}};
  const auto check = [&](const Tensors& tensors) {
    return ErrorText(MappedWeights(Written("f.safetensors", tensors), map, nullptr).Check(types));
  };
  EXPECT_EQ(check({{"model.w", Counted({2}, 1)}, {"model.3.mask", Counted({1}, 1)}}), "");
  EXPECT_EQ(check({{"w", Counted({2}, 1)}, {"3.mask", Counted({1}, 1)}}), "");
  EXPECT_EQ(check({{"w", Counted({2}, 1)}, {"head", Counted({2}, 1)}}), "");
  EXPECT_THAT(check({{"w", Counted({2}, 1)}, {"head", Counted({2}, 5)}}),
              HasSubstr("tensor head: expected the values of w, with which the job ties it"));
  EXPECT_THAT(check({{"w", Counted({2}, 1)}, {"mask", Counted({2}, 5)}}),
              HasSubstr("uses tensor mask"));
}

TEST(WeightMapTest, AFreshWeightNeedsNoTensorAndConstantsHaveAFile) {
  const auto map = MapOf(R"(rule { weight: "w" from { tensor: "w" } } fresh: "head.{*}"
      constant: "constants.{i}")");
  const WeightTypes types = {{"w", {DType::kF32, {2}}},
                             {"head.bias", {DType::kF32, {3}}},
                             {"constants.0", {DType::kF32, {1}}}};
  const SharedFile file = Written("w.safetensors", {{"w", Counted({2}, 1)}});
  EXPECT_THAT(ErrorText(MappedWeights(file, map, nullptr).Check(types)),
              HasSubstr("no rule for weight constants.0"));
  const MappedWeights with(file, map, Written("c.safetensors", {{"constants.0", Counted({1}, 9)}}));
  EXPECT_EQ(with.Check(types), absl::OkStatus());
  EXPECT_TRUE(with.IsFresh("head.bias"));
  EXPECT_FALSE(with.IsFresh("w"));
  EXPECT_THAT(ReadWhole(with, "constants.0", {1}), ElementsAre(9));
  EXPECT_THAT(ErrorText(WriteForJob(with, types, TemporaryPath("x.safetensors"))),
              HasSubstr("W0063"));
}

TEST(WeightMapTest, WrongMapsAreRefusedWithTheirPlace) {
  const auto error = [](const std::string& text) {
    return ErrorText(WeightMap::Parse(text, "m.textproto").status());
  };
  EXPECT_THAT(error("rulle {}"), HasSubstr("W0048 at m.textproto:1:"));
  EXPECT_THAT(error(""), HasSubstr("rules: expected a number from 1"));
  EXPECT_THAT(error(R"(rule { weight: "w" })"), HasSubstr("sources: expected a number from 1"));
  EXPECT_THAT(error(R"(rule { weight: "w" from {} })"), HasSubstr("tensors of a source"));
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "a.{i}" } })"),
              HasSubstr("expected placeholders of \"w\"; found {i}"));
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "a" transpose: [0, 2] } })"),
              HasSubstr("each axis from 0 on"));
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "a" part { index: 3 of: 3 } } })"),
              HasSubstr("part.index"));
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "a" range { begin: -1 } } })"),
              HasSubstr("range.begin"));
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "a" view: [4611686018427387904, 4] } })"),
              HasSubstr("a shape of possible size"));
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "a" } } constants_file: "../c")"),
              HasSubstr("constants_file"));
}

TEST(WeightMapTest, AMapOfTheProgramIsSound) {
  for (const BuiltInMap& map : BuiltInMaps())
    EXPECT_EQ(WeightMap::Parse(map.text, map.name).status(), absl::OkStatus());
  EXPECT_GE(BuiltInMaps().size(), 7u);
}

// A map whose tensors follow from the weights.
constexpr char kForBoth[] = R"(
  rule { weight: "q.{i}" from { tensor: "fused.{i}" part { axis: 1 index: 0 of: 2 } } }
  rule { weight: "k.{i}" from { tensor: "fused.{i}" part { axis: 1 index: 1 of: 2 } } }
  rule { weight: "up" from { tensor: "up" transpose: [1, 0] } }
  rule { weight: "two" from { tensor: "a" shape: [2] } from { tensor: "b" shape: [1] } }
)";

TEST(ConvertWeightsTest, ThereAndBackGivesEqualBytes) {
  const std::string map = TemporaryPath("map.textproto");
  std::ofstream(map) << kForBoth;
  const SharedFile original = Written("original.safetensors", {{"fused.0", Counted({2, 4}, 0)},
                                                               {"up", Counted({3, 2}, 50)},
                                                               {"a", Counted({2}, 70)},
                                                               {"b", Counted({1}, 80)}});
  const WeightTypes types = {{"q.0", {DType::kF32, {2, 2}}},
                             {"k.0", {DType::kF32, {2, 2}}},
                             {"up", {DType::kF32, {2, 3}}},
                             {"two", {DType::kF32, {3}}}};
  const MapPlaces places{map, ""};
  const std::string mine = TemporaryPath("mine.safetensors"),
                    back = TemporaryPath("back.safetensors");
  ASSERT_EQ(WriteForJob(MapWeights(original, places, types).value(), types, mine),
            absl::OkStatus());
  const SharedFile written = store::SafetensorsReader::Open(mine).value();
  EXPECT_THAT(ReadWhole(MappedWeights(written), "k.0", {2, 2}), ElementsAre(2, 3, 6, 7));
  ASSERT_EQ(WritePublic(*written, types, {places, nullptr, back}).status(), absl::OkStatus());
  const SharedFile again = store::SafetensorsReader::Open(back).value();
  ASSERT_EQ(again->tensors().size(), original->tensors().size());
  for (const auto& [name, tensor] : original->tensors()) {
    const Shape& shape = tensor.shape;
    EXPECT_EQ(again->tensors().at(name).shape, shape);
    EXPECT_EQ(ReadWhole(MappedWeights(again), name, shape),
              ReadWhole(MappedWeights(original), name, shape));
  }
  const std::string mine_again = TemporaryPath("mine_again.safetensors");
  ASSERT_EQ(WriteForJob(MapWeights(again, places, types).value(), types, mine_again),
            absl::OkStatus());
  EXPECT_EQ(BytesOf(mine), BytesOf(mine_again));
}

TEST(ConvertWeightsTest, ManyBytesGoToSeveralFilesWithAnIndex) {
  const std::string map = TemporaryPath("many_map.textproto");
  std::ofstream(map) << kForBoth;
  const WeightTypes types = {{"q.0", {DType::kF32, {2, 2}}},
                             {"k.0", {DType::kF32, {2, 2}}},
                             {"up", {DType::kF32, {2, 3}}},
                             {"two", {DType::kF32, {3}}}};
  const SharedFile mine = Written("many.safetensors", {{"q.0", Counted({2, 2}, 0)},
                                                       {"k.0", Counted({2, 2}, 10)},
                                                       {"up", Counted({2, 3}, 50)},
                                                       {"two", Counted({3}, 70)}});
  ExportOrder order{{map, ""}, nullptr, TemporaryPath("many/model.safetensors")};
  std::filesystem::create_directory(TemporaryPath("many"));
  // Tensors a and b take 8 and 4 bytes, fused.0 takes 32, and up takes 24.
  order.file_bytes_max = 30;
  const auto refuse = [](const std::vector<std::string>& paths) {
    return absl::CancelledError(paths[3]);
  };
  EXPECT_THAT(ErrorText(WritePublic(*mine, types, order, refuse).status()),
              HasSubstr("model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::is_empty(TemporaryPath("many")));
  // The last file cannot be written, and the others go away.
  const std::string last = TemporaryPath("many/model-00003-of-00003.safetensors");
  std::filesystem::create_directory(last);
  EXPECT_THAT(ErrorText(WritePublic(*mine, types, order).status()), HasSubstr("W0046"));
  std::filesystem::remove(last);
  EXPECT_TRUE(std::filesystem::is_empty(TemporaryPath("many")));
  const auto exported = WritePublic(*mine, types, order);
  ASSERT_EQ(exported.status(), absl::OkStatus());
  EXPECT_THAT(exported->files, ElementsAre(TemporaryPath("many/model-00001-of-00003.safetensors"),
                                           TemporaryPath("many/model-00002-of-00003.safetensors"),
                                           TemporaryPath("many/model-00003-of-00003.safetensors"),
                                           TemporaryPath("many/model.safetensors.index.json")));
  EXPECT_TRUE(CheckNoOtherExport(order.path, 4).ok()) << "shards may be written again";
  EXPECT_THAT(ErrorText(CheckNoOtherExport(order.path, 1)),
              AllOf(HasSubstr("W0841"), HasSubstr("model.safetensors.index.json")));
  const SharedFile index = store::SafetensorsReader::Open(exported->files[3]).value();
  EXPECT_EQ(store::SafetensorsReader::Open(exported->files[0]).value()->tensors().size(), 2u);
  const MappedWeights read = MapWeights(index, {map, ""}, types).value();
  for (const auto& [weight, type] : types) {
    EXPECT_EQ(ReadWhole(read, weight, type.shape),
              ReadWhole(MappedWeights(mine), weight, type.shape));
  }
}

TEST(ConvertWeightsTest, OnlyConstantsAreLeftOut) {
  const std::string folder = TemporaryPath("constants");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const SharedFile all = Written("constants/weights.safetensors",
                                 {{"w", Counted({2}, 0)}, {"constants.0", Counted({1}, 5)}});
  const std::string map = folder + "/map.textproto", out = folder + "/public.safetensors";
  const WeightTypes types = {{"w", {DType::kF32, {2}}}, {"constants.0", {DType::kF32, {1}}}};
  const auto write = [&](const std::string& text) {
    std::ofstream(map) << text
                       << R"( constant: "constants.{i}" constants_file: "weights.safetensors")";
    return WritePublic(*all, types, {{map, folder + "/job.textproto"}, nullptr, out}).status();
  };
  // The file of constants has all weights, and w is no constant all the same.
  EXPECT_THAT(ErrorText(write(R"(rule { weight: "v" from { tensor: "v" } })")),
              HasSubstr("none for w in"));
  ASSERT_EQ(write(R"(rule { weight: "w" from { tensor: "x" } })"), absl::OkStatus());
  EXPECT_EQ(store::SafetensorsReader::Open(out).value()->tensors().size(), 1u);
}

TEST(ConvertWeightsTest, WhatCannotBeWrittenSaysWhy) {
  const auto error = [](const std::string& map_text, const WeightTypes& types,
                        const Tensors& tensors) {
    const std::string map = TemporaryPath("one.textproto");
    std::ofstream(map) << map_text;
    const SharedFile file = Written("mine.safetensors", tensors);
    return ErrorText(
        WritePublic(*file, types, {{map, ""}, nullptr, TemporaryPath("never")}).status());
  };
  const WeightTypes one = {{"w", {DType::kF32, {2}}}};
  const Tensors values = {{"w", Counted({2}, 0)}};
  EXPECT_THAT(error(R"(rule { weight: "x" from { tensor: "x" } })", one, values),
              HasSubstr("W0071 at maps of weights"));
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "x" } reshape: true })", one, values),
              HasSubstr("--like FILE"));
  EXPECT_THAT(
      error(R"(rule { weight: "w" from { tensor: "x" part { index: 0 of: 2 } } })", one, values),
      HasSubstr("none for 2 of them"));
  // A shape from a stranger takes no memory.
  EXPECT_THAT(error(R"(rule { weight: "w" from { tensor: "x" range { size: 2 }
                      shape: [1099511627776] } })",
                    one, values),
              HasSubstr("W0063 at tensor x"));
  EXPECT_THAT(
      error(
          R"(rule { weight: "w" from { tensor: "x" } } rule { weight: "v" from { tensor: "x" } })",
          {{"w", {DType::kF32, {2}}}, {"v", {DType::kF32, {2}}}},
          {{"w", Counted({2}, 0)}, {"v", Counted({2}, 1)}}),
      HasSubstr("equal values from all its weights"));
}

TEST(FindWeightsTest, AFolderStandsForItsFile) {
  const std::string folder = TemporaryPath("folder");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  EXPECT_THAT(ErrorText(WeightFileOf(folder).status()), HasSubstr("found no file of safetensors"));
  std::ofstream(folder + "/pytorch_model.bin") << "x";
  EXPECT_THAT(ErrorText(WeightFileOf(folder).status()), HasSubstr("safetensors.torch"));
  std::ofstream(folder + "/a.safetensors") << "x";
  EXPECT_EQ(WeightFileOf(folder).value(), folder + "/a.safetensors");
  std::ofstream(folder + "/model.safetensors") << "x";
  EXPECT_EQ(WeightFileOf(folder).value(), folder + "/model.safetensors");
  std::ofstream(folder + "/model.safetensors.index.json") << "x";
  EXPECT_EQ(WeightFileOf(folder).value(), folder + "/model.safetensors.index.json");
  EXPECT_THAT(ErrorText(WeightFileOf("model.pt").status()), HasSubstr("W0049 at model.pt"));
  EXPECT_EQ(WeightFileOf("w.safetensors").value(), "w.safetensors");
}

TEST(FindWeightsTest, AFolderStandsForItsOnlyIndexUnderAnyName) {
  const std::string folder = TemporaryPath("indexed");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const std::string index = folder + "/w.safetensors.index.json";
  std::ofstream(index) << R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})";
  std::ofstream(folder + "/1.safetensors") << "x";
  EXPECT_EQ(WeightFileOf(folder).value(), index) << "not the one file that is there";
  std::ofstream(folder + "/2.safetensors") << "x";
  EXPECT_EQ(WeightFileOf(folder).value(), index);
  std::ofstream(folder + "/adapter.safetensors") << "x";
  EXPECT_THAT(ErrorText(WeightFileOf(folder).status()),
              AllOf(HasSubstr("W0049 at " + folder),
                    HasSubstr("found one index, and 1 file of safetensors that it does not name"),
                    HasSubstr("Try: the path of an index, " + index)));
  std::filesystem::remove(folder + "/adapter.safetensors");
  const std::string other = folder + "/v.safetensors.index.json";
  std::filesystem::copy(index, other);
  EXPECT_THAT(ErrorText(WeightFileOf(folder).status()),
              AllOf(HasSubstr("W0049 at " + folder), HasSubstr("found 2 indices"),
                    HasSubstr("Try: the path of an index, " + other + " or " + index)));
}

TEST(FindWeightsTest, TheFirstMapThatFitsCounts) {
  const std::string folder = TemporaryPath("places");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const std::string job = folder + "/gpt.textproto";
  const WeightTypes types = {{"w", {DType::kF32, {2}}}};
  const SharedFile file = Written("strange.safetensors", {{"strange", Counted({2}, 4)}});
  EXPECT_THAT(
      ErrorText(MapWeights(file, {"", job}, types).status()),
      HasSubstr("exactly the 1 tensors of the model; found no w; unknown to the model: strange"));
  EXPECT_TRUE(FilesBeside(job).empty());
  std::ofstream(MapBeside(job)) << R"(rule { weight: "w" from { tensor: "strange" } })";
  EXPECT_THAT(FilesBeside(job), ElementsAre(folder + "/gpt.weights.textproto"));
  EXPECT_EQ(ConstantsBeside(job), "");
  std::ofstream(folder + "/weights.safetensors") << "x";  // of the map t5
  EXPECT_THAT(FilesBeside(job),
              ElementsAre(folder + "/gpt.weights.textproto", folder + "/weights.safetensors"));
  std::filesystem::remove(folder + "/weights.safetensors");
  EXPECT_THAT(ReadWhole(MapWeights(file, {"", job}, types).value(), "w", {2}), ElementsAre(4, 5));
  const SharedFile own = Written("own.safetensors", {{"w", Counted({2}, 6)}});
  EXPECT_EQ(MapWeights(own, {"", job}, types).value().shared_map(), nullptr);
  EXPECT_THAT(ErrorText(MapWeights(file, {"gpt2", job}, types).status()),
              HasSubstr("by the map gpt2"));
}

}  // namespace
}  // namespace weir::weights
