#include "compiler/cost/boxing_cost.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sbp/boxing.h"

namespace weir::compiler {
namespace {

sbp::Layout LayoutOf(int a, int b) {
  const auto part = [](int number) {
    return number == 0 ? sbp::Sbp::B() : number == 1 ? sbp::Sbp::P() : sbp::Sbp::S(number - 2);
  };
  return {part(a), part(b)};
}

// The sent bytes are the closed form of sbp/boxing.h, from which the times follow.
TEST(BoxingCosts, BytesAreThoseOfThePlannedBoxing) {
  const sbp::Mesh mesh({{"a", 2}, {"b", 4}});
  const sbp::Places places = sbp::PipelinePlaces(mesh);
  const PeakCosts costs;
  BoxingCosts boxings(&costs, places, 0);
  const sbp::TensorType type{DType::kF32, {{"rows", 64, 1}, {"columns", 32, 1}}};
  int equal = 0, compared = 0;
  for (int from = 0; from < 16; ++from) {
    for (int to = 0; to < 16; ++to) {
      const sbp::Layout have = LayoutOf(from / 4, from % 4), want = LayoutOf(to / 4, to % 4);
      bool makes_partials = false;
      int changed = 0;
      for (int axis = 0; axis < 2; ++axis) {
        makes_partials = makes_partials || (want[axis].is_partial() && !have[axis].is_partial());
        if (!(want[axis] == have[axis])) ++changed;
      }
      if (makes_partials) continue;
      const auto steps = sbp::PlanBoxing(type, {have, 0}, {want, 0}, places);
      ASSERT_TRUE(steps.ok()) << steps.status();
      const double sent = static_cast<double>(sbp::TotalBytes(type, *steps, places)) / 8;
      const BoxingTime& time = boxings.Of(type, have, want);
      const std::string pair = absl::StrCat(ToText(have, mesh), " -> ", ToText(want, mesh));
      ++compared;
      if (std::abs(time.sent_bytes - sent) < 1) ++equal;
      // A change of one axis is exact, unless it merges partials into parts of parts. Where two
      // change at once, a device may hold some of what it gathers.
      const bool nests = want[0].is_split() && want[1].is_split() && want[0].axis == want[1].axis;
      if (changed == 1 && !nests) {
        EXPECT_NEAR(time.sent_bytes, sent, 1) << pair;
      }
      EXPECT_GE(time.sent_bytes, sent / 2) << pair;
      EXPECT_LE(time.sent_bytes, 2 * sent + 1) << pair;
    }
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(equal, compared * 3 / 4);
}

TEST(BoxingCosts, ChunksCostActsAndNoBytes) {
  DevicePeaks peaks;
  peaks.act_ns = peaks.kernel_ns = 0;
  const PeakCosts costs(peaks);
  const sbp::Places places = sbp::PipelinePlaces(sbp::Mesh({{"a", 8}}));
  const sbp::TensorType type{DType::kF32, {{"rows", 1 << 22, 1}}};
  BoxingCosts boxings(&costs, places, 1 << 18);
  const sbp::Layout split{sbp::Sbp::S(0)}, whole{sbp::Sbp::B()};
  const double in_chunks = boxings.Of(type, split, whole, ExchangePieces::kChunks).device_ns,
               in_one = boxings.Of(type, split, whole, ExchangePieces::kWhole).device_ns;
  EXPECT_NEAR(in_chunks / in_one, 1, 1e-3);
}

TEST(BoxingCosts, LinksThatAreSharedTakeLonger) {
  class SharedLinks : public PeakCosts {
   public:
    LinkSharing SharingOf(LinkLevel) const override { return LinkSharing::kDevice; }
  };
  const sbp::Places places = sbp::PipelinePlaces(sbp::Mesh({{"a", 4}}));
  const PeakCosts apart;
  const SharedLinks shared;
  const sbp::TensorType type{DType::kF32, {{"rows", 1 << 20, 1}}};
  BoxingCosts of_apart(&apart, places, 0), of_shared(&shared, places, 0);
  const sbp::Layout split{sbp::Sbp::S(0)}, whole{sbp::Sbp::B()};
  EXPECT_GT(of_shared.Of(type, split, whole).link_ns, 2 * of_apart.Of(type, split, whole).link_ns);
  EXPECT_EQ(of_shared.Of(type, split, whole).device_ns, of_apart.Of(type, split, whole).device_ns);
}

}  // namespace
}  // namespace weir::compiler
