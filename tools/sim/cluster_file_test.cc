// Tests which cluster files the reader accepts, and the errors for other files.
#include "tools/sim/cluster_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::sim {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(
  device { name: "accelerator" peak { dtype: "f32" flops_per_second: 1e12 efficiency: 0.5 } bytes_per_second: 1e11 }
  host { device: "accelerator" devices: 2 }
)";

// Returns the error message that `text` gives, or "" if there is none.
std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<proto::Cluster> cluster = ParseCluster(text, "c.textproto");
  return cluster.ok() ? "" : std::string(cluster.status().message());
}

TEST(ClusterFileTest, ReadsWhatItWrites) {
  absl::StatusOr<proto::Cluster> cluster = ParseCluster(kGood, "c.textproto");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string text = ClusterText(*cluster);
  EXPECT_THAT(text, HasSubstr("proto-message: weir.proto.Cluster"));
  absl::StatusOr<proto::Cluster> again = ParseCluster(text, "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), cluster->SerializeAsString());
}

TEST(ClusterFileTest, AMissingFileIsMissing) {
  EXPECT_EQ(ReadClusterFile("/no/such/cluster").status().code(), absl::StatusCode::kNotFound);
}

TEST(ClusterFileTest, AFieldThatNothingHasIsReportedWithItsPlaceAndTheNearest) {
  const std::string error = ErrorOf(std::string(kGood) + "within_host { latency: 5 }");
  EXPECT_THAT(error, HasSubstr("W0700 at c.textproto:4:"));
  EXPECT_THAT(error, HasSubstr("\"latency\". Try: latency_ns"));
  EXPECT_THAT(ErrorOf("device: 3 host"), HasSubstr("weir calibrate JOB"));
}

TEST(ClusterFileTest, NamesMustBeThereAndFit) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("W0701"));
  EXPECT_THAT(ErrorOf("device { name: \"gpu\" } host { device: \"gpo\" devices: 1 }"),
              HasSubstr("found \"gpo\". Try: gpu"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "device { name: \"accelerator\" }"),
              HasSubstr("two called accelerator"));
}

TEST(ClusterFileTest, NumbersMustBePossible) {
  EXPECT_THAT(ErrorOf(std::string(kGood) + "within_host { latency_ns: -5 }"),
              HasSubstr("W0702 at c.textproto, within_host, latency_ns: expected a number from 0 "
                        "to 1e+15; found -5"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "between_hosts { bytes_per_second: nan }"),
              HasSubstr("W0702"));
  EXPECT_THAT(ErrorOf(std::string(kGood) + "host { device: \"accelerator\" }"),
              HasSubstr("devices: expected a number from 1"));
  EXPECT_THAT(ErrorOf(std::string(kGood) +
                      "host { device: \"accelerator\" devices: 1000000 count: 1000000 }"),
              HasSubstr("W0702"));
}

}  // namespace
}  // namespace weir::sim
