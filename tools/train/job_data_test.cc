// Opens every kind of data for jobs whose names have no meaning, and compares the data with the
// model before anything runs.
#include "tools/train/job_data.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

// Writes images of 4 x 4 and their labels. The label of image i is i % classes.
void WriteImages(int count, int classes) {
  std::string images = {0, 0, 8, 3, 0, 0, 0, static_cast<char>(count), 0, 0, 0, 4, 0, 0, 0, 4};
  std::string labels = {0, 0, 8, 1, 0, 0, 0, static_cast<char>(count)};
  for (int i = 0; i < count; ++i) {
    images += std::string(16, static_cast<char>(i * 2));
    labels.push_back(static_cast<char>(i % classes));
  }
  WriteTemporary("images", images);
  WriteTemporary("labels", labels);
}

// A model of `rows` samples and `kinds` kinds. MAIN stands for inputs and nodes up to "features",
// f32[rows, h].
constexpr char kClassifier[] = R"pb(
  name: "classifier"
  graph {
    dim { name: "rows" size: 6 }
    dim { name: "spots" size: 16 }
    dim { name: "bytes" size: 256 }
    dim { name: "h" size: 8 }
    dim { name: "kinds" size: 4 }
    function {
      name: "main" MAIN
      parameter {
        name: "w"
        type: "f32[h, kinds]"
        init { normal { std: 0.1 } }
      }
      node {
        name: "logits"
        op: "matmul"
        input: [ "features", "w" ]
      }
      node {
        name: "s"
        op: "softmax_cross_entropy"
        input: [ "logits", "kind" ]
      }
      node { name: "loss" op: "reduce_mean" input: "s" }
      node {
        name: "hits"
        op: "accuracy"
        input: [ "logits", "kind" ]
      }
      node { name: "right" op: "reduce_mean" input: "hits" }
      output: [ "loss", "right" ]
    }
    main: "main"
  }
  rule { dim: "rows" axis: "dp" }
  training {
    steps: 3
    optimizer { sgd {} }
    schedule { learning_rate: 0.1 }
  }
)pb";

constexpr char kOfImages[] = R"pb(
  input { name: "picture" type: "f32[rows, spots]" }
  input { name: "kind" type: "i32[rows]" }
  parameter {
    name: "v"
    type: "f32[spots, h]"
    init { normal { std: 0.1 } }
  }
  node {
    name: "features"
    op: "matmul"
    input: [ "picture", "v" ]
    attr {
      name: "activation"
      value { s: "relu" }
    }
  }
)pb";

// The spots of an image as tokens.
constexpr char kOfSpots[] = R"pb(
  input { name: "picture" type: "i32[rows, spots]" }
  input { name: "kind" type: "i32[rows]" }
  parameter {
    name: "table"
    type: "f32[bytes, h]"
    init { normal { std: 0.1 } }
  }
  node {
    name: "e"
    op: "embedding"
    input: [ "table", "picture" ]
  }
  node {
    name: "features"
    op: "reduce_mean"
    input: "e"
    attr {
      name: "axes"
      value { ints { values: [ 1 ] } }
    }
  }
)pb";

proto::Job Classifier(const std::string& main, const std::string& data) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(absl::StrReplaceAll(kClassifier, {{"MAIN", main}}), data), &job));
  return job;
}

std::string Idx(const std::string& labels = "labels") {
  return absl::StrCat(
      "data { feed { input: \"picture\" from: \"images\" } feed { input: \"kind\" from: \"labels\" "
      "} idx { images: \"",
      TemporaryPath("images"), "\" labels: \"", TemporaryPath(labels), "\" test_images: \"",
      TemporaryPath("images"), "\" test_labels: \"", TemporaryPath(labels), "\" } }");
}

std::string ErrorOf(const proto::Job& job) {
  auto data = OpenJobData(job);
  EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(data.status().message());
}

TrainResult TrainOf(const proto::Job& job) {
  console::Console console{console::Console::Style::kPlain, &std::cerr};
  TrainOptions options;
  options.console = &console;
  options.threads_per_device = 1;
  auto result = Train(job, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : TrainResult{};
}

TEST(JobDataTest, ImagesTrainAndEvaluateWhateverTheDimensionsAndInputsAreCalled) {
  WriteImages(20, 4);
  const proto::Job job = Classifier(kOfImages, Idx());
  TrainResult result = TrainOf(job);
  ASSERT_TRUE(result.evaluation.has_value());
  EXPECT_EQ(result.evaluation->batches, 3) << "of 6 of 20 samples";
  EXPECT_EQ(ItemsOf(job).count, 6);
  EXPECT_EQ(ItemsOf(job).name, "samples");
}

TEST(JobDataTest, ImagesAreTokensToAModelThatLooksThemUp) {
  WriteImages(20, 4);
  proto::Job job = Classifier(kOfSpots, Idx());
  EXPECT_EQ(TrainOf(job).evaluation->batches, 3);
  EXPECT_EQ(ItemsOf(job).count, 6 * 16);
  EXPECT_EQ(ItemsOf(job).name, "tokens");
  job.mutable_graph()->mutable_dim(2)->set_size(20);
  EXPECT_THAT(ErrorOf(job), HasSubstr("W0059 at " + TemporaryPath("images") +
                                      ", pixel 160: expected values below 20 for input picture, an "
                                      "index along dimension bytes of \"table\""));
}

TEST(JobDataTest, ALabelBeyondTheClassesIsRefusedBeforeTheFirstStep) {
  WriteImages(20, 5);
  EXPECT_THAT(ErrorOf(Classifier(kOfImages, Idx())),
              HasSubstr("W0059 at " + TemporaryPath("labels") +
                        ", label 4: expected values below 4 for input kind, an index along "
                        "dimension kinds of \"logits\""));
  std::string labels = {0, 0, 8, 1, 0, 0, 0, 20};
  WriteTemporary("bad_test_labels", labels + std::string(19, '\1') + "\x04");
  WriteImages(20, 4);
  proto::Job job = Classifier(kOfImages, Idx());
  job.mutable_data()->mutable_idx()->set_test_labels(TemporaryPath("bad_test_labels"));
  EXPECT_THAT(ErrorOf(job), HasSubstr("bad_test_labels, label 19")) << "held-out data too";
}

TEST(JobDataTest, LabelsAreNotWantedWhereNobodyReadsThem) {
  WriteImages(20, 4);
  proto::Job job = Classifier(kOfImages, Idx());
  proto::Function* main = job.mutable_graph()->mutable_function(0);
  // Deletes the loss of labels; the loss is then the mean of the logits.
  main->mutable_node()->DeleteSubrange(2, 4);
  main->clear_output();
  proto::Node* loss = main->add_node();
  loss->set_name("loss");
  loss->set_op("reduce_mean");
  loss->add_input("logits");
  main->add_output("loss");
  ASSERT_EQ(main->node_size(), 3);
  job.mutable_data()->mutable_idx()->clear_labels();
  job.mutable_data()->mutable_idx()->clear_test_labels();
  EXPECT_EQ(TrainOf(job).evaluation->batches, 3) << "input kind is declared, and not read";
  EXPECT_THAT(ErrorOf([&] {
                proto::Job wanted = Classifier(kOfImages, Idx());
                wanted.mutable_data()->mutable_idx()->clear_labels();
                return wanted;
              }()),
              HasSubstr("W0052 at data.idx: expected a file of labels, for input kind"));
}

TEST(JobDataTest, BindingsThatNameNothingAreRefused) {
  WriteImages(20, 4);
  proto::Job job = Classifier(kOfImages, Idx());
  job.mutable_data()->clear_feed();
  EXPECT_THAT(ErrorOf(job),
              HasSubstr("W0055 at input picture of main: expected one of the feeds of the data: "
                        "images, labels; found picture. "
                        "Try: data { feed { input: \"picture\" from: \"images\" } }"));
  proto::FeedBinding* picture = job.mutable_data()->add_feed();
  picture->set_input("picture");
  picture->set_from("images");
  EXPECT_THAT(ErrorOf(job), HasSubstr("Try: data { feed { input: \"kind\" from: \"labels\" } }"))
      << "images have another type";
  auto bind = [](const std::string& input, const std::string& from) {
    proto::Job bound = Classifier(kOfImages, Idx());
    proto::FeedBinding* feed = bound.mutable_data()->add_feed();
    feed->set_input(input);
    feed->set_from(from);
    return ErrorOf(bound);
  };
  EXPECT_THAT(
      bind("pictures", "images"),
      HasSubstr("W0907 at data.feed of input \"pictures\": expected `input` to name an input of "
                "main: picture, kind; found \"pictures\". Try: input: \"picture\""));
  EXPECT_THAT(bind("kind", "labels"), HasSubstr("expected each input once"));
  EXPECT_THAT(bind("kind", ""), HasSubstr("expected `from` to name a feed"));
}

TEST(JobDataTest, TypesThatAFeedCannotHaveAreRefusedWithWhatItDelivers) {
  WriteImages(20, 4);
  proto::Job job = Classifier(kOfImages, Idx());
  job.mutable_graph()->mutable_dim(1)->set_size(15);
  EXPECT_THAT(ErrorOf(job), HasSubstr("W0056 at input picture of main: expected f32[samples, ...] "
                                      "with 16 elements a sample or i32"));
  job = Classifier(kOfImages, Idx());
  job.mutable_data()->mutable_feed(0)->set_from("labels");
  EXPECT_THAT(ErrorOf(job), HasSubstr("W0056 at input picture of main: expected i32[samples], as "
                                      "feed labels delivers; found f32[6, 16]"));
  job = Classifier(kOfImages, Idx());
  job.mutable_training()->set_batch_dim("spots");
  EXPECT_THAT(ErrorOf(job),
              HasSubstr("W0908 at input picture of main: expected a first dimension of 16, "
                        "the samples of a step by training.batch_dim; found f32[6, 16]"));
}

TEST(JobDataTest, SyntheticDataDrawsWhatTheGraphNeedsAndSaysSo) {
  proto::Job job = Classifier(kOfSpots, "data { synthetic {} }");
  auto data = OpenJobData(job);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(
      (*data)->Describe(),
      "synthetic data, seed 0: kind integers uniform below 4; picture integers uniform below 256");
  std::set<int32_t> seen;
  for (int64_t step = 0; step < 100; ++step) {
    int32_t kinds[6];
    ASSERT_TRUE((*data)
                    ->Fill("kind", {store::DataPart::kTrain, step, 0, 1},
                           TensorSlice::Whole(DType::kI32, {6}), kinds)
                    .ok());
    seen.insert(kinds, kinds + 6);
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3}));
  TrainOf(job);
  EXPECT_EQ(OpenJobData(Classifier(kOfSpots, "")).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "no data";
}

// Draws of a language model must not change between versions, because figures and golden files
// depend on them.
TEST(JobDataTest, SyntheticTokensAreThoseTheyEverWere) {
  zoo::TransformerOptions options;
  options.training.batch = 2;
  options.sequence = 4;
  options.training.seed = 1;
  auto data = OpenJobData(*zoo::GptJob(options));
  ASSERT_TRUE(data.ok()) << data.status();
  int32_t tokens[8], targets[8];
  ASSERT_TRUE((*data)->Fill("tokens", {}, TensorSlice::Whole(DType::kI32, {2, 4}), tokens).ok());
  ASSERT_TRUE((*data)->Fill("targets", {}, TensorSlice::Whole(DType::kI32, {2, 4}), targets).ok());
  EXPECT_THAT(tokens, ::testing::ElementsAre(4, 148, 83, 40, 27, 91, 223, 39));
  for (int i : {0, 1, 2, 4, 5, 6}) EXPECT_EQ(targets[i], tokens[i + 1]);
}

TEST(JobDataTest, TextNeedsAWindowAndOneSizeOfIt) {
  zoo::TransformerOptions options;
  options.training.batch = 2;
  options.sequence = 4;
  options.training.data = WriteTemporary("text", std::string(4000, 'a'));
  proto::Job job = *zoo::GptJob(options);
  EXPECT_TRUE(OpenJobData(job).ok());
  job.mutable_data()->mutable_text()->set_path(WriteTemporary("latin", std::string(4000, '\xe9')));
  EXPECT_TRUE(OpenJobData(job).ok());
  job.mutable_graph()->mutable_function(1)->mutable_input(1)->set_type("i32<128>[batch, sequence]");
  EXPECT_THAT(ErrorOf(job), HasSubstr("W0051 at " + TemporaryPath("latin") +
                                      ", byte 0: expected bytes below 128 for input targets"));
  job = Classifier(kOfImages, absl::StrCat("data { text { path: \"", TemporaryPath("text"),
                                           "\" } feed { input: \"picture\" from: \"tokens\" } }"));
  EXPECT_THAT(ErrorOf(job), HasSubstr("W0056 at input picture of main: expected i32[samples, 16], "
                                      "as feed tokens delivers; found f32[6, 16]"));
}

}  // namespace
}  // namespace weir::train
