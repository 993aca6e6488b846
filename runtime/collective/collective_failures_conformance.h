// The requirements on every collective library where something goes wrong: ranks that do not come,
// limits, stops, arguments that do not fit. These tests belong to the suite of
// collective_conformance.h, and a library that joins the suite includes both headers.
#pragma once

#include "runtime/collective/collective_conformance.h"

namespace weir::collective {

// The last rank does not come to the second operation. All others hear of it in time, and a new
// communicator of the next epoch works.
TEST_P(CollectiveConformance, AMissingRankIsAnErrorForAllOthersAndANewEpochWorks) {
  if (size_ == 1) GTEST_SKIP() << "a group of one rank waits for nobody";
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    CommunicatorSpec spec = SpecOf(rank, seat);
    spec.overdue_ms = fixture_->overdue_ms();
    std::unique_ptr<Communicator> communicator = Make(seat, spec);
    const auto heard = [&](int member) { return absl::StrCat("heard/", spec.group, "/", member); };
    if (communicator == nullptr) return;
    ExpectWorks(rank, seat, communicator.get());
    if (rank + 1 < size_) {
      const MonotonicClock clock;
      const int64_t begin_ns = clock.NowNs();
      char* const at = seat->Allocate(4 * kLarge);
      absl::Status status =
          communicator->Run({.count = kLarge, .from = at, .to = at}, seat->stream());
      if (status.ok()) status = seat->Finish(communicator.get());
      EXPECT_FALSE(status.ok()) << "rank " << rank;
      EXPECT_TRUE(absl::StrContains(status.message(), "W095")) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), spec.group)) << status;
      EXPECT_LT(clock.NowNs() - begin_ns, (fixture_->overdue_ms() + 20'000) * 1'000'000);
      EXPECT_FALSE(communicator->AsyncError().ok());
      EXPECT_EQ(seat->exchange()->Publish(heard(rank), ""), absl::OkStatus());
    } else {
      for (int other = 0; other + 1 < size_; ++other)
        EXPECT_TRUE(seat->exchange()->Fetch(heard(other)).ok());
    }
    communicator->Abort();
    communicator->Abort();
    char* const at = seat->Allocate(64);
    EXPECT_FALSE(communicator->Run({.count = 1, .from = at, .to = at}, seat->stream()).ok());
    EXPECT_FALSE(communicator->AsyncError().ok());
    communicator = nullptr;
    spec = SpecOf(rank, seat);
    spec.epoch = 1;
    communicator = Make(seat, spec);
    if (communicator == nullptr) return;
    ExpectWorks(rank, seat, communicator.get());
  });
}

TEST_P(CollectiveConformance, ARankThatWaitsForItsGroupGivesUpAtTheLimitAndWhenItIsTold) {
  if (size_ == 1) GTEST_SKIP() << "a group of one rank waits for nobody";
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    if (rank != 0) return;
    CommunicatorSpec spec = SpecOf(rank, seat, "late");
    spec.limit_ms = 200;
    absl::Status status = CreateOver(seat->exchange(), seat->library(), spec).status();
    EXPECT_TRUE(absl::StrContains(status.message(), "W0952")) << status;
    const std::atomic<bool> stop = true;
    spec = SpecOf(rank, seat, "stopped");
    spec.stop = &stop;
    status = CreateOver(seat->exchange(), seat->library(), spec).status();
    EXPECT_TRUE(absl::StrContains(status.message(), "W0952")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "stop")) << status;
  });
}

TEST_P(CollectiveConformance, WrongArgumentsAreRefusedAndChangeNothing) {
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    CommunicatorSpec spec = SpecOf(rank, seat);
    spec.rank = size_;
    EXPECT_FALSE(seat->library()->Create(spec).ok());
    spec = SpecOf(rank, seat);
    const std::unique_ptr<Communicator> communicator = Make(seat, spec);
    if (communicator == nullptr) return;
    char* const at = seat->Allocate(4096);
    char* const to = seat->Allocate(4096);
    const std::vector<Operation> wrong = {
        {.count = -1, .from = at, .to = to},
        {.count = int64_t{1} << 60, .from = at, .to = to},
        {.count = 4, .from = nullptr, .to = to},
        {.count = 4, .from = at, .to = nullptr},
        {.count = 4, .from = at + 2, .to = to},
        {.dtype = DType::kBF16, .count = 4, .from = at, .to = to + 1},
        {.dtype = DType::kBool, .count = 4, .from = at, .to = to},
        {.count = 4, .from = at, .to = at + 4},
        {.kind = Operation::Kind::kAllToAll, .count = 4, .from = at, .to = at},
        {.kind = Operation::Kind::kReduceScatter,
         .count = 4,
         .from = at,
         .to = at + rank * 16 + (rank + 1 < size_ || rank == 0 ? 4 : -4)},
        {.kind = Operation::Kind::kAllGather, .count = 4, .from = at + rank * 16 + 4, .to = at}};
    for (const Operation& operation : wrong) {
      const absl::Status status = communicator->Run(operation, seat->stream());
      EXPECT_TRUE(absl::StrContains(status.message(), "W0951")) << &operation - &wrong[0] << status;
    }
    const std::vector<SendMove> sends = {{0, 4, at}};
    const std::vector<std::vector<ReceiveMove>> bad_receives = {
        {{size_, 4, to}}, {{-1, 4, to}}, {{0, 4, at + 8}}, {{0, 4, to}, {0, 4, to + 12}},
        {{0, 4, to + 1}}, {{0, -4, to}}};
    for (const std::vector<ReceiveMove>& receives : bad_receives) {
      const absl::Status status =
          communicator->SendReceive({.sends = sends, .receives = receives}, seat->stream());
      EXPECT_TRUE(absl::StrContains(status.message(), "W0951")) << status;
    }
    EXPECT_EQ(communicator->AsyncError(), absl::OkStatus());
    ExpectWorks(rank, seat, communicator.get());
  });
}

}  // namespace weir::collective
