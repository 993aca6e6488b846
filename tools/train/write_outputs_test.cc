// A model without a loss is run for its results: each sample of the data once, in order, with the
// same numbers on every mesh; and what cannot be run is refused with the reason.
#include "tools/train/write_outputs.h"

#include <string.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/compile.h"
#include "compiler/dims/mixed_samples.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/npy_writer.h"
#include "tools/job/job_file.h"
#include "tools/train/job_variant.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 4, kWide = 8;

// Two layers, whose sums are whole numbers: no layout rounds them.
constexpr char kModel[] = R"pb(
  name: "model"
  graph {
    dim { name: "samples" size: 4 }
    dim { name: "wide" size: 8 }
    dim { name: "inner" size: 8 }
    function {
      name: "layer"
      input { name: "x" type: "f32[samples, wide]" }
      parameter { name: "up" type: "f32[wide, inner]" }
      parameter { name: "down" type: "f32[inner, wide]" }
      node {
        name: "a"
        op: "matmul"
        input: [ "x", "up" ]
      }
      node { name: "b" op: "relu" input: "a" }
      node {
        name: "c"
        op: "matmul"
        input: [ "b", "down" ]
      }
      output: "c"
    }
    function {
      name: "main"
      input { name: "x" type: "f32[samples, wide]" }
      node { name: "layers" op: "call" function: "layer" input: "x" output: "y" repeat: 2 }
      node { name: "positive" op: "relu" input: "y" }
      node {
        name: "best"
        op: "argmax"
        input: "y"
        attr {
          name: "axis"
          value { i: 1 }
        }
      }
      node {
        name: "any"
        op: "cast"
        input: "positive"
        attr {
          name: "to"
          value { s: "bool" }
        }
      } MORE
      output: [ OUTPUTS ]
    }
    main: "main"
    without_loss: true
  }
  rule { dim: "samples" axis: "dp" }
  rule { dim: "inner" axis: "tp" }
  data { DATA }
)pb";

constexpr char kOutputs[] = R"("positive", "best", "any")";

float X(int64_t sample, int64_t i) { return static_cast<float>((sample * 5 + i * 3) % 7 - 3); }
float Weight(int seed, int64_t row, int64_t column) {
  return static_cast<float>((row * 3 + column * 5 + seed) % 5 - 2);
}

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Writes x.npy with `count` samples into a folder of its own, and returns the text of the data.
std::string ArraysOf(int64_t count) {
  const std::string path = TemporaryPath(absl::StrCat("x", count, ".npy"));
  auto writer = store::NpyWriter::Create(path, DType::kF32, {count, kWide});
  EXPECT_TRUE(writer.ok()) << writer.status();
  std::vector<float> values;
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t i = 0; i < kWide; ++i) values.push_back(X(s, i));
  }
  const std::string bytes = Bytes(values);
  EXPECT_TRUE((*writer)->Append(bytes.data(), static_cast<int64_t>(bytes.size())).ok());
  EXPECT_TRUE((*writer)->Publish().ok());
  return absl::StrCat("arrays { array { name: \"x\" path: \"", path, "\" } }");
}

// Writes the weights as safetensors.
std::string Weights() {
  std::string header = "{", data;
  int seed = 0;
  for (const char* name : {"layers.0.down", "layers.0.up", "layers.1.down", "layers.1.up"}) {
    std::vector<float> values;
    for (int64_t r = 0; r < kWide; ++r) {
      for (int64_t c = 0; c < kWide; ++c) values.push_back(Weight(seed, r, c));
    }
    absl::StrAppend(&header, seed == 0 ? "" : ",", "\"", name,
                    "\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[", data.size(), ",",
                    data.size() + values.size() * sizeof(float), "]}");
    data += Bytes(values);
    ++seed;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  return WriteTemporary("w.safetensors",
                        std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
}

std::vector<float> Product(const std::vector<float>& x, int seed) {
  std::vector<float> y(kWide, 0);
  for (int64_t r = 0; r < kWide; ++r) {
    for (int64_t c = 0; c < kWide; ++c) y[c] += x[r] * Weight(seed, r, c);
  }
  return y;
}

// Returns what the model makes of a sample, before the last relu.
std::vector<float> Y(int64_t sample) {
  std::vector<float> x;
  for (int64_t i = 0; i < kWide; ++i) x.push_back(X(sample, i));
  for (int layer = 0; layer < 2; ++layer) {
    x = Product(x, 2 * layer + 1);
    for (float& value : x) value = std::max(value, 0.0f);
    x = Product(x, 2 * layer);
  }
  return x;
}

proto::Job ModelJob(const std::string& data, const std::string& outputs = kOutputs,
                    const std::string& more = "") {
  proto::Job job;
  const std::string text =
      absl::StrReplaceAll(kModel, {{"DATA", data}, {"OUTPUTS", outputs}, {"MORE", more}});
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

WriteOutputsOptions Into(const std::string& folder) {
  WriteOutputsOptions options;
  options.folder = TemporaryPath(folder);
  options.init = Weights();
  options.threads = 1;
  return options;
}

// Returns the file behind its header, which must be of the type.
std::string Elements(const std::string& path, const std::string& descr, const std::string& shape) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  if (all.size() < 10 || all.compare(0, 6, "\x93NUMPY") != 0) {
    ADD_FAILURE() << path << " is no .npy file";
    return "";
  }
  const size_t header = static_cast<uint8_t>(all[8]) + 256 * static_cast<uint8_t>(all[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  EXPECT_THAT(all.substr(10, header), HasSubstr(absl::StrCat("'descr': '", descr, "'")));
  EXPECT_THAT(all.substr(10, header), HasSubstr(absl::StrCat("'shape': ", shape)));
  return all.substr(10 + header);
}

void ExpectRefused(const proto::Job& job, const WriteOutputsOptions& options, const char* code,
                   const char* part = "") {
  const auto written = WriteOutputs(job, options);
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.status().message(), HasSubstr(code));
  EXPECT_THAT(written.status().message(), HasSubstr(part));
}

TEST(WriteOutputsTest, EachSampleHasItsRowOnEveryMeshAlsoIfTheLastStepIsNotFull) {
  constexpr int64_t kSamples = 10;  // the last step has two
  proto::Job job = ModelJob(ArraysOf(kSamples));
  std::vector<float> positive;
  std::vector<int32_t> best;
  std::string any;
  for (int64_t s = 0; s < kSamples; ++s) {
    const std::vector<float> y = Y(s);
    best.push_back(static_cast<int32_t>(std::max_element(y.begin(), y.end()) - y.begin()));
    for (const float value : y) {
      positive.push_back(std::max(value, 0.0f));
      any.push_back(static_cast<char>(value > 0));
    }
  }
  for (const char* mesh : {"", "dp=2", "dp=4", "tp=2", "pp=2", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    ASSERT_TRUE(job::SetMesh(mesh, &job).ok());
    const WriteOutputsOptions options = Into(absl::StrCat("on_", mesh));
    const auto written = WriteOutputs(job, options);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->samples, kSamples);
    EXPECT_EQ(written->steps, 3);
    ASSERT_EQ(written->files.size(), 3u);
    EXPECT_EQ(written->files[0].type, "f32[10, 8]");
    EXPECT_EQ(Elements(options.folder + "/positive.npy", "<f4", "(10, 8)"), Bytes(positive));
    EXPECT_EQ(
        Elements(options.folder + "/best.npy", "<i4", "(10,)"),
        std::string(reinterpret_cast<const char*>(best.data()), best.size() * sizeof(int32_t)));
    EXPECT_EQ(Elements(options.folder + "/any.npy", "|b1", "(10, 8)"), any);
  }
}

TEST(WriteOutputsTest, AnyTensorOfMainCanBeNamedInsteadOfTheOutputs) {
  WriteOutputsOptions options = Into("named");
  options.outputs = {"y"};
  const auto written = WriteOutputs(ModelJob(ArraysOf(4)), options);
  ASSERT_TRUE(written.ok()) << written.status();
  ASSERT_EQ(written->files.size(), 1u);
  std::vector<float> y;
  for (int64_t s = 0; s < kBatch; ++s) {
    for (const float value : Y(s)) y.push_back(value);
  }
  EXPECT_EQ(Elements(options.folder + "/y.npy", "<f4", "(4, 8)"), Bytes(y));
  options.outputs = {"z"};
  ExpectRefused(ModelJob(ArraysOf(4)), options, "W0407", "--output z");
  options.outputs = {"positiv"};
  ExpectRefused(ModelJob(ArraysOf(4)), options, "W0407", "--output positive");
  options.outputs = {"nothing like it"};
  ExpectRefused(ModelJob(ArraysOf(4)), options, "W0407", "Try: one of y, ");
  options.outputs = {"x"};
  ExpectRefused(ModelJob(ArraysOf(4)), options, "W0618", "an input of main");
  options.outputs = {"y", "y"};
  ExpectRefused(ModelJob(ArraysOf(4)), options, "W0618", "each tensor once");
}

TEST(WriteOutputsTest, AJobWithALossRunsItsHeldOutSamples) {
  const std::string train = ArraysOf(10), held_out = TemporaryPath("x4.npy");
  ArraysOf(4);
  proto::Job job = ModelJob(
      absl::StrReplaceAll(train, {{"} }", absl::StrCat(" held_out_path: \"", held_out, "\" } }")}}),
      "\"loss\"", R"(node { name: "loss" op: "reduce_mean" input: "y" })");
  job.mutable_graph()->clear_without_loss();
  WriteOutputsOptions options = Into("held_out");
  options.outputs = {"positive"};
  const auto written = WriteOutputs(job, options);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->files[0].type, "f32[4, 8]");
  job.mutable_data()->mutable_arrays()->mutable_array(0)->clear_held_out_path();
  ExpectRefused(job, options, "W0077");
}

TEST(WriteOutputsTest, AResultOfAllSamplesHasARowForEachFullStep) {
  constexpr char kMean[] = R"(node { name: "mean" op: "reduce_mean" input: "y"
                                     attr { name: "axes" value { ints { values: 0 } } } })";
  const WriteOutputsOptions options = Into("mean");
  const auto written = WriteOutputs(ModelJob(ArraysOf(8), "\"mean\"", kMean), options);
  ASSERT_TRUE(written.ok()) << written.status();
  std::vector<float> means;
  for (int64_t step = 0; step < 2; ++step) {
    std::vector<float> sum(kWide, 0);
    for (int64_t s = 0; s < kBatch; ++s) {
      const std::vector<float> y = Y(step * kBatch + s);
      for (int64_t i = 0; i < kWide; ++i) sum[i] += y[i];
    }
    for (const float value : sum) means.push_back(value / kBatch);
  }
  EXPECT_EQ(Elements(options.folder + "/mean.npy", "<f4", "(2, 8)"), Bytes(means));
  ExpectRefused(ModelJob(ArraysOf(10), "\"mean\"", kMean), options, "W0620", "mean");
  // Nodes that no output needs may read what they like.
  EXPECT_TRUE(WriteOutputs(ModelJob(ArraysOf(10), "\"y\"", kMean), Into("y")).ok());
}

TEST(WriteOutputsTest, SamplesAreIndependentUnlessANodeReadsSeveral) {
  EXPECT_EQ(*compiler::NodeThatMixesSamples(OutputsJob(ModelJob(ArraysOf(4)), {})), "");
  constexpr char kSorted[] = R"(node { name: "places" op: "argmax" input: "y"
                                       attr { name: "axis" value { i: 0 } } })";
  EXPECT_EQ(*compiler::NodeThatMixesSamples(ModelJob(ArraysOf(4), "\"places\"", kSorted)),
            "function main, node places");
  constexpr char kAlong[] = R"(node { name: "sums" op: "cumsum" input: "y"
                                      attr { name: "axis" value { i: 0 } } })";
  EXPECT_EQ(*compiler::NodeThatMixesSamples(ModelJob(ArraysOf(4), "\"sums\"", kAlong)),
            "function main, node sums");
}

TEST(WriteOutputsTest, RowsThatTheLastStepLacksAreInNoResult) {
  // Samples in another dimension than the first, alone or joined with another.
  constexpr char kTurned[] = R"(node { name: "turned" op: "transpose" input: "y"
                                       attr { name: "perm" value { ints { values: [1, 0] } } } })";
  ExpectRefused(ModelJob(ArraysOf(10), "\"turned\"", kTurned), Into("turned"), "W0620",
                "output turned holds the samples in another dimension than its first");
  EXPECT_TRUE(WriteOutputs(ModelJob(ArraysOf(8), "\"turned\"", kTurned), Into("turned")).ok());
  constexpr char kFlat[] = R"(node { name: "flat" op: "reshape" input: "y"
                                     attr { name: "to" value { s: "samples*wide" } } })";
  ExpectRefused(ModelJob(ArraysOf(10), "\"flat\"", kFlat), Into("flat"), "W0620", "output flat");
  // Products of samples with samples: each row reads all samples, and keeps its place.
  constexpr char kPairs[] = R"(node { name: "turned" op: "transpose" input: "y"
                                      attr { name: "perm" value { ints { values: [1, 0] } } } }
                               node { name: "pairs" op: "matmul" input: "y" input: "turned" }
                               node { name: "sums" op: "reduce_sum" input: "pairs"
                                      attr { name: "axes" value { ints { values: 1 } } } })";
  for (const char* output : {"\"pairs\"", "\"sums\""}) {
    ExpectRefused(ModelJob(ArraysOf(10), output, kPairs), Into("pairs"), "W0620",
                  "node pairs reads several samples");
  }
  // The dimension of the samples under another name.
  constexpr char kNamed[] = R"(node { name: "named" op: "reshape" input: "y"
                                      attr { name: "to" value { s: "others=4, wide" } } })";
  const auto named = WriteOutputs(ModelJob(ArraysOf(10), "\"named\"", kNamed), Into("named"));
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->files[0].type, "f32[10, 8]");
}

TEST(WriteOutputsTest, FilesOfAnEarlierRunStayUntilAllNewOnesAreThere) {
  const WriteOutputsOptions options = Into("again");
  std::filesystem::create_directories(options.folder);
  std::ofstream(options.folder + "/positive.npy") << "earlier";
  WriteOutputsOptions broken = options;
  int steps = 0;
  broken.interrupted = [&] { return ++steps == 3; };
  EXPECT_TRUE(absl::IsCancelled(WriteOutputs(ModelJob(ArraysOf(10)), broken).status()));
  EXPECT_EQ(std::filesystem::file_size(options.folder + "/positive.npy"), 7u);
  EXPECT_FALSE(std::filesystem::exists(options.folder + "/best.npy"));
  ASSERT_TRUE(WriteOutputs(ModelJob(ArraysOf(10)), options).ok());
  EXPECT_GT(std::filesystem::file_size(options.folder + "/positive.npy"), 7u);
}

TEST(WriteOutputsTest, WhatCannotBeRunIsRefused) {
  proto::Job job = ModelJob(ArraysOf(4));
  WriteOutputsOptions options = Into("refused");
  options.init.clear();
  ExpectRefused(job, options, "W0621", "layers.0.");
  const auto trained = compiler::CompileJob(job, {});
  ASSERT_FALSE(trained.ok());
  EXPECT_THAT(trained.status().message(), HasSubstr("W0616"));
  job.mutable_training()->set_micro_batches(2);
  compiler::CompileOptions evaluate;
  evaluate.mode = compiler::PlanMode::kEvaluate;
  const auto several = compiler::CompileJob(job, evaluate);
  ASSERT_FALSE(several.ok());
  EXPECT_THAT(several.status().message(), HasSubstr("W0617"));
}

TEST(WriteOutputsTest, TheFileOfF16HasItsBits) {
  const std::string path = TemporaryPath("f16.npy");
  auto writer = store::NpyWriter::Create(path, DType::kF16, {2});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const Float16 values[] = {ToFloat16(1.5f), ToFloat16(-256.0f)};
  ASSERT_TRUE((*writer)->Append(values, sizeof(values)).ok());
  ASSERT_TRUE((*writer)->Publish().ok());
  EXPECT_EQ(Elements(path, "<f2", "(2,)"),
            std::string(reinterpret_cast<const char*>(values), sizeof(values)));
}

TEST(WriteOutputsTest, TheFileOfBf16HasEqualRealNumbers) {
  const std::string path = TemporaryPath("bf16.npy");
  auto writer = store::NpyWriter::Create(path, DType::kBF16, {2});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const BFloat16 values[] = {ToBFloat16(1.5f), ToBFloat16(-256.0f)};
  ASSERT_TRUE((*writer)->Append(values, sizeof(values) / 2).ok());
  EXPECT_FALSE((*writer)->Publish().ok()) << "an element is missing";
  ASSERT_TRUE((*writer)->Append(values + 1, sizeof(values) / 2).ok());
  ASSERT_TRUE((*writer)->Publish().ok());
  EXPECT_EQ(Elements(path, "<f4", "(2,)"), Bytes({1.5f, -256.0f}));
}

}  // namespace
}  // namespace weir::train
