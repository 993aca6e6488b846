// Tests the UCX transport between real processes: much traffic, peers that are killed or stopped,
// strangers at the door, sleep, and leftovers.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/transport/process_pair_testing.h"
#include "runtime/transport/ucx_transport.h"

namespace weir::transport {
namespace {

using Lanes = UcxTransportOptions::Lanes;
using ParkResult = TransportEndpoint::ParkResult;

UcxTransportOptions OptionsFor(Lanes lanes) {
  UcxTransportOptions options;
  options.lanes = lanes;
  options.job_key = std::string(32, 'k');
  return options;
}

// The place where tokens of a rank land: memory that its peer can write, or memory of its own.
enum class Landing { kOffered, kOwn };

// A PairRank is one of two ranks, each with an edge to the other.
class PairRank : public MessageReceiver {
 public:
  PairRank(int rank, Exchange* exchange, Lanes lanes, int32_t slots, int64_t bytes,
           Landing where = Landing::kOffered)
      : rank_(rank),
        slots_(slots),
        bytes_(bytes),
        network_(UcxNetwork::Create(2, {RankId(rank)}, exchange, OptionsFor(lanes)).value()) {
    endpoint()->SetWakeHook([this] { bell.Ring(); });
    char* landing =
        where == Landing::kOffered ? endpoint()->AllocateLanding(slots * bytes).value() : nullptr;
    if (landing == nullptr) {
      own_landing_.resize(slots * bytes);
      landing = own_landing_.data();
    }
    staging_.resize(slots * bytes);
    TransportEdge edge;
    edge.slots = slots;
    edge.bytes = bytes;
    edge.peer = RankId(1 - rank);
    edge.edge = EdgeId(10 + rank);
    out = endpoint()->AddEdge(edge).value();
    edge.edge = EdgeId(10 + 1 - rank);
    edge.direction = TransportEdge::Direction::kIncoming;
    edge.landing = landing;
    edge.stride = bytes;
    landing_ = landing;
    in = endpoint()->AddEdge(edge).value();
  }
  TransportEndpoint* endpoint() { return network_->endpoint(RankId(rank_)); }
  UcxTraffic traffic() const { return network_->Traffic(RankId(rank_)); }
  // Returns the address at which slot `slot` of the outgoing edge is computed.
  char* OutSlot(int32_t slot) {
    void* mapped = endpoint()->TryMap(out, slot);
    return mapped != nullptr ? static_cast<char*>(mapped) : &staging_[slot * bytes_];
  }
  const char* InSlot(int32_t slot) const { return landing_ + slot * bytes_; }
  absl::Status Put(int64_t sequence, int64_t size) {
    MessageHeader header;
    header.edge = EdgeId(10 + rank_);
    header.slot = static_cast<int32_t>(sequence % slots_);
    header.sequence = sequence;
    header.payload_bytes = size;
    return endpoint()->Put(out, header, OutSlot(header.slot));
  }
  absl::StatusOr<int64_t> PollOrSleep() {
    absl::StatusOr<int64_t> n = endpoint()->Poll(this);
    if (n.ok() && *n == 0 && endpoint()->Park() == ParkResult::kParked) bell.Await();
    return n;
  }
  absl::Status OnToken(EdgeHandle, const MessageHeader&) override {
    ++num_tokens;
    return absl::OkStatus();
  }
  absl::Status OnCredit(EdgeHandle, int32_t) override {
    ++num_credits;
    return absl::OkStatus();
  }

  EdgeHandle out;
  EdgeHandle in;
  Bell bell;
  int64_t num_tokens = 0;
  int64_t num_credits = 0;

 protected:
  const int rank_;
  const int32_t slots_;
  const int64_t bytes_;

 private:
  std::unique_ptr<UcxNetwork> network_;
  char* landing_ = nullptr;
  std::vector<char> own_landing_;
  std::vector<char> staging_;
};

// Return the size and the bytes of token `sequence` from `rank`, which are the same in every
// process.
int64_t SizeOf(int rank, int64_t sequence, int64_t bytes_max) {
  std::minstd_rand random(static_cast<uint32_t>(sequence * 2 + rank + 1));
  random.discard(2);
  switch (random() % 4) {
    case 0: return 0;
    case 1: return random() % 65;
    case 2: return random() % 4096;
    default: return random() % (bytes_max + 1);
  }
}
void Fill(int rank, int64_t sequence, char* bytes, int64_t size) {
  uint64_t word = static_cast<uint64_t>(sequence * 2 + rank + 1) * 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < size; i += 8) {
    std::memcpy(bytes + i, &word, std::min<int64_t>(8, size - i));
    word += 0x100000001b3u;
  }
}

class TrafficRank final : public PairRank {
 public:
  static constexpr int32_t kSlots = 4;
  static constexpr int64_t kBytes = 100'000;
  TrafficRank(int rank, Exchange* exchange, Lanes lanes, Landing where)
      : PairRank(rank, exchange, lanes, kSlots, kBytes, where), expected_(kBytes) {}

  void Exchange(int64_t num) {
    num_ = num;
    for (int32_t slot = 0; slot < kSlots; ++slot) SendNext();
    while (num_tokens < num || num_credits < num) {
      absl::StatusOr<int64_t> n = PollOrSleep();
      ASSERT_TRUE(n.ok()) << n.status();
    }
    ASSERT_EQ(endpoint()->Flush(), absl::OkStatus());  // the last credits
  }
  absl::Status OnToken(EdgeHandle edge, const MessageHeader& header) override {
    EXPECT_EQ(header.sequence, num_tokens);
    EXPECT_EQ(header.payload_bytes, SizeOf(1 - rank_, header.sequence, kBytes));
    Fill(1 - rank_, header.sequence, expected_.data(), header.payload_bytes);
    EXPECT_EQ(std::memcmp(expected_.data(), InSlot(header.slot), header.payload_bytes), 0)
        << header.sequence;
    if (::testing::Test::HasFailure()) return absl::InternalError("wrong token");
    ++num_tokens;
    return endpoint()->ReturnCredit(edge, header.slot);
  }
  absl::Status OnCredit(EdgeHandle, int32_t) override {
    ++num_credits;
    SendNext();
    return absl::OkStatus();
  }

 private:
  void SendNext() {
    if (num_sent_ == num_) return;
    const int64_t size = SizeOf(rank_, num_sent_, kBytes);
    Fill(rank_, num_sent_, OutSlot(static_cast<int32_t>(num_sent_ % kSlots)), size);
    EXPECT_EQ(Put(num_sent_++, size), absl::OkStatus());
  }
  int64_t num_ = 0;
  int64_t num_sent_ = 0;
  std::vector<char> expected_;
};

class UcxProcessTest : public ::testing::TestWithParam<Lanes> {
 protected:
  ForkedExchange exchange_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, UcxProcessTest,
                         ::testing::Values(Lanes::kSharedMemory, Lanes::kTcp),
                         [](const auto& test) {
                           return test.param == Lanes::kTcp ? "Tcp" : "SharedMemory";
                         });

void ExchangeTokens(int rank, ForkedExchange* exchange, Lanes lanes, Landing where) {
  constexpr int64_t kTokens = 10'000;
  TrafficRank self(rank, exchange, lanes, where);
  ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
  EXPECT_EQ(self.endpoint()->TryMap(self.out, 0) != nullptr,
            lanes == Lanes::kSharedMemory && where == Landing::kOffered);
  self.Exchange(kTokens);
  EXPECT_LE(self.traffic().pending_sends_max, 2 * TrafficRank::kSlots) << "tokens and credits";
  EXPECT_EQ(self.endpoint()->Traffic(self.out).tokens, kTokens);
  // The other rank has all tokens by now, but may not know it.
  ASSERT_TRUE(exchange->Publish("done/" + std::to_string(rank), "").ok());
  ASSERT_TRUE(exchange->Fetch("done/" + std::to_string(1 - rank)).ok());
}

TEST_P(UcxProcessTest, TenThousandTokensOfAllSizesArriveInOrderAndWhole) {
  ForkedProcess one([this] { ExchangeTokens(0, &exchange_, GetParam(), Landing::kOffered); });
  ForkedProcess other([this] { ExchangeTokens(1, &exchange_, GetParam(), Landing::kOffered); });
  EXPECT_EQ(one.Wait(), 0);
  EXPECT_EQ(other.Wait(), 0);
}

TEST_P(UcxProcessTest, TenThousandTokensArriveInMemoryThatNobodyElseCanWrite) {
  ForkedProcess one([this] { ExchangeTokens(0, &exchange_, GetParam(), Landing::kOwn); });
  ForkedProcess other([this] { ExchangeTokens(1, &exchange_, GetParam(), Landing::kOwn); });
  EXPECT_EQ(one.Wait(), 0);
  EXPECT_EQ(other.Wait(), 0);
}

TEST_P(UcxProcessTest, AKilledPeerNeitherHangsNorBreaksTheRest) {
  constexpr int64_t kBytes = 1 << 20;
  const Lanes lanes = GetParam();
  ForkedProcess victim([&] {
    PairRank self(1, &exchange_, lanes, 4, kBytes, Landing::kOwn);
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    ASSERT_TRUE(exchange_.Publish("connected", "").ok());
    ::pause();
  });
  ForkedProcess survivor([&] {
    PairRank self(0, &exchange_, lanes, 4, kBytes, Landing::kOwn);
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    ASSERT_TRUE(exchange_.Fetch("killed").ok());
    absl::Status status;
    for (int64_t i = 0; i < 4 && status.ok(); ++i) status = self.Put(i, i % 2 == 0 ? kBytes : 10);
    if (lanes == Lanes::kTcp) {
      absl::StatusOr<int64_t> n = 0;
      while (n.ok()) n = self.PollOrSleep();
      EXPECT_EQ(n.status().code(), absl::StatusCode::kUnavailable) << n.status();
      EXPECT_EQ(self.Put(0, 0).code(), absl::StatusCode::kInvalidArgument) << "it has no credit";
    }
    self.endpoint()->Close();
  });
  ASSERT_TRUE(exchange_.Fetch("connected").ok());
  victim.Signal(SIGKILL);
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  ASSERT_TRUE(exchange_.Publish("killed", "").ok());
  EXPECT_EQ(survivor.Wait(), 0);
}

// Publishes the card of a process that is killed before it looks for the cards of others.
void PublishACardAndDie(Exchange* exchange, UcxTransportOptions::Lanes lanes) {
  ForkedProcess victim([&] {
    class Mute final : public Exchange {
     public:
      explicit Mute(Exchange* exchange) : exchange_(exchange) {}
      absl::Status Publish(const std::string& key, const std::string& value) override {
        return exchange_->Publish(key, value);
      }
      absl::StatusOr<std::string> Fetch(const std::string&) override {
        (void)exchange_->Publish("mute", "");
        for (;;) ::pause();
      }
      Exchange* exchange_;
    } mute(exchange);
    PairRank muted(1, &mute, lanes, 1, 8);
    (void)muted.endpoint()->Connect();
  });
  ASSERT_TRUE(exchange->Fetch("mute").ok());
  victim.Signal(SIGKILL);
  EXPECT_EQ(victim.Wait(), -SIGKILL);
}

absl::Status ConnectToTheDead(Exchange* exchange, UcxTransportOptions options) {
  auto network = UcxNetwork::Create(2, {RankId(0)}, exchange, options).value();
  TransportEdge edge;
  edge.edge = EdgeId(11);
  edge.bytes = 8;
  edge.peer = RankId(1);
  edge.direction = TransportEdge::Direction::kIncoming;
  if (auto added = network->endpoint(RankId(0))->AddEdge(edge); !added.ok()) return added.status();
  edge.edge = EdgeId(10);
  edge.direction = TransportEdge::Direction::kOutgoing;
  if (auto added = network->endpoint(RankId(0))->AddEdge(edge); !added.ok()) return added.status();
  return network->endpoint(RankId(0))->Connect();
}

TEST_P(UcxProcessTest, APeerThatIsKilledBeforeItGreetsEndsConnectByTheLimit) {
  ASSERT_NO_FATAL_FAILURE(PublishACardAndDie(&exchange_, GetParam()));
  ForkedProcess survivor([&] {
    UcxTransportOptions options = OptionsFor(GetParam());
    options.connect_limit_ms = 300;
    const absl::StatusCode code = ConnectToTheDead(&exchange_, options).code();
    EXPECT_TRUE(code == absl::StatusCode::kUnavailable ||
                code == absl::StatusCode::kDeadlineExceeded)
        << code;
  });
  EXPECT_EQ(survivor.Wait(), 0);
}

// Shared memory gives no sign of a dead peer: the supervisor of the processes sees the death and
// ends the job.
TEST_P(UcxProcessTest, TheEndOfTheJobEndsConnectLongBeforeItsLimit) {
  ASSERT_NO_FATAL_FAILURE(PublishACardAndDie(&exchange_, GetParam()));
  ForkedProcess survivor([&] {
    class Ending final : public Exchange {
     public:
      explicit Ending(Exchange* exchange)
          : exchange_(exchange), end_(absl::Now() + absl::Milliseconds(200)) {}
      absl::Status Publish(const std::string& key, const std::string& value) override {
        return exchange_->Publish(key, value);
      }
      absl::StatusOr<std::string> Fetch(const std::string& key) override {
        return exchange_->Fetch(key);
      }
      absl::Status JobStatus() override {
        return absl::Now() < end_ ? absl::OkStatus() : absl::UnavailableError("the job is over");
      }

     private:
      Exchange* const exchange_;
      const absl::Time end_;
    } ending(&exchange_);
    const absl::Time begin = absl::Now();
    EXPECT_EQ(ConnectToTheDead(&ending, OptionsFor(GetParam())).code(),
              absl::StatusCode::kUnavailable);
    EXPECT_LT(absl::Now() - begin, absl::Milliseconds(OptionsFor(GetParam()).connect_limit_ms) / 2);
  });
  EXPECT_EQ(survivor.Wait(), 0);
}

TEST_P(UcxProcessTest, AStoppedPeerStopsTheProducerAtItsSlotsAndLosesNothing) {
  constexpr int32_t kSlots = 3;
  constexpr int64_t kBytes = 300'000;
  int continued[2];
  ASSERT_EQ(::pipe(continued), 0);
  ForkedProcess consumer([&] {
    PairRank self(1, &exchange_, GetParam(), kSlots, kBytes);
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    ASSERT_TRUE(exchange_.Publish("connected", "").ok());
    char go = 0;
    ASSERT_EQ(::read(continued[0], &go, 1), 1);  // stopped here, where it holds nothing
    while (self.num_tokens < kSlots) ASSERT_TRUE(self.PollOrSleep().ok());
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      std::vector<char> expected(kBytes);
      Fill(0, slot, expected.data(), kBytes);
      EXPECT_EQ(std::memcmp(expected.data(), self.InSlot(slot), kBytes), 0);
      EXPECT_EQ(self.endpoint()->ReturnCredit(self.in, slot), absl::OkStatus());
    }
    ASSERT_EQ(self.endpoint()->Flush(), absl::OkStatus());
    ASSERT_TRUE(exchange_.Fetch("done").ok());
  });
  ForkedProcess producer([&] {
    PairRank self(0, &exchange_, GetParam(), kSlots, kBytes);
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    ASSERT_TRUE(exchange_.Fetch("stopped").ok());
    for (int64_t i = 0; i < kSlots; ++i) {
      Fill(0, i, self.OutSlot(static_cast<int32_t>(i)), kBytes);
      EXPECT_EQ(self.Put(i, kBytes), absl::OkStatus());
    }
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(self.Put(kSlots + i, 8).code(), absl::StatusCode::kInvalidArgument);
      ASSERT_TRUE(self.endpoint()->Poll(&self).ok());
    }
    EXPECT_LE(self.traffic().pending_sends_max, kSlots);
    ASSERT_TRUE(exchange_.Publish("full", "").ok());
    while (self.num_credits < kSlots) ASSERT_TRUE(self.PollOrSleep().ok());
    EXPECT_EQ(self.Put(kSlots, 8), absl::OkStatus());
    ASSERT_TRUE(exchange_.Publish("done", "").ok());
  });
  ASSERT_TRUE(exchange_.Fetch("connected").ok());
  consumer.Signal(SIGSTOP);
  ASSERT_TRUE(exchange_.Publish("stopped", "").ok());
  ASSERT_TRUE(exchange_.Fetch("full").ok());
  consumer.Signal(SIGCONT);
  ASSERT_EQ(::write(continued[1], "", 1), 1);
  EXPECT_EQ(consumer.Wait(), 0);
  EXPECT_EQ(producer.Wait(), 0);
}

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
         1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST_P(UcxProcessTest, AParkedProcessTakesNoProcessorTimeUntilAMessageWakesIt) {
  constexpr int kAsleepMs = 400;  // measured time, not a wait for anything
  ForkedProcess sleeper([&] {
    PairRank self(1, &exchange_, GetParam(), 1, 8);
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    ASSERT_TRUE(exchange_.Publish("connected", "").ok());
    const double before = CpuSeconds();
    int wakes = 0;
    for (; self.num_tokens == 0; ++wakes) ASSERT_TRUE(self.PollOrSleep().ok());
    EXPECT_LT(CpuSeconds() - before, 0.05 * kAsleepMs / 1000);
    EXPECT_LT(wakes, 20);
    ASSERT_TRUE(exchange_.Publish("awake", "").ok());
  });
  ForkedProcess waker([&] {
    PairRank self(0, &exchange_, GetParam(), 1, 8);
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    ASSERT_TRUE(exchange_.Fetch("connected").ok());
    EXPECT_EQ(::poll(nullptr, 0, kAsleepMs), 0);
    EXPECT_EQ(self.Put(0, 8), absl::OkStatus());
    ASSERT_TRUE(exchange_.Fetch("awake").ok());
  });
  EXPECT_EQ(sleeper.Wait(), 0);
  EXPECT_EQ(waker.Wait(), 0);
}

// Returns the number of segments of System V shared memory that `pids` made, and of files of UCX in
// /dev/shm.
int NumSegmentsOf(const std::vector<pid_t>& pids) {
  int num = 0;
  std::ifstream table("/proc/sysvipc/shm");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    int64_t key, id, mode, size, creator;
    fields >> key >> id >> mode >> size >> creator;
    for (pid_t pid : pids) num += creator == pid ? 1 : 0;
  }
  DIR* folder = ::opendir("/dev/shm");
  while (const dirent* entry = folder == nullptr ? nullptr : ::readdir(folder)) {
    num += std::strncmp(entry->d_name, "ucx_", 4) == 0 ? 1 : 0;
  }
  if (folder != nullptr) ::closedir(folder);
  return num;
}

TEST(UcxLeftoversTest, AProcessThatIsKilledAtAnyTimeLeavesNoSharedMemory) {
  constexpr int kKills = 60;
  std::minstd_rand random(7);
  std::vector<pid_t> pids;
  const int before = NumSegmentsOf({});
  for (int i = 0; i < kKills; ++i) {
    int stages[2];
    ASSERT_EQ(::pipe(stages), 0);
    ForkedProcess victim([&] {
      LocalExchange exchange(1000);
      for (char stage = 0;; ++stage) {
        auto network =
            UcxNetwork::Create(2, {RankId(0)}, &exchange, OptionsFor(Lanes::kAutomatic)).value();
        EXPECT_EQ(::write(stages[1], &stage, 1), 1);
        char* landing = network->endpoint(RankId(0))->AllocateLanding(3 << 20).value();
        std::memset(landing, 1, 3 << 20);
        EXPECT_EQ(::write(stages[1], &stage, 1), 1);
      }
    });
    pids.push_back(victim.pid());
    char stage;
    for (unsigned n = random() % 4; n > 0; --n) ASSERT_EQ(::read(stages[0], &stage, 1), 1);
    victim.Signal(SIGKILL);
    EXPECT_EQ(victim.Wait(), -SIGKILL);
    ::close(stages[0]);
    ::close(stages[1]);
  }
  EXPECT_EQ(NumSegmentsOf(pids), before);
}

// The environment variable that tells this program to be the process which
// ANetworkMakesNoSystemVSegment starts.
constexpr char kLonelyVariable[] = "WEIR_TEST_ALONE_WITH_SYSTEM_V";

// Makes a network in a process that is the only one to see its System V segments. The kernel
// numbers the segments of such a process from zero.
TEST(UcxLeftoversTest, ANetworkMakesNoSystemVSegment) {
  if (std::getenv(kLonelyVariable) != nullptr) {
    LocalExchange exchange(1000);
    auto network =
        UcxNetwork::Create(2, {RankId(0)}, &exchange, OptionsFor(Lanes::kAutomatic)).value();
    std::memset(network->endpoint(RankId(0))->AllocateLanding(3 << 20).value(), 1, 3 << 20);
    // The library answers calls of shmget for the whole process, so this call goes round the
    // library.
    EXPECT_EQ(::syscall(SYS_shmget, IPC_PRIVATE, 4096, IPC_CREAT | 0600), 0)
        << "UCX made a segment before";
    return;
  }
  ForkedProcess alone([] {
    const bool is_root = ::geteuid() == 0;
    ASSERT_EQ(::unshare(CLONE_NEWIPC | (is_root ? 0 : CLONE_NEWUSER)), 0) << std::strerror(errno);
    ::setenv(kLonelyVariable, "1", 1);
    ::execl("/proc/self/exe", "alone", "--gtest_filter=*ANetworkMakesNoSystemVSegment", nullptr);
    ADD_FAILURE() << std::strerror(errno);
  });
  EXPECT_EQ(alone.Wait(), 0);
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Returns the TCP ports at which this process listens, in network order.
std::vector<uint16_t> ListeningPorts() {
  std::vector<uint16_t> ports;
  for (int fd = 0; fd < 256; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_in address{};
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    size = sizeof(address);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        address.sin_family == AF_INET) {
      ports.push_back(address.sin_port);
    }
  }
  return ports;
}

int ConnectTo(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = port;
  const linger reset{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  ::close(fd);
  return -1;
}

TEST(UcxStrangersTest, GarbageAtTheTcpPortIsRefusedAndOnceConnectedNobodyListens) {
  constexpr int kFrames = 100'000;
  constexpr int kFramesPerConnection = 20;
  ForkedExchange exchange;
  // A Late exchange waits with its greeting until the garbage is over.
  class Late final : public Exchange {
   public:
    explicit Late(Exchange* exchange) : exchange_(exchange) {}
    absl::Status Publish(const std::string& key, const std::string& value) override {
      return exchange_->Publish(key, value);
    }
    absl::StatusOr<std::string> Fetch(const std::string& key) override {
      (void)exchange_->Fetch("garbage is over");
      return exchange_->Fetch(key);
    }
    Exchange* exchange_;
  };
  ForkedProcess target([&] {
    PairRank self(0, &exchange, Lanes::kTcp, 1, 8);
    std::string ports;
    for (uint16_t port : ListeningPorts())
      ports.append(reinterpret_cast<const char*>(&port), sizeof(port));
    ASSERT_TRUE(exchange.Publish("ports", ports).ok());
    const int64_t before = ResidentBytes();
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    EXPECT_LT(ResidentBytes() - before, int64_t{16} << 20);
    EXPECT_EQ(ListeningPorts(), std::vector<uint16_t>());
    ASSERT_TRUE(exchange.Publish("connected", "").ok());
    EXPECT_EQ(self.Put(0, 8), absl::OkStatus());
    while (self.num_tokens == 0) ASSERT_TRUE(self.PollOrSleep().ok());
    EXPECT_EQ(self.traffic().foreign_messages, 0);
    ASSERT_TRUE(exchange.Fetch("peer done").ok());
  });
  ForkedProcess peer([&] {
    Late late(&exchange);
    PairRank self(1, &late, Lanes::kTcp, 1, 8);
    ASSERT_EQ(self.endpoint()->Connect(), absl::OkStatus());
    EXPECT_EQ(self.Put(0, 8), absl::OkStatus());
    while (self.num_tokens == 0) ASSERT_TRUE(self.PollOrSleep().ok());
    ASSERT_TRUE(exchange.Publish("peer done", "").ok());
  });
  const std::string ports = exchange.Fetch("ports").value();
  ASSERT_EQ(ports.size(), sizeof(uint16_t));
  uint16_t port = 0;
  std::memcpy(&port, ports.data(), sizeof(port));
  // UCX expects these bytes first of a connection, and checks nothing else.
  constexpr char kMagicOfUcx[] = "\x78\x56\x34\x12\xbe\xba\xfe\xca";
  std::minstd_rand random(1);
  std::string frame;
  for (int i = 0; i < kFrames / kFramesPerConnection; ++i) {
    const int fd = ConnectTo(port);
    ASSERT_GE(fd, 0) << "after " << i << " connections";
    if (i % 2 == 0) (void)::send(fd, kMagicOfUcx, sizeof(kMagicOfUcx) - 1, MSG_NOSIGNAL);
    for (int k = 0; k < kFramesPerConnection; ++k) {
      frame.resize(1 + random() % 512);
      for (char& byte : frame) byte = static_cast<char>(random() >> 8);
      (void)::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL);
    }
    ::close(fd);
  }
  ASSERT_TRUE(exchange.Publish("garbage is over", "").ok());
  ASSERT_TRUE(exchange.Fetch("connected").ok());
  EXPECT_LT(ConnectTo(port), 0);
  EXPECT_EQ(peer.Wait(), 0);
  EXPECT_EQ(target.Wait(), 0);
}

}  // namespace
}  // namespace weir::transport
