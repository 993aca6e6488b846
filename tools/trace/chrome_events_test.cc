// A record whose times are known, as trace events.
#include "tools/trace/chrome_events.h"

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/trace/relay_testing.h"

namespace weir::trace {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json EventsOf(const std::string& file) {
  std::ostringstream out;
  EXPECT_EQ(WriteChromeEvents(file, "the relay", out), absl::OkStatus());
  return json::parse(out.str());
}

std::vector<json> OfKind(const json& whole, const std::string& kind) {
  std::vector<json> found;
  for (const json& event : whole["traceEvents"]) {
    if (event["ph"] == kind) found.push_back(event);
  }
  return found;
}

TEST(ChromeEventsTest, ActsAndWaitsAreCompleteEventsOfTheirRank) {
  const json whole = EventsOf(Relay(2).File({0, 1}));
  EXPECT_EQ(whole["otherData"]["plan"], "relay");
  std::map<int, std::string> names;  // of processes
  for (const json& event : OfKind(whole, "M")) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
  }
  int acts = 0, waits = 0;
  for (const json& event : OfKind(whole, "X")) {
    (event["cat"] == "act" ? acts : waits) += 1;
    if (event["name"] != "actor of y" || event["args"]["step"] != 2) continue;
    EXPECT_EQ(names[event["pid"]], "rank 1");
    EXPECT_DOUBLE_EQ(event["ts"].get<double>(), 1000 + 50);  // kBegin is 1000 us
    EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 20);
    EXPECT_EQ(event["args"]["function"], "read x");
  }
  EXPECT_EQ(acts, 4);
  EXPECT_GE(waits, 2);
}

TEST(ChromeEventsTest, AnArrowLeadsFromWithinTheSendToTheActThatTakesTheToken) {
  const json whole = EventsOf(Relay(2).File({0, 1}));
  const std::vector<json> sends = OfKind(whole, "s"), takes = OfKind(whole, "f");
  ASSERT_EQ(sends.size(), 2u);
  ASSERT_EQ(takes.size(), 2u);
  for (size_t i = 0; i < sends.size(); ++i) {
    EXPECT_EQ(sends[i]["id"], takes[i]["id"]);
    EXPECT_NE(sends[i]["pid"], takes[i]["pid"]);
    EXPECT_EQ(takes[i]["bp"], "e");
    EXPECT_NEAR(takes[i]["ts"].get<double>() - sends[i]["ts"].get<double>(), 5.001, 1e-9);
  }
}

TEST(ChromeEventsTest, AFailureIsAMarkOfItsRank) {
  std::ostringstream marks;
  ASSERT_EQ(
      WriteFailures({{kBegin + 90 * kMicrosecond, {RankId(1)}, "killed by SIGKILL (9)"}}, marks),
      absl::OkStatus());
  const json whole = EventsOf(Relay(2).File({0, 1}) + marks.str());
  const std::vector<json> found = OfKind(whole, "i");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["name"], "killed by SIGKILL (9)");
  EXPECT_EQ(found[0]["pid"], 3) << "the process of rank 1";
  EXPECT_DOUBLE_EQ(found[0]["ts"].get<double>(), 1000 + 90);
}

TEST(ChromeEventsTest, BytesThatAreNoTraceAreRefused) {
  std::ostringstream out;
  EXPECT_THAT(std::string(WriteChromeEvents("no trace", "it", out).message()), HasSubstr("W0531"));
  EXPECT_THAT(std::string(WriteChromeEvents("", "it", out).message()),
              HasSubstr("no description of a job"));
}

}  // namespace
}  // namespace weir::trace
