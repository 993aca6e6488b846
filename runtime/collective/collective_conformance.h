// The requirements on every collective library, as one suite. A library joins by instantiating the
// suite with a factory and the sizes of groups:
//
//   INSTANTIATE_TEST_SUITE_P(Local, CollectiveConformance,
//                            ::testing::Combine(::testing::Values(&MakeLocalFixture),
//                                               ::testing::Range(1, 6)));
//
// Numbers are small and whole, so that every sum is exact in every type, whatever its order.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/collective/collective_fixture.h"

namespace weir::collective {

class CollectiveConformance
    : public ::testing::TestWithParam<std::tuple<CollectiveFixtureFactory, int>> {
 protected:
  static constexpr int64_t kLarge = 100'003;  // odd
  static constexpr DType kNumbers[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI32};

  void SetUp() override {
    fixture_ = std::get<0>(GetParam())();
    const std::string missing = fixture_->Missing(size_);
    if (!missing.empty()) GTEST_SKIP() << "NOT RUN: " << missing;
  }

  // Returns the spec of a group of all ranks; names differ between tests.
  CommunicatorSpec SpecOf(int rank, CollectiveSeat* seat, const std::string& name = "all") const {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    CommunicatorSpec spec;
    spec.group = absl::StrCat(name, " of ", test->name());
    for (int member = 0; member < size_; ++member) spec.ranks.push_back(RankId(member));
    spec.rank = rank;
    spec.marks = seat->marks();
    return spec;
  }
  static std::unique_ptr<Communicator> Make(CollectiveSeat* seat, const CommunicatorSpec& spec) {
    absl::StatusOr<std::unique_ptr<Communicator>> made =
        CreateOver(seat->exchange(), seat->library(), spec);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  // The number that a rank has at a place; between -5 and 5, so that sums are exact.
  static double Number(int rank, int64_t i) {
    return static_cast<double>((i * 5 + rank * 3) % 11) - 5;
  }
  static std::vector<double> Numbers(int rank, int64_t begin, int64_t count) {
    std::vector<double> numbers(count);
    for (int64_t i = 0; i < count; ++i) numbers[i] = Number(rank, begin + i);
    return numbers;
  }
  std::vector<double> Combined(Combiner combiner, int64_t begin, int64_t count) const {
    std::vector<double> result = Numbers(0, begin, count);
    for (int rank = 1; rank < size_; ++rank) {
      for (int64_t i = 0; i < count; ++i) {
        const double term = Number(rank, begin + i);
        result[i] = combiner == Combiner::kSum ? result[i] + term : std::max(result[i], term);
      }
    }
    return result;
  }

  static void Put(CollectiveSeat* seat, char* to, DType dtype, const std::vector<double>& numbers) {
    const std::vector<char> bytes = Encoded(dtype, numbers);
    if (!bytes.empty()) seat->Write(to, bytes.data(), bytes.size());
  }
  static std::vector<double> Get(CollectiveSeat* seat, const char* from, DType dtype,
                                 int64_t count) {
    std::vector<char> bytes(count * SizeOf(dtype));
    if (!bytes.empty()) seat->Read(bytes.data(), from, bytes.size());
    return Decoded(dtype, bytes);
  }

  // Runs an operation of `in` and `out` blocks of `count` numbers on each rank for all counts and
  // types, and compares with `expected`. `place` is where the operation works in place: the bytes
  // from the beginning of the bigger buffer to that of the smaller, in blocks; -1: nowhere.
  struct Case {
    Operation::Kind kind;
    Combiner combiner = Combiner::kSum;
    int in = 1, out = 1;
    int place = -1;
  };
  void Check(const std::string& name, const std::function<Case(int rank)>& case_of,
             const std::function<std::vector<double>(int rank, int64_t count)>& expected);

  void ExpectWorks(int rank, CollectiveSeat* seat, Communicator* communicator) const {
    char* const at = seat->Allocate(3 * 4);
    Put(seat, at, DType::kF32, Numbers(rank, 0, 3));
    absl::Status status = communicator->Run({.count = 3, .from = at, .to = at}, seat->stream());
    if (status.ok()) status = seat->Finish(communicator);
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_EQ(Get(seat, at, DType::kF32, 3), Combined(Combiner::kSum, 0, 3));
  }

  const int size_ = std::get<1>(GetParam());
  std::unique_ptr<CollectiveFixture> fixture_;
};

inline void CollectiveConformance::Check(
    const std::string& name, const std::function<Case(int rank)>& case_of,
    const std::function<std::vector<double>(int rank, int64_t count)>& expected) {
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    const std::unique_ptr<Communicator> communicator = Make(seat, SpecOf(rank, seat, name));
    if (communicator == nullptr) return;
    const Case shape = case_of(rank);
    for (const DType dtype : kNumbers) {
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{17}, kLarge}) {
        for (const bool in_place : {false, true}) {
          if (in_place && shape.place < 0) continue;
          const std::string where = absl::StrCat("rank ", rank, ", ", Name(dtype), ", ", count,
                                                 in_place ? " in place" : "");
          const int64_t block = count * SizeOf(dtype);
          // A canary of one element stands behind the output.
          char* const bigger = seat->Allocate(block * std::max(shape.in, shape.out) + 64);
          char* const other = seat->Allocate(block * std::max(shape.in, shape.out) + 64);
          char* const from =
              !in_place || shape.in >= shape.out ? bigger : bigger + shape.place * block;
          char* const to = !in_place               ? other
                           : shape.in >= shape.out ? bigger + shape.place * block
                                                   : bigger;
          Put(seat, from, dtype, Numbers(rank, 0, shape.in * count));
          if (!in_place) Put(seat, to + shape.out * block, dtype, {42});
          absl::Status status = communicator->Run({.kind = shape.kind,
                                                   .dtype = dtype,
                                                   .combiner = shape.combiner,
                                                   .count = count,
                                                   .from = from,
                                                   .to = to},
                                                  seat->stream());
          if (status.ok()) status = seat->Finish(communicator.get());
          ASSERT_EQ(status, absl::OkStatus()) << where;
          ASSERT_EQ(Get(seat, to, dtype, shape.out * count), expected(rank, count)) << where;
          if (in_place) continue;
          EXPECT_EQ(Get(seat, to + shape.out * block, dtype, 1)[0], dtype == DType::kBool ? 1 : 42)
              << where;
          EXPECT_EQ(Get(seat, from, dtype, shape.in * count), Numbers(rank, 0, shape.in * count))
              << where << ": the input stays";
        }
      }
    }
  });
}

TEST_P(CollectiveConformance, AllReduceCombinesTheNumbersOfAllRanks) {
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMax}) {
    Check(
        Name(combiner),
        [&](int) {
          return Case{Operation::Kind::kAllReduce, combiner, 1, 1, 0};
        },
        [&](int, int64_t count) { return Combined(combiner, 0, count); });
    fixture_ = std::get<0>(GetParam())();
  }
}

TEST_P(CollectiveConformance, ReduceScatterGivesEachRankItsBlock) {
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMax}) {
    Check(
        Name(combiner),
        [&](int rank) {
          return Case{Operation::Kind::kReduceScatter, combiner, size_, 1, rank};
        },
        [&](int rank, int64_t count) { return Combined(combiner, rank * count, count); });
    fixture_ = std::get<0>(GetParam())();
  }
}

TEST_P(CollectiveConformance, AllGatherGivesAllRanksTheBlocksInOrder) {
  Check(
      "all",
      [&](int rank) {
        return Case{Operation::Kind::kAllGather, Combiner::kSum, 1, size_, rank};
      },
      [&](int, int64_t count) {
        std::vector<double> all;
        for (int rank = 0; rank < size_; ++rank) {
          const std::vector<double> part = Numbers(rank, 0, count);
          all.insert(all.end(), part.begin(), part.end());
        }
        return all;
      });
}

TEST_P(CollectiveConformance, AllToAllTransposesTheBlocks) {
  Check(
      "all",
      [&](int) {
        return Case{Operation::Kind::kAllToAll, Combiner::kSum, size_, size_, -1};
      },
      [&](int rank, int64_t count) {
        std::vector<double> all;
        for (int sender = 0; sender < size_; ++sender) {
          const std::vector<double> part = Numbers(sender, rank * count, count);
          all.insert(all.end(), part.begin(), part.end());
        }
        return all;
      });
}

// Each rank sends each rank, itself included, two messages of lengths that tell both apart.
TEST_P(CollectiveConformance, SendReceiveMovesUnevenMessagesInOrder) {
  const auto length = [](int from, int to, int k) {
    return int64_t{k == 0 ? 1000 : 1} * (from + 2 * to);
  };
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    const std::unique_ptr<Communicator> communicator = Make(seat, SpecOf(rank, seat));
    if (communicator == nullptr) return;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool}) {
      const auto numbers = [&](int from, int to, int k) {
        std::vector<double> values = Numbers(from * 5 + to, k, length(from, to, k));
        if (dtype == DType::kBool) {
          for (double& x : values) x = x > 0 ? 1 : 0;
        }
        return values;
      };
      std::vector<SendMove> sends;
      std::vector<ReceiveMove> receives;
      for (int peer = 0; peer < size_; ++peer) {
        for (int k = 0; k < 2; ++k) {
          char* const from = seat->Allocate(length(rank, peer, k) * SizeOf(dtype) + 8);
          Put(seat, from, dtype, numbers(rank, peer, k));
          sends.push_back({peer, length(rank, peer, k), from});
          char* const to = seat->Allocate(length(peer, rank, k) * SizeOf(dtype) + 8);
          receives.push_back({peer, length(peer, rank, k), to});
        }
      }
      absl::Status status = communicator->SendReceive(
          {.dtype = dtype, .sends = sends, .receives = receives}, seat->stream());
      if (status.ok()) status = seat->Finish(communicator.get());
      ASSERT_EQ(status, absl::OkStatus());
      for (size_t i = 0; i < receives.size(); ++i) {
        const int peer = receives[i].from_rank;
        EXPECT_EQ(Get(seat, receives[i].to, dtype, receives[i].count),
                  numbers(peer, rank, static_cast<int>(i % 2)))
            << "from " << peer << " to " << rank;
      }
    }
  });
}

// Every rank sends to the next only, so each rank's lists differ.
TEST_P(CollectiveConformance, SendReceiveServesPipelinesAndRanksWithNothingToMove) {
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    const std::unique_ptr<Communicator> communicator = Make(seat, SpecOf(rank, seat));
    if (communicator == nullptr) return;
    char* const from = seat->Allocate(64);
    char* const to = seat->Allocate(64);
    Put(seat, from, DType::kF32, Numbers(rank, 0, 5));
    std::vector<SendMove> sends;
    std::vector<ReceiveMove> receives;
    if (rank + 1 < size_) sends.push_back({rank + 1, 5, from});
    if (rank > 0) receives.push_back({rank - 1, 5, to});
    absl::Status status =
        communicator->SendReceive({.sends = sends, .receives = receives}, seat->stream());
    if (status.ok()) status = communicator->SendReceive({}, seat->stream());
    if (status.ok()) status = seat->Finish(communicator.get());
    ASSERT_EQ(status, absl::OkStatus());
    if (rank > 0) {
      EXPECT_EQ(Get(seat, to, DType::kF32, 5), Numbers(rank - 1, 0, 5));
    }
  });
}

// Groups of other ranks and in other orders take turns on one stream; each reads what the one
// before has written.
TEST_P(CollectiveConformance, SeveralGroupsWorkInOnePlannedOrder) {
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    CommunicatorSpec backwards = SpecOf(rank, seat, "backwards");
    std::reverse(backwards.ranks.begin(), backwards.ranks.end());
    backwards.rank = size_ - 1 - rank;
    CommunicatorSpec front = SpecOf(rank, seat, "front");
    if (size_ > 1) front.ranks.pop_back();
    const std::unique_ptr<Communicator> all = Make(seat, SpecOf(rank, seat));
    const std::unique_ptr<Communicator> reverse = Make(seat, backwards);
    const std::unique_ptr<Communicator> some = rank < front.size() ? Make(seat, front) : nullptr;
    if (all == nullptr || reverse == nullptr) return;
    char* const at = seat->Allocate(4 * kLarge);
    char* const gathered = seat->Allocate(4 * kLarge * size_);
    Put(seat, at, DType::kI32, std::vector<double>(kLarge, rank + 1));
    const int64_t total = int64_t{size_} * (size_ + 1) / 2;
    const Operation sum = {.dtype = DType::kI32, .count = kLarge, .from = at, .to = at};
    const auto run = [&](Communicator* communicator, const Operation& operation) {
      ASSERT_EQ(communicator->Run(operation, seat->stream()), absl::OkStatus());
    };
    run(all.get(), sum);  // `total` everywhere
    for (int round = 0; round < 3; ++round) {
      // `front` has total * (size - 1) now, and the last rank has `total`.
      if (some != nullptr) run(some.get(), sum);
      run(reverse.get(), {.kind = Operation::Kind::kAllGather,
                          .dtype = DType::kI32,
                          .count = kLarge,
                          .from = at,
                          .to = gathered});
      run(all.get(), {.dtype = DType::kI32,
                      .combiner = Combiner::kMax,
                      .count = kLarge,
                      .from = gathered,
                      .to = at});
    }
    ASSERT_EQ(seat->Finish(all.get()), absl::OkStatus());
    // The first block of `gathered` is that of the last rank, which `front` does not have.
    EXPECT_EQ(Get(seat, at, DType::kI32, kLarge),
              std::vector<double>(kLarge, static_cast<double>(total)));
    if (size_ > 1) {
      const std::vector<double> blocks = Get(seat, gathered, DType::kI32, kLarge * size_);
      for (int block = 1; block < size_; ++block)
        EXPECT_EQ(blocks[block * kLarge], static_cast<double>(total * (size_ - 1)));
    }
  });
}

TEST_P(CollectiveConformance, SumsHaveTheSameBitsOnAllRanks) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    fixture_ = std::get<0>(GetParam())();
    fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
      CommunicatorSpec spec = SpecOf(rank, seat, Name(dtype));
      const std::unique_ptr<Communicator> communicator = Make(seat, spec);
      if (communicator == nullptr) return;
      constexpr int64_t kCount = 10'007;
      std::vector<double> sums(kCount, 0.0), own, size_of_terms(kCount, 0.0);
      for (int member = 0; member < size_; ++member) {
        std::mt19937 random(member + 1);
        std::vector<double> terms(kCount);
        for (double& x : terms) x = std::ldexp(int(random() % 2001) - 1000, int(random() % 8) - 9);
        terms = Decoded(dtype, Encoded(dtype, terms));
        for (int64_t i = 0; i < kCount; ++i) {
          sums[i] += terms[i];
          size_of_terms[i] += std::abs(terms[i]);
        }
        if (member == rank) own = terms;
      }
      const int64_t bytes = kCount * SizeOf(dtype) + 2;  // in i32
      char* const at = seat->Allocate(bytes);
      char* const gathered = seat->Allocate(bytes * size_);
      Put(seat, at, dtype, own);
      absl::Status status = communicator->Run(
          {.dtype = dtype, .count = kCount, .from = at, .to = at}, seat->stream());
      const int64_t words = kCount * SizeOf(dtype) / 4;
      if (status.ok())
        status = communicator->Run({.kind = Operation::Kind::kAllGather,
                                    .dtype = DType::kI32,
                                    .count = words,
                                    .from = at,
                                    .to = gathered},
                                   seat->stream());
      if (status.ok()) status = seat->Finish(communicator.get());
      ASSERT_EQ(status, absl::OkStatus());
      const std::vector<double> found = Get(seat, at, dtype, kCount);
      // A sum of bf16 or f16 may be rounded at each of its additions.
      const double unit = dtype == DType::kF32    ? 1e-6
                          : dtype == DType::kBF16 ? 1.0 / 128
                                                  : 1.0 / 1024;
      for (int64_t i = 0; i < kCount; ++i)
        ASSERT_NEAR(found[i], sums[i], size_of_terms[i] * unit * size_) << i;
      std::vector<char> bits(words * 4 * size_);
      seat->Read(bits.data(), gathered, bits.size());
      for (int member = 1; member < size_; ++member)
        ASSERT_EQ(std::memcmp(&bits[0], &bits[words * 4 * member], words * 4), 0) << member;
    });
  }
}

TEST_P(CollectiveConformance, AGroupCanBeWarmedUp) {
  fixture_->OnEachRank(size_, [&](int rank, CollectiveSeat* seat) {
    const std::unique_ptr<Communicator> communicator = Make(seat, SpecOf(rank, seat));
    if (communicator == nullptr) return;
    char* const scratch = seat->Allocate(WarmUpBytes(size_));
    std::vector<char> zeros(WarmUpBytes(size_));
    seat->Write(scratch, zeros.data(), zeros.size());
    ASSERT_EQ(WarmUp(communicator.get(), scratch, seat->stream()), absl::OkStatus());
    ASSERT_EQ(seat->Finish(communicator.get()), absl::OkStatus());
    ExpectWorks(rank, seat, communicator.get());
  });
}

}  // namespace weir::collective
