#include "compiler/cost/cost_model.h"

#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

KernelUse Matmul(const std::string& op, const Attributes& attrs, int64_t m, int64_t k, int64_t n) {
  auto whole = [](Shape shape) { return TensorSlice::Whole(DType::kF32, std::move(shape)); };
  return {op, attrs, {whole({m, k}), whole({k, n})}, {whole({m, n})}};
}

DevicePeaks Peaks() {
  DevicePeaks peaks;
  peaks.flops_per_second = 1e9;
  peaks.memory_bytes_per_second = 1e9;
  peaks.kernel_ns = 7;
  return peaks;
}

TEST(PeakCosts, ALargeMatmulTakesItsArithmetic) {
  const std::string op = "matmul";
  const Attributes attrs;
  EXPECT_EQ(PeakCosts(Peaks()).KernelNs(Matmul(op, attrs, 100, 100, 100)), 7 + 2 * 100 * 100 * 100);
}

TEST(PeakCosts, AThinMatmulTakesItsTraffic) {
  const std::string op = "matmul";
  const Attributes attrs;
  EXPECT_EQ(PeakCosts(Peaks()).KernelNs(Matmul(op, attrs, 1, 100, 100)),
            7 + 4 * (100 + 100 * 100 + 100));
}

TEST(PeakCosts, AnUnknownOpTakesItsTraffic) {
  const std::string op = "nobody knows it";
  const Attributes attrs;
  KernelUse use{op, attrs, {}, {TensorSlice::Whole(DType::kF32, {10})}};
  EXPECT_EQ(PeakCosts(Peaks()).KernelNs(use), 7 + 40);
}

TEST(PeakCosts, MessagesBetweenHostsTakeLonger) {
  DevicePeaks peaks = Peaks();
  peaks.within_host = {10, 1e9};
  peaks.between_hosts = {100, 1e8};
  peaks.devices_per_host = 4;
  PeakCosts costs(peaks);
  EXPECT_EQ(costs.LevelBetween(RankId(0), RankId(3)), LinkLevel::kWithinHost);
  EXPECT_EQ(costs.LevelBetween(RankId(3), RankId(4)), LinkLevel::kBetweenHosts);
  EXPECT_EQ(costs.LatencyNs(LinkLevel::kWithinHost, 50), 60);
  EXPECT_EQ(costs.LatencyNs(LinkLevel::kBetweenHosts, 50), 600);
}

}  // namespace
}  // namespace weir::compiler
