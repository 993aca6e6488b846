// Tests that the UCX transport refuses damaged payloads, wrong and foreign messages, and tampered
// introductions, and that it does not allocate per message.
#include "runtime/transport/ucx_transport.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <new>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/transport/envelope.h"
#include "runtime/transport/message_ring.h"
#include "runtime/transport/rank_card.h"
#include "runtime/transport/transport_conformance.h"
#include "runtime/transport/ucx_context.h"
#include "runtime/transport/wire_message.h"

namespace {
std::atomic<int64_t> num_allocations{0};
std::atomic<int64_t> most_bytes_sent{0};  // in one call of sendmsg
}  // namespace

// UCX's library finds this function before the C library's.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static const auto next =
      reinterpret_cast<ssize_t (*)(int, const msghdr*, int)>(::dlsym(RTLD_NEXT, "sendmsg"));
  const ssize_t sent = next(socket, message, flags);
  most_bytes_sent = std::max<int64_t>(most_bytes_sent, sent);
  return sent;
}

// The operator is out of line because the compiler knows only the usual pairs of new and free.
__attribute__((noinline)) void* operator new(size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weir::transport {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

namespace {

using Lanes = UcxTransportOptions::Lanes;
using Checksum = UcxTransportOptions::Checksum;

UcxTransportOptions OptionsFor(Lanes lanes) {
  UcxTransportOptions options;
  options.lanes = lanes;
  options.job_key = std::string(32, 'k');
  options.connect_limit_ms = 10'000;
  return options;
}

// A UcxPair has an edge 42 from rank 0 to rank 1, each rank a network of its own.
class UcxPair {
 public:
  static constexpr EdgeId kEdge{42};
  static constexpr int32_t kSlots = 4;

  explicit UcxPair(int32_t slots = kSlots) : slots_(slots) {}

  void Make(int rank, Exchange* exchange, const UcxTransportOptions& options, int64_t bytes) {
    bytes_ = bytes;
    networks_[rank] = UcxNetwork::Create(2, {RankId(rank)}, exchange, options).value();
    TransportEdge edge;
    edge.edge = kEdge;
    edge.slots = slots_;
    edge.bytes = bytes;
    edge.peer = RankId(1 - rank);
    if (rank == 1) {
      edge.direction = TransportEdge::Direction::kIncoming;
      landing_ = endpoint(1)->AllocateLanding(slots_ * bytes).value();
      if (landing_ == nullptr) {
        own_landing_.resize(slots_ * bytes);
        landing_ = own_landing_.data();
      }
      edge.landing = landing_;
      edge.stride = bytes;
    }
    ASSERT_TRUE(endpoint(rank)->AddEdge(edge).ok());
  }
  void Make(const UcxTransportOptions& options, int64_t bytes) {
    for (int rank : {0, 1}) Make(rank, &exchange_, options, bytes);
  }
  std::pair<absl::Status, absl::Status> Connect() {
    std::pair<absl::Status, absl::Status> statuses;
    std::thread other([&] { statuses.second = endpoint(1)->Connect(); });
    statuses.first = endpoint(0)->Connect();
    other.join();
    return statuses;
  }
  void ConnectWell() {
    const auto [one, other] = Connect();
    ASSERT_EQ(one, absl::OkStatus());
    ASSERT_EQ(other, absl::OkStatus());
  }
  absl::Status Put(int64_t sequence, const char* bytes, int64_t size) {
    MessageHeader header;
    header.edge = kEdge;
    header.slot = static_cast<int32_t>(sequence % slots_);
    header.sequence = sequence;
    header.payload_bytes = size;
    void* mapped = endpoint(0)->TryMap(EdgeHandle(0), header.slot);
    if (mapped != nullptr) std::memcpy(mapped, bytes, size);
    return endpoint(0)->Put(EdgeHandle(0), header, mapped != nullptr ? mapped : bytes);
  }
  // Both ranks work until rank 1 has news: a count or an error.
  absl::StatusOr<int64_t> PollAtConsumer(MessageReceiver* receiver) {
    for (;;) {
      RecordingReceiver producer;
      absl::StatusOr<int64_t> n = endpoint(1)->Poll(receiver);
      if (!n.ok() || *n > 0) return n;
      if (!endpoint(0)->Poll(&producer).ok()) return endpoint(1)->Poll(receiver);
    }
  }
  TransportEndpoint* endpoint(int rank) { return networks_[rank]->endpoint(RankId(rank)); }
  UcxTraffic traffic(int rank) const { return networks_[rank]->Traffic(RankId(rank)); }
  char* landing(int32_t slot) { return landing_ + slot * bytes_; }
  LocalExchange& exchange() { return exchange_; }

  void Close(int rank) { networks_[rank].reset(); }

 private:
  const int32_t slots_;
  LocalExchange exchange_{10'000};
  std::unique_ptr<UcxNetwork> networks_[2];
  int64_t bytes_ = 0;
  char* landing_ = nullptr;
  std::vector<char> own_landing_;
};

class UcxLanesTest : public ::testing::TestWithParam<Lanes> {
 protected:
  UcxPair pair_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, UcxLanesTest, ::testing::Values(Lanes::kSharedMemory, Lanes::kTcp),
                         [](const auto& test) {
                           return test.param == Lanes::kTcp ? "Tcp" : "SharedMemory";
                         });

// On TCP a payload of this size is read when the consumer asks for it, after Put.
constexpr int64_t kLarge = 256 << 10;

int64_t NumDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::distance(begin(open), end(open));
}

// UCX ignores settings whose names it does not know. With its own, large tensors are slow, and a
// network that is away for half a minute breaks idle connections.
TEST(UcxTransport, TheSettingsOfTcpTakeEffect) {
  constexpr int64_t kOneSegment = kTcpSegmentBytes - 4096;
  UcxPair pair;
  pair.Make(OptionsFor(Lanes::kTcp), kOneSegment);
  pair.ConnectWell();
  int num_connections = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        peer.ss_family != AF_INET)
      continue;
    int is_probed = 0;
    size = sizeof(is_probed);
    ASSERT_EQ(::getsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &is_probed, &size), 0);
    EXPECT_EQ(is_probed, 0);
    ++num_connections;
  }
  EXPECT_GE(num_connections, 2);
  std::vector<char> bytes(kOneSegment, 'a');
  most_bytes_sent = 0;
  ASSERT_EQ(pair.Put(0, bytes.data(), kOneSegment), absl::OkStatus());
  RecordingReceiver receiver;
  EXPECT_EQ(pair.PollAtConsumer(&receiver).value(), 1);
  EXPECT_GE(most_bytes_sent, kOneSegment / 2) << "in segments of UCX's own size";
}

// Two ranks with an edge each way, as in an exchange.
class HeldCreditsTest : public UcxLanesTest {
 protected:
  static constexpr EdgeHandle kOut{0}, kBack{1};  // at rank 0; the other way round at rank 1

  void SetUp() override {
    pair_.Make(OptionsFor(GetParam()), 64);
    for (int rank : {0, 1}) {
      TransportEdge edge;
      edge.edge = EdgeId(43);
      edge.slots = 2;
      edge.bytes = 0;
      edge.peer = RankId(1 - rank);
      if (rank == 0) edge.direction = TransportEdge::Direction::kIncoming;
      ASSERT_TRUE(pair_.endpoint(rank)->AddEdge(edge).ok());
    }
    pair_.ConnectWell();
    ASSERT_EQ(pair_.Put(0, "token", 5), absl::OkStatus());
    ASSERT_EQ(pair_.PollAtConsumer(&consumer_).value(), 1);
    sent_before_ = pair_.traffic(1).sends;
    ASSERT_EQ(pair_.endpoint(1)->ReturnCredit(kOut, 0), absl::OkStatus());
  }
  int64_t num_sent() const { return pair_.traffic(1).sends - sent_before_; }
  // Polls rank 0 until it has taken this many messages.
  void AwaitAtProducer(size_t count) {
    while (producer_.log.size() < count) ASSERT_TRUE(pair_.endpoint(0)->Poll(&producer_).ok());
  }

  RecordingReceiver consumer_, producer_;
  int64_t sent_before_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Lanes, HeldCreditsTest,
                         ::testing::Values(Lanes::kSharedMemory, Lanes::kTcp),
                         [](const auto& test) {
                           return test.param == Lanes::kTcp ? "Tcp" : "SharedMemory";
                         });

TEST_P(HeldCreditsTest, ACreditTravelsBehindTheNextToken) {
  EXPECT_EQ(num_sent(), 0);
  MessageHeader header;
  header.edge = EdgeId(43);
  ASSERT_EQ(pair_.endpoint(1)->Put(kBack, header, nullptr), absl::OkStatus());
  EXPECT_EQ(num_sent(), 1);
  AwaitAtProducer(2);
}

TEST_P(HeldCreditsTest, AFlushSendsIt) {
  ASSERT_EQ(pair_.endpoint(1)->Flush(), absl::OkStatus());
  EXPECT_EQ(num_sent(), 1);
  AwaitAtProducer(1);
}

TEST_P(HeldCreditsTest, ARankThatPollsInVainSendsIt) {
  for (int poll = 0; poll < 100; ++poll) ASSERT_EQ(pair_.endpoint(1)->Poll(&consumer_).value(), 0);
  EXPECT_EQ(num_sent(), 1);
  AwaitAtProducer(1);
}

TEST_P(HeldCreditsTest, ARankThatSleepsSendsItFirst) {
  while (pair_.endpoint(1)->Park() != TransportEndpoint::ParkResult::kParked) {
    ASSERT_TRUE(pair_.endpoint(1)->Poll(&consumer_).ok());
  }
  EXPECT_EQ(num_sent(), 1);
  AwaitAtProducer(1);
  pair_.endpoint(1)->Unpark();
}

TEST_P(HeldCreditsTest, ARankThatLeavesSendsItFirst) {
  pair_.endpoint(1)->Close();
  AwaitAtProducer(1);
}

TEST_P(HeldCreditsTest, MoreThanFitBehindATokenAreSent) {
  for (int32_t sequence = 1; sequence < UcxPair::kSlots; ++sequence) {
    ASSERT_EQ(pair_.Put(sequence, "token", 5), absl::OkStatus());
    ASSERT_EQ(pair_.PollAtConsumer(&consumer_).value(), 1);
    ASSERT_EQ(pair_.endpoint(1)->ReturnCredit(kOut, sequence), absl::OkStatus());
  }
  EXPECT_EQ(num_sent(), UcxPair::kSlots > kRidersMax ? 1 : 0);
  MessageHeader header;
  header.edge = EdgeId(43);
  ASSERT_EQ(pair_.endpoint(1)->Put(kBack, header, nullptr), absl::OkStatus());
  EXPECT_EQ(num_sent(), UcxPair::kSlots > kRidersMax ? 2 : 1);
  AwaitAtProducer(1 + UcxPair::kSlots);
}

// A door that is still open when its endpoint ends must not touch sockets that UCX has closed.
TEST(UcxTransport, ANetworkThatNeverConnectedLeavesNoDescriptors) {
  int64_t before = 0;
  for (int round = 0; round < 4; ++round) {
    if (round == 1) before = NumDescriptors();  // the first round starts UCX itself
    for (const Lanes lanes : {Lanes::kTcp, Lanes::kSharedMemory}) {
      LocalExchange exchange(10'000);
      EXPECT_TRUE(UcxNetwork::Create(2, {RankId(0)}, &exchange, OptionsFor(lanes)).ok());
    }
  }
  EXPECT_EQ(NumDescriptors(), before);
}

TEST_P(UcxLanesTest, APayloadThatChangesOnItsWayIsCaught) {
  pair_.Make(OptionsFor(GetParam()), kLarge);
  pair_.ConnectWell();
  std::vector<char> bytes(kLarge, 'a');
  ASSERT_EQ(pair_.Put(0, bytes.data(), kLarge), absl::OkStatus());
  char* sent = static_cast<char*>(pair_.endpoint(0)->TryMap(EdgeHandle(0), 0));
  (sent != nullptr ? sent : bytes.data())[kLarge / 2] ^= 4;
  RecordingReceiver receiver;
  const absl::Status status = pair_.PollAtConsumer(&receiver).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(
      std::string(status.message()).find("W0526 at rank 1, token 0 from rank 0 on edge 42, slot 0"),
      std::string::npos)
      << status;
  EXPECT_TRUE(receiver.log.empty());
  EXPECT_EQ(pair_.endpoint(1)->Poll(&receiver).status(), status) << "and stays so";
}

TEST_P(UcxLanesTest, WithoutChecksumsNobodyLooks) {
  UcxTransportOptions options = OptionsFor(GetParam());
  options.checksum = Checksum::kNone;
  pair_.Make(options, kLarge);
  pair_.ConnectWell();
  std::vector<char> bytes(kLarge, 'a');
  ASSERT_EQ(pair_.Put(0, bytes.data(), kLarge), absl::OkStatus());
  char* sent = static_cast<char*>(pair_.endpoint(0)->TryMap(EdgeHandle(0), 0));
  (sent != nullptr ? sent : bytes.data())[kLarge / 2] ^= 4;
  RecordingReceiver receiver;
  EXPECT_EQ(pair_.PollAtConsumer(&receiver).value(), 1);
}

TEST_P(UcxLanesTest, AMessageAllocatesNothing) {
  pair_.Make(OptionsFor(GetParam()), kLarge);
  pair_.ConnectWell();
  struct Returning final : MessageReceiver {
    explicit Returning(TransportEndpoint* e) : endpoint(e) {}
    absl::Status OnToken(EdgeHandle edge, const MessageHeader& header) override {
      ++num;
      return endpoint->ReturnCredit(edge, header.slot);
    }
    absl::Status OnCredit(EdgeHandle, int32_t) override {
      ++num;
      return absl::OkStatus();
    }
    TransportEndpoint* endpoint;
    int64_t num = 0;
  } producer(pair_.endpoint(0)), consumer(pair_.endpoint(1));
  const std::vector<char> bytes(kLarge, 'a');
  int64_t sequence = 0;
  const auto run = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const int64_t size = i % 3 == 0 ? kLarge : i % 3 == 1 ? 100 : 0;
      if (!pair_.Put(sequence++, bytes.data(), size).ok()) return;
      while (producer.num < sequence) {
        if (!pair_.endpoint(0)->Poll(&producer).ok() || !pair_.endpoint(1)->Poll(&consumer).ok())
          return;
      }
    }
  };
  run(50);
  const int64_t before = num_allocations;
  run(300);
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_EQ(consumer.num, 350);
  EXPECT_LE(pair_.traffic(0).pending_sends_max, UcxPair::kSlots);
}

// UCX's queue to the peer is full, so the connection cannot end in order.
TEST(UcxTransport, AnEndpointEndsAlthoughItsPeerTakesNothingMore) {
  constexpr int32_t kManySlots = 2'000;
  UcxPair pair(kManySlots);
  pair.Make(OptionsFor(Lanes::kSharedMemory), 64);
  pair.ConnectWell();
  const std::vector<char> bytes(64, 'a');
  for (int64_t sequence = 0; sequence < kManySlots; ++sequence)
    ASSERT_EQ(pair.Put(sequence, bytes.data(), 64), absl::OkStatus());
  EXPECT_GT(pair.traffic(0).pending_sends_max, 100);
  pair.Close(0);
}

// A message that finds the ring full goes through UCX, and may arrive before those in the ring.
TEST(UcxTransport, MoreMessagesThanARingHoldsArriveInOrder) {
  constexpr int32_t kManySlots = 3 * kRingEntries;
  UcxPair pair(kManySlots);
  pair.Make(OptionsFor(Lanes::kSharedMemory), 64);
  pair.ConnectWell();
  const std::vector<char> bytes(64, 'a');
  RecordingReceiver receiver;
  for (int64_t first = 0; first < 2 * kManySlots; first += kManySlots) {
    for (int64_t sequence = first; sequence < first + kManySlots; ++sequence)
      ASSERT_EQ(pair.Put(sequence, bytes.data(), 64), absl::OkStatus());
    while (std::ssize(receiver.tokens) < first + kManySlots)
      ASSERT_TRUE(pair.PollAtConsumer(&receiver).ok());
    for (int32_t slot = 0; slot < kManySlots; ++slot)
      ASSERT_EQ(pair.endpoint(1)->ReturnCredit(EdgeHandle(0), slot), absl::OkStatus());
    ASSERT_EQ(pair.endpoint(1)->Flush(), absl::OkStatus());
    RecordingReceiver credits;
    while (std::ssize(credits.log) < kManySlots) {
      for (int rank : {0, 1}) ASSERT_TRUE(pair.endpoint(rank)->Poll(&credits).ok());
    }
  }
  for (int64_t sequence = 0; sequence < 2 * kManySlots; ++sequence)
    EXPECT_EQ(receiver.tokens[sequence].sequence, sequence);
  EXPECT_GE(pair.traffic(0).ring_sends, 2 * kRingEntries);
  EXPECT_LT(pair.traffic(0).ring_sends, pair.traffic(0).sends - 2);
}

TEST_P(UcxLanesTest, OnlySharedMemoryHasRings) {
  pair_.Make(OptionsFor(GetParam()), 64);
  pair_.ConnectWell();
  const int64_t before = pair_.traffic(0).sends;
  const std::vector<char> bytes(64, 'a');
  ASSERT_EQ(pair_.Put(0, bytes.data(), 64), absl::OkStatus());
  EXPECT_EQ(pair_.traffic(0).sends - before, 1);
  EXPECT_EQ(pair_.traffic(0).ring_sends, GetParam() == Lanes::kSharedMemory ? 1 : 0);
}

TEST_P(UcxLanesTest, SidesWithOtherOptionsDoNotConnect) {
  for (int rank : {0, 1}) {
    UcxTransportOptions options = OptionsFor(GetParam());
    if (rank == 1) options.checksum = Checksum::kNone;
    pair_.Make(rank, &pair_.exchange(), options, 8);
  }
  const auto [one, other] = pair_.Connect();
  EXPECT_EQ(one.code(), absl::StatusCode::kInvalidArgument) << one;
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument) << other;
}

TEST_P(UcxLanesTest, AnotherJobsKeyOpensNothing) {
  for (int rank : {0, 1}) {
    UcxTransportOptions options = OptionsFor(GetParam());
    options.job_key[0] = static_cast<char>(rank);
    pair_.Make(rank, &pair_.exchange(), options, 8);
  }
  const auto [one, other] = pair_.Connect();
  EXPECT_EQ(one.code(), absl::StatusCode::kDataLoss) << one;
  EXPECT_EQ(other.code(), absl::StatusCode::kDataLoss) << other;
}

// A TamperingExchange hands out the values that others published, after `change`.
class TamperingExchange final : public Exchange {
 public:
  TamperingExchange(Exchange* exchange, std::function<void(std::string&)> change)
      : exchange_(exchange), change_(std::move(change)) {}
  absl::Status Publish(const std::string& key, const std::string& value) override {
    return exchange_->Publish(key, value);
  }
  absl::StatusOr<std::string> Fetch(const std::string& key) override {
    absl::StatusOr<std::string> value = exchange_->Fetch(key);
    if (value.ok()) change_(*value);
    return value;
  }

 private:
  Exchange* exchange_;
  std::function<void(std::string&)> change_;
};

TEST_P(UcxLanesTest, ATamperedIntroductionNeverReachesUcx) {
  LocalExchange exchange(10'000);
  pair_.Make(1, &exchange, OptionsFor(GetParam()), 8);
  std::thread other([this] { EXPECT_FALSE(pair_.endpoint(1)->Connect().ok()); });
  const std::vector<std::function<void(std::string&)>> changes = {
      [](std::string& value) { value.clear(); },
      [](std::string& value) { value.pop_back(); },
      [](std::string& value) { value.resize(value.size() / 2); },
      [](std::string& value) { value += value; },
      [](std::string& value) { value[20] ^= 1; },
      [](std::string& value) { value[value.size() / 2] ^= 0x40; },
      [](std::string& value) { value.back() ^= 0x80; },
  };
  for (const auto& change : changes) {
    // OnlyReads publishes in a place of its own, and reads the other's value changed.
    struct OnlyReads final : Exchange {
      explicit OnlyReads(Exchange* e) : exchange(e) {}
      absl::Status Publish(const std::string&, const std::string&) override {
        return absl::OkStatus();
      }
      absl::StatusOr<std::string> Fetch(const std::string& key) override {
        return exchange->Fetch(key);
      }
      Exchange* exchange;
    } reads(&exchange);
    TamperingExchange tampering(&reads, change);
    UcxPair attacked;
    attacked.Make(0, &tampering, OptionsFor(GetParam()), 8);
    const absl::Status status = attacked.endpoint(0)->Connect();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  }
  ASSERT_TRUE(exchange.Publish("transport/1/0/0", "no envelope at all").ok());
  other.join();
}

// An Intruder is UCX without Weir around it, at the address that rank 1 of a pair has left.
class Intruder {
 public:
  Intruder(UcxPair& pair, Lanes lanes) {
    const std::string subject = "transport/1/0/1";
    const std::string key(32, 'k');
    const RankCard card =
        DecodeRankCard(OpenEnvelope(key, subject, pair.exchange().Fetch(subject).value()).value())
            .value();
    context_ = UcxContext::Create(1, OptionsFor(lanes)).value();
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SINGLE;
    EXPECT_EQ(ucp_worker_create(context_->get(), &params, &worker_), UCS_OK);
    ucp_ep_params_t to{};
    to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    to.address = reinterpret_cast<const ucp_address_t*>(card.address.data());
    EXPECT_EQ(ucp_ep_create(worker_, &to, &ep_), UCS_OK);
  }
  ~Intruder() { ucp_worker_destroy(worker_); }
  void Send(std::string header, std::string payload) {
    const std::string& head = sent_.emplace_back(std::move(header));
    const std::string& body = sent_.emplace_back(std::move(payload));
    ucp_request_param_t param;
    param.op_attr_mask = 0;
    ucs_status_ptr_t request =
        ucp_am_send_nbx(ep_, 1, head.data(), head.size(), body.data(), body.size(), &param);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (request != nullptr) ucp_request_free(request);
    ucp_worker_progress(worker_);
  }
  void Send(const WireMessage& message, std::string payload = "") {
    std::string header(kWireMessageBytes, '\0');
    EncodeWireMessage(message, header.data());
    Send(std::move(header), std::move(payload));
  }
  void Work() { ucp_worker_progress(worker_); }

 private:
  std::unique_ptr<UcxContext> context_;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h ep_ = nullptr;
  std::deque<std::string> sent_;  // UCX may read them late
};

class UcxIntruderTest : public ::testing::Test {
 protected:
  UcxIntruderTest() {
    pair_.Make(OptionsFor(Lanes::kSharedMemory), 64);
    pair_.ConnectWell();
  }
  WireMessage Token() const {
    WireMessage message;
    message.job_tag = JobTag(std::string(32, 'k'), 1, 0);
    message.epoch = 1;
    message.kind = WireMessage::Kind::kToken;
    message.receiver_edge = EdgeHandle(0);
    message.header.edge = UcxPair::kEdge;
    return message;
  }
  UcxPair pair_;
};

TEST_F(UcxIntruderTest, StrangersAndTheFencedAreCountedAndChangeNothing) {
  Intruder intruder(pair_, Lanes::kSharedMemory);
  WireMessage foreign = Token();
  foreign.job_tag ^= 1;
  intruder.Send(foreign);
  intruder.Send("short", "");
  intruder.Send("", std::string(100'000, 'x'));
  intruder.Send(std::string(5000, 'y'), "payload");
  WireMessage fenced = Token();
  fenced.epoch = 0;
  fenced.job_tag = JobTag(std::string(32, 'k'), 0, 0);
  intruder.Send(fenced);
  RecordingReceiver receiver;
  while (pair_.traffic(1).foreign_messages < 4 || pair_.traffic(1).fenced_messages < 1) {
    intruder.Work();
    ASSERT_EQ(pair_.endpoint(1)->Poll(&receiver).value(), 0);
  }
  ASSERT_EQ(pair_.Put(0, "hello", 5), absl::OkStatus());
  EXPECT_EQ(pair_.PollAtConsumer(&receiver).value(), 1);
  EXPECT_EQ(std::memcmp(pair_.landing(0), "hello", 5), 0);
}

// The intruder has the key of the job, as every rank has, but no rank's private key.
TEST_F(UcxIntruderTest, ARankThatSpeaksForAnotherEndsThePollAndTouchesNothing) {
  std::memset(pair_.landing(0), 'x', UcxPair::kSlots * 64);
  Intruder intruder(pair_, Lanes::kSharedMemory);
  WireMessage token = Token();
  token.header.payload_bytes = 64;
  token.payload = WireMessage::Payload::kSent;
  intruder.Send(token, std::string(64, 'y'));
  RecordingReceiver receiver;
  absl::StatusOr<int64_t> n = 0;
  while (n.ok()) {
    intruder.Work();
    n = pair_.endpoint(1)->Poll(&receiver);
  }
  EXPECT_EQ(n.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(
      std::string(n.status().message()),
      "W0524 at rank 1, token from rank 0 on edge 42: expected a message that rank 0 has written; "
      "found the tag of another.");
  EXPECT_EQ(std::string(pair_.landing(0), UcxPair::kSlots * 64),
            std::string(UcxPair::kSlots * 64, 'x'));
}

}  // namespace
}  // namespace weir::transport
