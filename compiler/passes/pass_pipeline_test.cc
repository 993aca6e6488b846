#include <sstream>

#include "compiler/passes/pass.h"
#include "compiler/passes/pass_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Three passes that note that they ran. `layer-cake` is required.
class PassPipelineTest : public ::testing::Test {
 protected:
  Pass Noting(const std::string& name, bool required) {
    return {name, "", required, [this, name](const PassContext&, Module*) {
              ran_.push_back(name);
              return absl::OkStatus();
            }};
  }

  absl::Status Run(PassPipelineOptions options) {
    options.dump_to = &dump_;
    PassPipeline pipeline(std::move(options));
    pipeline.Add(Noting("slice-bread", false));
    pipeline.Add(Noting("layer-cake", true));
    if (more_.has_value()) pipeline.Add(*more_);
    pipeline.Add(Noting("serve-tea", false));
    const absl::Status status = pipeline.Run(ContextOf(""), &module_);
    timings_ = pipeline.timings();
    return status;
  }

  std::string Flaw(PassPipelineOptions options) {
    const absl::Status status = Run(std::move(options));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(ran_, IsEmpty()) << "nothing runs before the options are known to be right";
    return std::string(status.message());
  }

  std::vector<std::string> ran_;
  std::ostringstream dump_;
  Module module_ = SmallClassifier();
  std::optional<Pass> more_;
  std::vector<PassTiming> timings_;
};

TEST_F(PassPipelineTest, PassesRunInTheirOrderAndAreTimed) {
  ASSERT_TRUE(Run({}).ok());
  EXPECT_THAT(ran_, ElementsAre("slice-bread", "layer-cake", "serve-tea"));
  ASSERT_EQ(timings_.size(), 3u);
  EXPECT_EQ(timings_[1].name, "layer-cake");
  EXPECT_EQ(timings_[1].nodes, 7) << "the classifier has 4 and 3 nodes";
  EXPECT_EQ(dump_.str(), "");
}

TEST_F(PassPipelineTest, AnOptionalPassIsLeftOutByName) {
  ASSERT_TRUE(Run({.dump_after = "", .disabled = {"slice-bread"}}).ok());
  EXPECT_THAT(ran_, ElementsAre("layer-cake", "serve-tea"));
  EXPECT_EQ(timings_.size(), 2u);
}

TEST_F(PassPipelineTest, ARequiredPassIsNotLeftOut) {
  EXPECT_THAT(Flaw({.dump_after = "", .disabled = {"layer-cake"}}),
              AllOf(HasSubstr("W0491 at --disable"), HasSubstr("\"layer-cake\"")));
}

TEST_F(PassPipelineTest, AnUnknownPassIsRefusedWithTheNearestThatMayBeLeftOut) {
  EXPECT_THAT(Flaw({.dump_after = "", .disabled = {"serve-tee"}}),
              AllOf(HasSubstr("W0490"), HasSubstr("one of slice-bread, serve-tea"),
                    HasSubstr("Try: serve-tea")));
}

TEST_F(PassPipelineTest, ADamagedExpressionIsRefused) {
  EXPECT_THAT(Flaw({.dump_after = "(", .disabled = {}}), HasSubstr("W0492 at --dump-after"));
}

TEST_F(PassPipelineTest, DumpsFollowTheExpressionAndAPassMayShowItsOwnResult) {
  more_ = Noting("cut-cake", true);
  more_->dump = [] { return "eight pieces\n"; };
  ASSERT_TRUE(Run({.dump_after = "cake$", .disabled = {}}).ok());
  EXPECT_THAT(dump_.str(),
              AllOf(HasSubstr("# after layer-cake\nfunction layer\n"),
                    HasSubstr("# after cut-cake\neight pieces\n"), Not(HasSubstr("serve-tea"))));
}

TEST_F(PassPipelineTest, AFailedPassEndsTheRun) {
  more_ = {"fail", "", true,
           [](const PassContext&, Module*) { return absl::InvalidArgumentError("no flour"); }};
  EXPECT_EQ(Run({}).message(), "no flour");
  EXPECT_THAT(ran_, ElementsAre("slice-bread", "layer-cake"));
}

TEST_F(PassPipelineTest, APassThatSpoilsTheModuleIsNamed) {
  more_ = {"spoil", "", true, [](const PassContext&, Module* module) {
             module->functions[1].nodes.pop_back();
             return absl::OkStatus();
           }};
  const absl::Status status = Run({});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("after pass spoil: "), HasSubstr("function main.1")));
  EXPECT_THAT(ran_, ElementsAre("slice-bread", "layer-cake"));
}

PassPipelineOptions RunTwice() {
  return {.text_for_second_run = [](const Module& module) { return ToText(module, MeshOf("")); }};
}

TEST_F(PassPipelineTest, OnRequestEveryPassRunsTwiceAndIsTimedOnce) {
  ASSERT_TRUE(Run(RunTwice()).ok());
  EXPECT_THAT(ran_, ElementsAre("slice-bread", "slice-bread", "layer-cake", "layer-cake",
                                "serve-tea", "serve-tea"));
  EXPECT_EQ(timings_.size(), 3u);
}

TEST_F(PassPipelineTest, APassWhoseSecondRunChangesTheModuleIsNamed) {
  more_ = {"rename", "", true, [](const PassContext&, Module* module) {
             module->functions[0].name += "'";
             return absl::OkStatus();
           }};
  const absl::Status status = Run(RunTwice());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "a second run of pass rename changes a result");
}

TEST_F(PassPipelineTest, APassWhoseSecondRunChangesItsOwnResultIsNamed) {
  more_ = Noting("count", true);
  more_->dump = [this] { return std::to_string(ran_.size()); };
  EXPECT_EQ(Run(RunTwice()).message(), "a second run of pass count changes a result");
}

}  // namespace
}  // namespace weir::compiler
