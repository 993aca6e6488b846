#include "tools/fleet/buddy_line.h"

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "actors/testing/shared_network.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

const absl::Duration kLimit = absl::Seconds(60);

// Waits for the thread of a line.
bool Await(const std::function<bool()>& holds) {
  const absl::Time deadline = absl::Now() + kLimit;
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// The part of a line in a network that two lines share.
class Share final : public transport::TransportNetwork {
 public:
  explicit Share(transport::TransportNetwork* whole) : whole_(whole) {}
  transport::TransportEndpoint* endpoint(RankId rank) override { return whole_->endpoint(rank); }

 private:
  transport::TransportNetwork* const whole_;
};

std::string Text(int64_t bytes, char seed) {
  std::string text(static_cast<size_t>(bytes), ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(seed + i * i % 83);
  return text;
}

// Two workers of one rank each, which are buddies of each other.
class BuddyLineTest : public ::testing::TestWithParam<actors::SharedNetwork::Mapping> {
 protected:
  static constexpr int64_t kBytes[2] = {5'000'001, 10};

  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(
          guarded_[i].Expect({{WorkerId(1 - i), {{RankId(1 - i), "w", kBytes[1 - i]}}}}).ok());
    }
    absl::StatusOr<std::unique_ptr<BuddyLine>> lines[2];
    std::thread other([&] { lines[1] = Connect(1); });
    lines[0] = Connect(0);
    other.join();
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(lines[i].ok()) << lines[i].status();
      lines_[i] = *std::move(lines[i]);
    }
  }

  absl::StatusOr<std::unique_ptr<BuddyLine>> Connect(int i) {
    BuddyLineOptions options;
    options.rank = RankId(i);
    options.to_buddy = {RankId(1 - i), WorkerId(i), kBytes[i]};
    options.from_charges = {{RankId(1 - i), WorkerId(1 - i), kBytes[1 - i]}};
    return BuddyLine::Connect(options, std::make_unique<Share>(&network_), &guarded_[i]);
  }

  std::string Copy(int of) const {
    const auto read = guarded_[1 - of].Read(RankId(of), "w", 0, kBytes[of]);
    return read.ok() ? std::string(*read) : std::string(read.status().message());
  }

  actors::SharedNetwork network_{2,
                                 GetParam() == actors::SharedNetwork::Mapping::kDirect
                                     ? actors::SharedNetwork::Landing::kAnywhere
                                     : actors::SharedNetwork::Landing::kOwn,
                                 GetParam()};
  GuardedStates guarded_[2];
  std::unique_ptr<BuddyLine> lines_[2];
};

INSTANTIATE_TEST_SUITE_P(Networks, BuddyLineTest,
                         ::testing::Values(actors::SharedNetwork::Mapping::kDirect,
                                           actors::SharedNetwork::Mapping::kCopied));

TEST_P(BuddyLineTest, CopiesReachTheBuddiesByteForByte) {
  EXPECT_EQ(lines_[0]->Sent().step, -1);
  for (int64_t step = 4; step <= 12; step += 4) {
    const std::string texts[2] = {Text(kBytes[0], static_cast<char>(step)),
                                  Text(kBytes[1], static_cast<char>(step + 1))};
    // The pieces of a copy lie anywhere, and some are empty.
    const absl::string_view first = texts[0];
    lines_[0]->Send(step, {first.substr(0, 3), first.substr(3, 0), first.substr(3)});
    lines_[1]->Send(step, {texts[1]});
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(Await([&] { return lines_[i]->Sent().step == step; }));
      EXPECT_EQ(lines_[i]->Sent().bytes, kBytes[i]);
      EXPECT_TRUE(Copy(i) == texts[i]);
      EXPECT_TRUE(lines_[i]->Fault().ok()) << lines_[i]->Fault();
    }
  }
}

TEST_P(BuddyLineTest, ALineEndsWhenItsBuddyLeavesAndTheCopyBeforeStays) {
  const std::string before = Text(kBytes[0], 1), after = Text(kBytes[0], 2);
  lines_[0]->Send(4, {before});
  ASSERT_TRUE(Await([&] { return lines_[0]->Sent().step == 4; }));
  lines_[0]->Send(8, {after});
  lines_[0].reset();
  ASSERT_TRUE(Await([&] { return !lines_[1]->Fault().ok(); }));
  EXPECT_TRUE(absl::IsUnavailable(lines_[1]->Fault())) << lines_[1]->Fault();
  const std::string copy = Copy(0);
  EXPECT_TRUE(copy == before || copy == after);
}

}  // namespace
}  // namespace weir::fleet
