#include "tools/view/plan_file.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::view {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A plan of one rank, as `weir plan --json` prints it, with the fields of which the page reads.
constexpr char kPlan[] = R"({
  "job": "a", "plan_id": "17", "mesh": "dp=1", "micro_batches": 1,
  "fit": {"fits": true, "text": "fits", "rank": 0, "rank_bytes": 1, "all_bytes": 1},
  "lines": {"job": "a", "step": "1 ms", "memory": "1 MiB", "bytes": "none"},
  "warnings": ["a warning"],
  "prediction": {"costs": "assumed", "step_seconds": 0.001, "simulated": true},
  "devices": [{"rank": 0, "name": "d", "computing": 1, "packing": 0, "waiting": 0, "bytes": 1}],
  "schedule": {"kind": "1F1B", "bubble_of_even_parts": 0, "predicted_bubble": 0.5, "text": "t",
               "parts": [{"stage": 0, "in_flight": 1, "calls": ["main"]}]},
  "bytes_per_step": 0,
  "boxings": [{"name": "x", "method": "all-reduce", "layouts": "P -> B", "bytes_per_step": 8,
               "times": 1}],
  "functions": [{"name": "main", "first_call": "main.0", "calls": 1,
                 "tensors": [{"name": "w", "what": "weight", "role": "weight", "type": "f32[2]",
                              "layout": "B", "why": "a rule"}]}],
  "ranks": [{"rank": 0, "device": "d", "stage": 0, "actors": 3, "registers": 2, "arena_bytes": 1,
             "memory": {"weight_bytes": 1, "optimiser_bytes": 1, "register_bytes": 1,
                        "landing_bytes": 0, "scratch_bytes": 0, "most_alive_bytes": 3,
                        "largest": [{"name": "w", "bytes": 8, "slots": 1, "from": "a",
                                     "until": "b", "why": "c"}]}}]
})";

std::string ErrorOf(const std::string& text) {
  return std::string(ReadPlanFile(text, "plan.json").status().message());
}
std::string With(const std::string& before, const std::string& after) {
  std::string text = kPlan;
  EXPECT_EQ(absl::StrReplaceAll({{before, after}}, &text), 1) << before;
  return text;
}

TEST(PlanFileTest, APlanIsRead) {
  const auto plan = ReadPlanFile(kPlan, "plan.json");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)["functions"][0]["tensors"][0]["why"], "a rule");
}

TEST(PlanFileTest, EachLackIsNamedWithItsPlace) {
  EXPECT_THAT(ErrorOf("{"), AllOf(HasSubstr("W0538"), HasSubstr("plan.json"),
                                  HasSubstr("no JSON at byte "), HasSubstr("weir plan JOB")));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("whole is a list, and not an object"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("JSON without plan_id"));
  EXPECT_THAT(ErrorOf(With(R"("text": "fits", )", "")), HasSubstr("JSON without fit.text"));
  EXPECT_THAT(ErrorOf(With(R"("layout": "B")", R"("layout": 7)")),
              HasSubstr("functions.0.tensors.0.layout is a number, and not a text"));
  EXPECT_THAT(ErrorOf(With(R"("times": 1)", R"("times": 1, "why": null)")),
              HasSubstr("boxings.0.why is null"));
  EXPECT_THAT(ErrorOf(With(R"(["a warning"])", R"("a warning")")),
              HasSubstr("warnings is a text, and not a list"));
}

TEST(PlanFileTest, TextsThatWouldTakeMuchMemoryAreRefused) {
  std::string many = "[";
  for (int i = 0; i < 1'100'000; ++i) many += "0,";
  EXPECT_THAT(ErrorOf(absl::StrCat(many, "0]")), HasSubstr("more than 1000000 values"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("more than 32 levels"));
}

}  // namespace
}  // namespace weir::view
