// Tests that one value out of range, anywhere in the data, ends the run and names its place,
// however the model is split. Without the check the kernels would continue: an embedding of zeros,
// a loss without its target.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/tensor_slice.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStep = 1, kMicroBatch = 1, kRow = 2, kColumn = 11, kSequence = 16;

// Feeds the values of another feed, except for one value.
class SpoiltFeed final : public actors::DataFeed {
 public:
  SpoiltFeed(const proto::Job& job, std::string input, int32_t value)
      : feed_(RepeatingFeed(job)), input_(std::move(input)), value_(value) {}
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override {
    absl::Status filled = feed_->Fill(feed, step, micro_batch, slice, out);
    const int64_t row = kRow - slice.offset[0], column = kColumn - slice.offset[1];
    const bool here = row >= 0 && row < slice.shape[0] && column >= 0 && column < slice.shape[1];
    if (feed == input_ && step == kStep && micro_batch == kMicroBatch && here)
      static_cast<int32_t*>(out)[row * slice.shape[1] + column] = value_;
    return filled;
  }

 private:
  std::unique_ptr<actors::DataFeed> feed_;
  std::string input_;
  int32_t value_;
};

struct Case {
  const char* mesh;
  int zero = 0;
  zoo::SequenceParallel sequence = zoo::SequenceParallel::kNone;
};

class OutOfRange : public ::testing::TestWithParam<Case> {
 protected:
  absl::Status Run(const std::string& input, int32_t value) {
    zoo::TransformerOptions options;
    options.layers = 2;
    options.hidden = 16;
    options.heads = 2;
    options.vocab = 60;
    options.sequence = kSequence;
    options.training.batch = 8;
    options.training.micro_batches = 2;
    options.training.steps = 3;
    options.sequence_parallel = GetParam().sequence;
    proto::Job job = *zoo::GptJob(options);
    job.mutable_training()->set_zero_stage(GetParam().zero);
    TrainRunOptions run_options;
    run_options.feed = [&](const proto::Job& of) {
      return std::make_unique<SpoiltFeed>(of, input, value);
    };
    return Train(WithMesh(job, GetParam().mesh), run_options).status();
  }
};

TEST_P(OutOfRange, TokensAndTargetsEndTheRunWithTheirPlace) {
  for (const auto& [input, reader] :
       {std::pair{"tokens",
                  "an index along dimension vocab of \"token_table\" (function main, node "
                  "embedded, embedding)"},
        std::pair{"targets",
                  "an index along dimension vocab of \"logits\" (function main, node token_loss, "
                  "softmax_cross_entropy)"}}) {
    for (int32_t value : {60, -1, INT32_MAX, INT32_MIN}) {
      SCOPED_TRACE(absl::StrCat(input, " ", value));
      absl::Status status = Run(input, value);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("W0906 at rank "));
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("input ", input,
                                         " of the model, step 2, micro-batch 1, row 2, position "
                                         "[11]: expected a value from 0 to 59, ",
                                         reader, "; found ", value)));
    }
    EXPECT_TRUE(Run(input, 59).ok()) << "the last value of the range";
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, OutOfRange,
                         ::testing::Values(Case{""}, Case{"dp=2"}, Case{"tp=2"}, Case{"pp=2"},
                                           Case{"dp=2,tp=2", 3},
                                           Case{"tp=2", 0, zoo::SequenceParallel::kMegatron},
                                           Case{"sp=2", 0, zoo::SequenceParallel::kUlysses}),
                         [](const auto& test) { return absl::StrCat("Case", test.index); });

}  // namespace
}  // namespace weir::training
