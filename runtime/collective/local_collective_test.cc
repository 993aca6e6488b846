// Tests the local collectives: the suite of all collectives, the bits of sums, and the mistakes of
// ranks that only this library tells.
#include "runtime/collective/local_collective.h"

#include <deque>
#include <thread>

#include "gmock/gmock.h"
#include "runtime/base/mutex.h"
#include "runtime/collective/collective_conformance.h"
#include "runtime/collective/collective_failures_conformance.h"
#include "runtime/device/cuda/emulated_cuda_api.h"
#include "runtime/device/walled_memory.h"

namespace weir::collective {
namespace {

constexpr int64_t kExchangeLimitMs = 60'000;

// A stream that a thread of its own does.
class ThreadStream final : public device::EmulatedStream {
 public:
  ThreadStream() : thread_([this] { Serve(); }) {}
  ~ThreadStream() override {
    {
      MutexLock lock(&mutex_);
      is_closed_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  void Put(std::function<void()> work) override {
    MutexLock lock(&mutex_);
    works_.push_back(std::move(work));
    changed_.NotifyAll();
  }
  void Finish() {
    MutexLock lock(&mutex_);
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return works_.empty() && !is_busy_;
    });
  }

 private:
  void Serve() {
    MutexLock lock(&mutex_);
    while (true) {
      changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return is_closed_ || !works_.empty();
      });
      if (works_.empty()) return;
      const std::function<void()> work = std::move(works_.front());
      works_.pop_front();
      is_busy_ = true;
      mutex_.Unlock();
      work();
      mutex_.Lock();
      is_busy_ = false;
      changed_.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> works_ ABSL_GUARDED_BY(mutex_);
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The operations of a rank are done in the calling thread, on memory of the host; or in a
// stream, on memory that host code cannot touch.
enum class Place { kCaller, kStream };

class LocalSeat final : public CollectiveSeat {
 public:
  LocalSeat(Place place, CollectiveLibrary* library, transport::Exchange* exchange)
      : library_(library), exchange_(exchange) {
    if (place == Place::kStream) stream_ = std::make_unique<ThreadStream>();
  }
  CollectiveLibrary* library() override { return library_; }
  transport::Exchange* exchange() override { return exchange_; }
  device::CudaStream stream() override {
    return {static_cast<device::EmulatedStream*>(stream_.get())};
  }
  char* Allocate(int64_t bytes) override {
    if (stream_ == nullptr) {
      host_.push_back(std::make_unique<char[]>(bytes));
      return host_.back().get();
    }
    blocks_.push_back(*memory_.Allocate(bytes, device::DeviceMemory::Reach::kDevice));
    return blocks_.back().base();
  }
  void Write(char* to, const void* from, int64_t bytes) override {
    memory_.CopyIn(to, from, bytes);
  }
  void Read(void* to, const char* from, int64_t bytes) override {
    memory_.CopyOut(to, from, bytes);
  }
  absl::Status Finish(Communicator* communicator) override {
    if (stream_ != nullptr) stream_->Finish();
    return communicator->AsyncError();
  }

 private:
  CollectiveLibrary* const library_;
  transport::Exchange* const exchange_;
  device::WalledMemory memory_;
  std::vector<device::DeviceBlock> blocks_;
  std::vector<std::unique_ptr<char[]>> host_;
  std::unique_ptr<ThreadStream> stream_;
};

class LocalFixture final : public CollectiveFixture {
 public:
  explicit LocalFixture(Place place) : place_(place) {}
  int64_t overdue_ms() const override { return 1500; }
  void OnEachRank(int size,
                  const std::function<void(int rank, CollectiveSeat* seat)>& body) override {
    LocalCollectives library;
    transport::LocalExchange exchange(kExchangeLimitMs);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        LocalSeat seat(place_, &library, &exchange);
        body(rank, &seat);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const Place place_;
};

std::unique_ptr<CollectiveFixture> MakeCallerFixture() {
  return std::make_unique<LocalFixture>(Place::kCaller);
}
std::unique_ptr<CollectiveFixture> MakeStreamFixture() {
  return std::make_unique<LocalFixture>(Place::kStream);
}

TEST(IdSubjectTest, TheNameOfAnIdSaysWhichRankPublishesIt) {
  CommunicatorSpec spec;
  spec.group = "of ranks 3/7";
  spec.epoch = 2;
  spec.ranks = {RankId(3), RankId(7)};
  EXPECT_EQ(RankOfIdSubject(IdSubject(spec)), RankId(3));
  for (const char* other : {"", "collective/2/3", "collective/2/-3/a", "collective/2/+3/a",
                            "collective/2/03/a", "transport/2/3/a", "collective/2/2147483648/a"}) {
    EXPECT_EQ(RankOfIdSubject(other), RankId()) << other;
  }
}

INSTANTIATE_TEST_SUITE_P(LocalInCaller, CollectiveConformance,
                         ::testing::Combine(::testing::Values(&MakeCallerFixture),
                                            ::testing::Range(1, 6)));
INSTANTIATE_TEST_SUITE_P(LocalInStream, CollectiveConformance,
                         ::testing::Combine(::testing::Values(&MakeStreamFixture),
                                            ::testing::Range(1, 6)));

// Runs `body` on ranks with streams, and returns the error that each rank found last.
std::vector<absl::Status> ErrorsOf(
    int size, const std::function<absl::Status(int rank, CollectiveSeat* seat)>& body) {
  std::vector<absl::Status> errors(size);
  LocalFixture(Place::kStream).OnEachRank(size, [&](int rank, CollectiveSeat* seat) {
    errors[rank] = body(rank, seat);
  });
  return errors;
}

CommunicatorSpec SpecOf(const std::string& group, std::vector<RankId> ranks, int rank) {
  CommunicatorSpec spec;
  spec.group = group;
  spec.ranks = std::move(ranks);
  spec.rank = rank;
  spec.overdue_ms = 30'000;
  return spec;
}

absl::Status Await(CollectiveSeat* seat, Communicator* communicator, absl::Status status) {
  // A rank that has not heard of the mistake yet waits in its stream for the others.
  return status.ok() ? seat->Finish(communicator) : status;
}

// One communicator of two ranks, where rank 1 issues `other` as the second operation instead.
void ExpectBothSides(const Operation& expected, const Operation& other,
                     const std::vector<std::string>& texts) {
  const std::vector<absl::Status> errors = ErrorsOf(2, [&](int rank, CollectiveSeat* seat) {
    const std::unique_ptr<Communicator> communicator = *CreateOver(
        seat->exchange(), seat->library(), SpecOf("pair", {RankId(3), RankId(7)}, rank));
    char* const at = seat->Allocate(4096);
    char* const to = seat->Allocate(4096);
    absl::Status status = communicator->Run({.count = 2, .from = at, .to = to}, seat->stream());
    Operation second = rank == 0 ? expected : other;
    second.from = at;
    second.to = to;
    if (status.ok()) status = communicator->Run(second, seat->stream());
    return Await(seat, communicator.get(), status);
  });
  for (const absl::Status& error : errors) {
    EXPECT_TRUE(absl::StrContains(error.message(), "W0951")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "operation 1 of group pair")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "rank 3")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "rank 7")) << error;
    for (const std::string& text : texts)
      EXPECT_TRUE(absl::StrContains(error.message(), text)) << text << ": " << error;
  }
}

TEST(LocalCollectiveTest, RanksThatIssueOtherOperationsHearOfBothSides) {
  using Kind = Operation::Kind;
  ExpectBothSides({.kind = Kind::kAllReduce, .count = 4}, {.kind = Kind::kAllGather, .count = 4},
                  {"all-reduce (sum) of 4 f32", "all-gather of 4 f32"});
  ExpectBothSides({.kind = Kind::kAllReduce, .count = 4}, {.kind = Kind::kAllReduce, .count = 5},
                  {"all-reduce (sum) of 4 f32", "all-reduce (sum) of 5 f32"});
  ExpectBothSides({.dtype = DType::kI32, .count = 4}, {.dtype = DType::kF32, .count = 4},
                  {"of 4 i32", "of 4 f32"});
  ExpectBothSides({.combiner = Combiner::kSum, .count = 4},
                  {.combiner = Combiner::kMax, .count = 4}, {"(sum)", "(max)"});
  ExpectBothSides({.count = 0}, {.count = 4}, {"of 0 f32", "of 4 f32"});
}

TEST(LocalCollectiveTest, RanksThatIssueTheOperationsOfTwoGroupsInOtherOrdersHearOfBothSides) {
  const std::vector<absl::Status> errors = ErrorsOf(3, [&](int rank, CollectiveSeat* seat) {
    std::vector<RankId> ranks = {RankId(0), RankId(1), RankId(2)};
    auto created = CreateOver(seat->exchange(), seat->library(), SpecOf("all", ranks, rank));
    // Rank 2 may join after the others found the mistake, and hears of the mistake at once.
    if (!created.ok()) return created.status();
    const std::unique_ptr<Communicator> all = *std::move(created);
    if (rank == 2) {
      char* const at = seat->Allocate(64);
      return Await(seat, all.get(), all->Run({.count = 2, .from = at, .to = at}, seat->stream()));
    }
    ranks.pop_back();
    const std::unique_ptr<Communicator> front =
        *CreateOver(seat->exchange(), seat->library(), SpecOf("front", ranks, rank));
    absl::Status status;
    for (Communicator* communicator : rank == 0
                                          ? std::vector<Communicator*>{all.get(), front.get()}
                                          : std::vector<Communicator*>{front.get(), all.get()}) {
      char* const at = seat->Allocate(64);
      if (status.ok())
        status = communicator->Run({.count = 2, .from = at, .to = at}, seat->stream());
    }
    status = Await(seat, all.get(), status);
    EXPECT_FALSE(front->AsyncError().ok()) << "the mistake is one of both groups";
    return status;
  });
  for (const absl::Status& error : errors) {
    EXPECT_TRUE(absl::StrContains(error.message(), "W0951")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "group all")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "group front")) << error;
  }
}

TEST(LocalCollectiveTest, OperationsOfTwoGroupsInOneOrderAreNoMistakeWhoeverIsAhead) {
  const std::vector<absl::Status> errors = ErrorsOf(2, [&](int rank, CollectiveSeat* seat) {
    const std::vector<RankId> ranks = {RankId(0), RankId(1)};
    const auto a = *CreateOver(seat->exchange(), seat->library(), SpecOf("a", ranks, rank));
    const auto b = *CreateOver(seat->exchange(), seat->library(), SpecOf("b", ranks, rank));
    absl::Status status;
    for (int i = 0; i < 200; ++i) {
      // The ranks are ahead of each other in turn.
      if (i % 20 == 0 && (i / 20) % 2 == rank) status.Update(seat->Finish(a.get()));
      char* const at = seat->Allocate(64);
      Communicator* const next = i % 3 == 0 ? a.get() : b.get();
      status.Update(next->Run({.count = 2, .from = at, .to = at}, seat->stream()));
    }
    status.Update(seat->Finish(a.get()));
    status.Update(b->AsyncError());
    return status;
  });
  for (const absl::Status& error : errors) EXPECT_EQ(error, absl::OkStatus());
}

TEST(LocalCollectiveTest, SendsThatDoNotFitTheReceivesAreNamed) {
  for (const int received : {0, 3}) {
    const std::vector<absl::Status> errors = ErrorsOf(2, [&](int rank, CollectiveSeat* seat) {
      const auto pair = *CreateOver(seat->exchange(), seat->library(),
                                    SpecOf("pair", {RankId(4), RankId(6)}, rank));
      char* const at = seat->Allocate(64);
      const std::vector<SendMove> sends = {{1, 2, at}};
      std::vector<ReceiveMove> receives;
      if (received > 0) receives.push_back({0, received, at});
      return Await(seat, pair.get(),
                   rank == 0 ? pair->SendReceive({.sends = sends}, seat->stream())
                             : pair->SendReceive({.receives = receives}, seat->stream()));
    });
    for (const absl::Status& error : errors) {
      EXPECT_TRUE(absl::StrContains(error.message(), "W0951")) << error;
      EXPECT_TRUE(absl::StrContains(error.message(), "(rank 4) to place 1 (rank 6)")) << error;
      EXPECT_TRUE(absl::StrContains(error.message(), "one of 2 elements")) << error;
      EXPECT_TRUE(absl::StrContains(error.message(), received > 0 ? "one of 3 elements" : "none"))
          << error;
    }
  }
}

// No two of the ranks disagree, but each waits for the next: NCCL would wait for ever.
TEST(LocalCollectiveTest, ACircleOfRanksEndsAtTheLimitWithTheMissingRanks) {
  const std::vector<absl::Status> errors = ErrorsOf(3, [&](int rank, CollectiveSeat* seat) {
    // Pair p has ranks p and p + 1.
    const auto make = [&](int pair) {
      const RankId first(pair), second((pair + 1) % 3);
      CommunicatorSpec spec =
          SpecOf(absl::StrCat("pair ", pair), {first, second}, RankId(rank) == first ? 0 : 1);
      spec.overdue_ms = 100;
      return CreateOver(seat->exchange(), seat->library(), spec);
    };
    // Made in one order on all ranks, by number.
    std::vector<std::unique_ptr<Communicator>> pairs(3);
    for (int pair = 0; pair < 3; ++pair) {
      if (pair != rank && (pair + 1) % 3 != rank) continue;
      auto made = make(pair);
      // On a loaded machine the other rank of the pair may have waited to its limit already.
      if (!made.ok()) return made.status();
      pairs[pair] = *std::move(made);
    }
    char* const at = seat->Allocate(64);
    const Operation sum = {.count = 2, .from = at, .to = at};
    absl::Status status = pairs[rank]->Run(sum, seat->stream());
    status.Update(pairs[(rank + 2) % 3]->Run(sum, seat->stream()));
    for (const std::unique_ptr<Communicator>& pair : pairs) {
      if (pair != nullptr) status.Update(seat->Finish(pair.get()));
    }
    return status;
  });
  // Once one pair has failed, the others may go on.
  int num_errors = 0;
  for (const absl::Status& error : errors) {
    if (error.ok()) continue;
    ++num_errors;
    EXPECT_TRUE(absl::StrContains(error.message(), "W0953")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "without place")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "operation 0")) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "16 bytes")) << error;
  }
  EXPECT_GE(num_errors, 2) << "both ranks of a pair hear of it";
}

// ((a b) (c d)) e, as an exchange of five sources.
TEST(LocalCollectiveTest, SumsAreMadeInPairsInTheOrderOfTheGroup) {
  const std::vector<float> terms = {1e8f, 3.7f, -1e8f, 5.3f, 0.1f};
  const float expected = ((terms[0] + terms[1]) + (terms[2] + terms[3])) + terms[4];
  ASSERT_NE(expected, (((terms[0] + terms[1]) + terms[2]) + terms[3]) + terms[4]);
  const std::vector<absl::Status> errors = ErrorsOf(5, [&](int rank, CollectiveSeat* seat) {
    std::vector<RankId> ranks;
    for (int member = 0; member < 5; ++member) ranks.push_back(RankId(9 - member));
    const auto all = *CreateOver(seat->exchange(), seat->library(), SpecOf("all", ranks, rank));
    char* const at = seat->Allocate(64);
    seat->Write(at, &terms[rank], 4);
    absl::Status status =
        Await(seat, all.get(), all->Run({.count = 1, .from = at, .to = at}, seat->stream()));
    float found = 0;
    seat->Read(&found, at, 4);
    EXPECT_EQ(found, expected);
    return status;
  });
  for (const absl::Status& error : errors) EXPECT_EQ(error, absl::OkStatus());
}

// 256 + 1 is no bf16. Rounded at each addition, the sum would stay 256.
TEST(LocalCollectiveTest, SumsOfBf16AreRoundedOnce) {
  const std::vector<absl::Status> errors = ErrorsOf(3, [&](int rank, CollectiveSeat* seat) {
    const auto all = *CreateOver(seat->exchange(), seat->library(),
                                 SpecOf("all", {RankId(0), RankId(1), RankId(2)}, rank));
    char* const at = seat->Allocate(64);
    const std::vector<char> term = Encoded(DType::kBF16, {rank == 0 ? 256.0 : 1.0});
    seat->Write(at, term.data(), 2);
    absl::Status status =
        Await(seat, all.get(),
              all->Run({.dtype = DType::kBF16, .count = 1, .from = at, .to = at}, seat->stream()));
    std::vector<char> found(2);
    seat->Read(found.data(), at, 2);
    EXPECT_EQ(Decoded(DType::kBF16, found)[0], 258.0);
    return status;
  });
  for (const absl::Status& error : errors) EXPECT_EQ(error, absl::OkStatus());
}

TEST(LocalCollectiveTest, AMaximumIsNanIfOneTermIs) {
  ErrorsOf(3, [&](int rank, CollectiveSeat* seat) {
    const auto all = *CreateOver(seat->exchange(), seat->library(),
                                 SpecOf("all", {RankId(0), RankId(1), RankId(2)}, rank));
    char* const at = seat->Allocate(64);
    std::vector<float> terms = {-1, -2, -3};
    terms[rank] = std::nanf("");
    seat->Write(at, terms.data(), 12);
    absl::Status status = Await(
        seat, all.get(),
        all->Run({.combiner = Combiner::kMax, .count = 3, .from = at, .to = at}, seat->stream()));
    seat->Read(terms.data(), at, 12);
    for (const float x : terms) EXPECT_TRUE(std::isnan(x)) << x;
    return status;
  });
}

TEST(LocalCollectiveTest, RanksThatDisagreeOnTheGroupOfAnIdAreRefused) {
  LocalCollectives library;
  CommunicatorSpec spec = SpecOf("one", {RankId(0)}, 0);
  spec.unique_id = *library.NewUniqueId();
  const auto kept = library.Create(spec);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(absl::StrContains(library.Create(spec).status().message(), "a second one"));
  spec.ranks = {RankId(1)};
  EXPECT_TRUE(absl::StrContains(library.Create(spec).status().message(), "ranks 0 there"));
}

CommunicatorSpec PolledSpec(int rank, const std::string& group) {
  CommunicatorSpec spec;
  spec.group = group;
  spec.ranks = {RankId(4), RankId(7)};
  spec.rank = rank;
  spec.unique_id = group;
  return spec;
}

TEST(PolledCommunicator, RanksOfOneThreadMeetWithoutWaiting) {
  LocalCollectives library;
  const auto first = library.CreatePolled(PolledSpec(0, "dp"), nullptr),
             second = library.CreatePolled(PolledSpec(1, "dp"), nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::vector<float> a = {1, 2}, b = {10, 20};
  std::vector<float> sum_a(2), sum_b(2);
  const auto reduce = [](const std::vector<float>& from, std::vector<float>* to) {
    return Operation{.count = 2,
                     .from = reinterpret_cast<const char*>(from.data()),
                     .to = reinterpret_cast<char*>(to->data())};
  };
  const auto number = (*first)->Begin(reduce(a, &sum_a));
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_FALSE(*(*first)->HasEnded(*number));
  const auto last = (*second)->Begin(reduce(b, &sum_b));
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(*(*first)->HasEnded(*number));
  EXPECT_TRUE(*(*second)->HasEnded(*last));
  EXPECT_EQ(sum_a, (std::vector<float>{11, 22}));
  EXPECT_EQ(sum_b, sum_a);
}

TEST(PolledCommunicator, RanksThatComeToGroupsInOtherOrdersAreTold) {
  LocalCollectives library;
  const auto dp_0 = library.CreatePolled(PolledSpec(0, "dp"), nullptr),
             dp_1 = library.CreatePolled(PolledSpec(1, "dp"), nullptr),
             tp_0 = library.CreatePolled(PolledSpec(0, "tp"), nullptr),
             tp_1 = library.CreatePolled(PolledSpec(1, "tp"), nullptr);
  ASSERT_TRUE(dp_0.ok() && dp_1.ok() && tp_0.ok() && tp_1.ok());
  ASSERT_TRUE((*dp_0)->Begin(Operation()).ok());
  const auto other = (*tp_1)->Begin(Operation());
  EXPECT_THAT(std::string(other.status().message()), ::testing::HasSubstr("W0951"));
  EXPECT_FALSE((*dp_0)->HasEnded(0).ok());
}

TEST(PolledCommunicator, ARankThatDoesNotComeIsNamed) {
  LocalCollectives library;
  CommunicatorSpec spec = PolledSpec(0, "dp");
  spec.overdue_ms = 1;
  const auto first = library.CreatePolled(spec, nullptr),
             second = library.CreatePolled(PolledSpec(1, "dp"), nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto number = (*first)->Begin(Operation());
  ASSERT_TRUE(number.ok());
  absl::StatusOr<bool> ended = false;
  while (ended.ok() && !*ended) ended = (*first)->HasEnded(*number);
  EXPECT_THAT(std::string(ended.status().message()),
              ::testing::AllOf(::testing::HasSubstr("W0953"),
                               ::testing::HasSubstr("without place 1 (rank 7)")));
}

TEST(PolledCommunicator, TheLastRankToComeWakesTheOthers) {
  LocalCollectives library;
  int num_wakes[2] = {0, 0};
  const auto first = library.CreatePolled(PolledSpec(0, "dp"), [&] { ++num_wakes[0]; }),
             second = library.CreatePolled(PolledSpec(1, "dp"), [&] { ++num_wakes[1]; });
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE((*first)->Begin(Operation()).ok());
  EXPECT_EQ(num_wakes[0], 0);
  ASSERT_TRUE((*second)->Begin(Operation()).ok());
  EXPECT_EQ(num_wakes[0], 1);
  EXPECT_EQ(num_wakes[1], 0);
}

// A rank of an emulated GPU, which makes its input in one stream and reduces it in another.
class EmulatedRank {
 public:
  enum class Event : uint8_t { kAwaited, kForgotten };

  EmulatedRank(int rank, uint64_t seed, LocalCollectives* library, int64_t overdue_ms)
      : api_(seed * 2 + static_cast<uint64_t>(rank)) {
    CommunicatorSpec spec = PolledSpec(rank, "dp");
    spec.overdue_ms = overdue_ms;
    absl::StatusOr<std::unique_ptr<Communicator>> made = library->Create(spec);
    EXPECT_TRUE(made.ok()) << made.status();
    communicator_ = *std::move(made);
    api_.CreateStream(device::CudaApi::Priority::kNormal, &compute_);
    api_.CreateStream(device::CudaApi::Priority::kHigh, &collective_);
    api_.CreateEvent(&ready_);
    api_.CreateEvent(&done_);
    api_.Malloc(&from_, sizeof(float));
    api_.Malloc(&to_, sizeof(float));
    api_.MallocHost(&host_, sizeof(float));
  }
  ~EmulatedRank() { communicator_->Abort(); }

  void Reduce(float value, Event event) {
    *reinterpret_cast<float*>(host_) = value;
    api_.Copy(from_, host_, sizeof(float), compute_);
    api_.RecordEvent(ready_, compute_);
    if (event == Event::kAwaited) api_.WaitEvent(collective_, ready_);
    EXPECT_EQ(communicator_->Run({.count = 1, .from = from_, .to = to_}, collective_),
              absl::OkStatus());
    api_.RecordEvent(done_, collective_);
  }
  bool IsDone() { return api_.QueryEvent(done_) == device::CudaResult::kSuccess; }
  absl::Status AsyncError() { return communicator_->AsyncError(); }
  float Sum() {
    api_.SynchronizeStream(compute_);
    api_.Copy(host_, to_, sizeof(float), compute_);
    api_.SynchronizeStream(compute_);
    return *reinterpret_cast<float*>(host_);
  }

 private:
  device::EmulatedCudaApi api_;
  std::unique_ptr<Communicator> communicator_;
  device::CudaStream compute_, collective_;
  device::CudaEvent ready_, done_;
  char *from_ = nullptr, *to_ = nullptr, *host_ = nullptr;
};

std::vector<std::unique_ptr<EmulatedRank>> EmulatedRanks(uint64_t seed, LocalCollectives* library,
                                                         int64_t overdue_ms = 0) {
  std::vector<std::unique_ptr<EmulatedRank>> ranks(2);
  std::thread other(
      [&] { ranks[1] = std::make_unique<EmulatedRank>(1, seed, library, overdue_ms); });
  ranks[0] = std::make_unique<EmulatedRank>(0, seed, library, overdue_ms);
  other.join();
  return ranks;
}

// Returns how many of the seeds give sums that are wrong.
int WrongSums(EmulatedRank::Event event) {
  int num_wrong = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    LocalCollectives library;
    const auto ranks = EmulatedRanks(seed, &library);
    ranks[0]->Reduce(1, event);
    ranks[1]->Reduce(2, event);
    // A question lets the streams of that rank get on.
    for (bool first = false, second = false; !first || !second;) {
      first = ranks[0]->IsDone();
      second = ranks[1]->IsDone();
    }
    num_wrong += ranks[0]->Sum() != 3 || ranks[1]->Sum() != 3;
  }
  return num_wrong;
}

TEST(EmulatedStreams, OneThreadWorksOnTheStreamsOfRanksThatWaitForEachOther) {
  EXPECT_EQ(WrongSums(EmulatedRank::Event::kAwaited), 0);
}

TEST(EmulatedStreams, AnEventThatIsForgottenBetweenStreamsIsFound) {
  EXPECT_GT(WrongSums(EmulatedRank::Event::kForgotten), 0);
}

TEST(EmulatedStreams, ARankThatDoesNotComeIsNamed) {
  LocalCollectives library;
  const auto ranks = EmulatedRanks(1, &library, /*overdue_ms=*/1);
  ranks[0]->Reduce(1, EmulatedRank::Event::kAwaited);
  while (ranks[0]->AsyncError().ok()) ranks[0]->IsDone();
  EXPECT_THAT(std::string(ranks[0]->AsyncError().message()),
              ::testing::AllOf(::testing::HasSubstr("W0953"),
                               ::testing::HasSubstr("without place 1 (rank 7)")));
}

}  // namespace
}  // namespace weir::collective
