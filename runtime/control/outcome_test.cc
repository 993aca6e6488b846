#include "runtime/control/outcome.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/problem.h"

namespace weir::control {
namespace {

absl::Status Sent(const absl::Status& status) {
  proto::Outcome outcome;
  EXPECT_TRUE(outcome.ParseFromString(ToOutcome(status).SerializeAsString()));
  return FromOutcome(outcome);
}

TEST(OutcomeTest, StatusesTravel) {
  for (const absl::Status& status : {absl::OkStatus(), absl::DataLossError("a page\nis torn \xff"),
                                     absl::UnauthenticatedError("")}) {
    EXPECT_EQ(Sent(status), status);
  }
  EXPECT_EQ(Sent(absl::InternalError(std::string(20'000, 'x'))).message().size(), kOutcomeBytesMax);
}

TEST(OutcomeTest, ACodeThatIsNoneIsUnknown) {
  proto::Outcome strange;
  for (int code : {-1, 17, 1 << 30}) {
    strange.set_code(code);
    EXPECT_EQ(FromOutcome(strange).code(), absl::StatusCode::kUnknown);
  }
}

TEST(OutcomeTest, AProblemStaysAProblem) {
  const absl::Status sent = Rejected({"W0001", "job:3", "a size\n", "\"x\"", "size: 4"});
  const absl::Status status = Sent(sent);
  EXPECT_EQ(status, sent);
  EXPECT_EQ(At("worker 0", status).message(),
            "W0001 at worker 0, job:3: expected a size\\x0a; found \"x\". Try: size: 4.");
  EXPECT_EQ(ProblemOf(status)->hint, "size: 4");
}

TEST(OutcomeTest, AnErrorOfSeveralProblemsOrAVeryLongOneIsItsMessage) {
  const Problem problem = {"W0001", "", "a", "b", ""};
  const absl::Status several = ErrorOfAll(absl::StatusCode::kInvalidArgument, {problem, problem});
  EXPECT_EQ(Sent(several), absl::InvalidArgumentError(several.message()));
  const std::string controls(1000, '\1');
  const absl::Status escaped = Rejected({"W0001", controls, controls, controls, ""});
  EXPECT_FALSE(ProblemOf(Sent(escaped)).has_value());
  EXPECT_EQ(Sent(escaped).message(), escaped.message().substr(0, kOutcomeBytesMax));
}

}  // namespace
}  // namespace weir::control
