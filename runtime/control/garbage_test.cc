// Sends the coordinator the traffic of strangers and of broken workers: random bytes, damaged
// bytes, meaningless frames. The coordinator neither crashes nor grows nor keeps an honest worker
// waiting.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/control.pb.h"
#include "runtime/control/control_testing.h"
#include "runtime/control/grpc_setup.h"
#include "runtime/control/outbox.h"

namespace weir::control {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kFrames = 100'000;
constexpr int kFramesPerConnection = 10;
constexpr int64_t kGrowthKiBMax = 16 << 10;
constexpr int kFlips = 200;
constexpr int64_t kRudeFrameBytes = 400 << 20;

int64_t ResidentKiB() {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == "VmRSS:" && file >> kib) return kib;
  }
  return 0;
}

int NumDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

uint64_t Seed() {
  const char* given = std::getenv("WEIR_TEST_SEED");
  uint64_t seed = 20240607;
  if (given != nullptr && !absl::SimpleAtoi(given, &seed)) ADD_FAILURE() << given;
  std::cout << "seed " << seed << " (WEIR_TEST_SEED)\n";
  return seed;
}

sockaddr_in AddressOf(const std::string& address) {
  sockaddr_in parsed = {};
  parsed.sin_family = AF_INET;
  const size_t colon = address.rfind(':');
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(colon + 1), &port));
  parsed.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &parsed.sin_addr);
  return parsed;
}

int ConnectTo(const std::string& address) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = AddressOf(address);
  EXPECT_EQ(connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return descriptor;
}

absl::StatusOr<std::string> Echo(int, const std::string& command) { return command; }

std::string RandomFrame(std::mt19937_64* random) {
  // Half of the frames begin like a TLS record, an alert or HTTP/2 in the clear.
  static const char* const kBegins[] = {"",
                                        "",
                                        "",
                                        "\x16\x03\x01",
                                        "\x17\x03\x03",
                                        "\x15\x03\x03\x02",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                        "GET / HTTP/1.1\r\n"};
  std::string frame = kBegins[(*random)() % 8];
  const size_t size = frame.size() + (*random)() % 600;
  while (frame.size() < size) frame.push_back(static_cast<char>((*random)()));
  return frame;
}

TEST(GarbageTest, RandomBytesNeitherCrashNorFillTheCoordinatorAndAWorkerIsServed) {
  TestJob job(1);
  TestWorkers workers(&job, 1, Echo);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const uint64_t seed = Seed();
  const std::string address = job->address();
  const auto throw_frames = [&](int count, uint64_t thrower_seed) {
    std::mt19937_64 random(thrower_seed);
    for (int i = 0; i < count; i += kFramesPerConnection) {
      const int descriptor = ConnectTo(address);
      for (int f = 0; f < kFramesPerConnection; ++f) {
        const std::string frame = RandomFrame(&random);
        if (send(descriptor, frame.data(), frame.size(), MSG_NOSIGNAL) < 0) break;
      }
      // Some connections close without waiting to be refused.
      char byte;
      if (random() % 2 == 0) shutdown(descriptor, SHUT_WR);
      if (random() % 8 != 0) {
        pollfd wait = {descriptor, POLLIN, 0};
        if (poll(&wait, 1, 100) > 0) (void)!read(descriptor, &byte, 1);
      }
      close(descriptor);
    }
  };
  throw_frames(kFrames / 10, seed);  // what gRPC takes once
  const int64_t before_kib = ResidentKiB();
  std::thread one(throw_frames, kFrames / 2, seed + 1);
  std::thread other(throw_frames, kFrames / 2, seed + 2);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(job->CallAll("still served?", kPatienceMs).ok());
  one.join();
  other.join();
  const int64_t growth_kib = ResidentKiB() - before_kib;
  std::cout << "resident " << before_kib << " KiB, grown by " << growth_kib << " KiB\n";
  EXPECT_LT(growth_kib, kGrowthKiBMax);
  EXPECT_TRUE(job->CallAll("still served?", kPatienceMs).ok());
  job->Shutdown(kPatienceMs);
  EXPECT_TRUE(job.lost().empty());
}

// The number of connections is far larger than the workers' places, and larger than the porch.
TEST(GarbageTest, SilentConnectionsKeepNoWorkerOut) {
  for (int num_silent : {40, 200, 600}) {
    SCOPED_TRACE(num_silent);
    TestJob job(1);
    const int before = NumDescriptors();
    std::vector<int> silent;
    for (int i = 0; i < num_silent; ++i) silent.push_back(ConnectTo(job->address()));
    TestWorkers workers(&job, 1, Echo);
    EXPECT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
    EXPECT_TRUE(job->CallAll("served?", kPatienceMs).ok());
    EXPECT_LT(NumDescriptors() - before - num_silent, 300);
    for (int descriptor : silent) close(descriptor);
    job->Shutdown(kPatienceMs);
  }
}

// On a loaded machine all workers may come before the first of them gets to say something.
TEST(GarbageTest, WorkersThatAllComeAtOnceAndSpeakLateAreNotCutOff) {
  constexpr int kWorkers = 600;
  TestJob job(kWorkers);
  std::vector<pollfd> late;
  for (int i = 0; i < kWorkers; ++i) late.push_back({ConnectTo(job->address()), POLLIN, 0});
  EXPECT_EQ(poll(late.data(), late.size(), 500), 0) << "some connections were cut off";
  for (const pollfd& worker : late) close(worker.fd);
}

TEST(GarbageTest, AConnectionThatStaysSilentIsCutOff) {
  TestJob job(1);
  const int silent = ConnectTo(job->address());
  pollfd wait = {silent, POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, kPatienceMs), 1);
  char byte;
  EXPECT_LE(read(silent, &byte, 1), 0);
  close(silent);
}

TEST(GarbageTest, AConnectionOfAnotherUserIsCutOffAtOnceWhateverItSays) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestJob job(1);
  const sockaddr_in to = AddressOf(job->address());
  const pid_t stranger = fork();
  if (stranger == 0) {
    if (setgid(12345) != 0 || setuid(12345) != 0) _exit(1);
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) _exit(2);
    char byte = 0x16;
    (void)!send(descriptor, &byte, 1, MSG_NOSIGNAL);
    pollfd wait = {descriptor, POLLIN, 0};
    // The limit is far shorter than the time after which a stalled handshake is ended.
    if (poll(&wait, 1, 3'000) != 1) _exit(3);
    _exit(read(descriptor, &byte, 1) <= 0 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(stranger, &status, 0), stranger);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  TestWorkers workers(&job, 1, Echo);
  EXPECT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  job->Shutdown(kPatienceMs);
}

// A FlippingRelay carries one connection to `address` both ways and flips one bit of the bytes that
// pass, at byte `flip_at` counted over both directions.
class FlippingRelay {
 public:
  FlippingRelay(const std::string& address, int64_t flip_at)
      : address_(address), flip_at_(flip_at) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here = AddressOf("127.0.0.1:0");
    socklen_t size = sizeof(here);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&here), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size), 0);
    port_ = ntohs(here.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~FlippingRelay() {
    is_over_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  void Run() {
    while (!is_over_) {
      const int inner = accept(listener_, nullptr, nullptr);
      if (inner < 0) return;
      const int outer = ConnectTo(address_);
      int64_t passed = 0;
      while (!is_over_) {
        pollfd waits[2] = {{inner, POLLIN, 0}, {outer, POLLIN, 0}};
        if (poll(waits, 2, 20) == 0) continue;
        if (waits[0].revents != 0 && !Pass(inner, outer, &passed)) break;
        if (waits[1].revents != 0 && !Pass(outer, inner, &passed)) break;
      }
      close(inner);
      close(outer);
    }
  }
  bool Pass(int from, int to, int64_t* passed) {
    char bytes[4096];
    const ssize_t count = read(from, bytes, sizeof(bytes));
    if (count <= 0) return false;
    if (flip_at_ >= *passed && flip_at_ < *passed + count)
      bytes[flip_at_ - *passed] ^= static_cast<char>(1 << (flip_at_ % 8));
    *passed += count;
    return send(to, bytes, count, MSG_NOSIGNAL) == count;
  }

  const std::string address_;
  const int64_t flip_at_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST(GarbageTest, AFlippedBitIsNeverTakenForAMessage) {
  TestJob job(kFlips + 1);
  auto honest = WorkerLink::Connect(job.WorkerOptions(kFlips));
  ASSERT_TRUE(honest.ok()) << honest.status();
  std::mt19937_64 random(Seed());
  const std::string value(1000, 'v');
  int num_hurt = 0;
  for (int i = 0; i < kFlips; ++i) {
    // A handshake and a publish are some 7 kB; later bits fall on heartbeats or on nothing.
    FlippingRelay relay(job->address(), static_cast<int64_t>(random() % 8000));
    WorkerLinkOptions options = job.WorkerOptions(i);
    options.coordinator_address = relay.address();
    options.connect_limit_ms = 200;
    options.fetch_limit_ms = 200;
    auto link = WorkerLink::Connect(options);
    const std::string key = absl::StrCat("key ", i);
    const bool published = link.ok() && (*link)->Publish(key, value).ok();
    if (published) {
      const auto seen = (*honest)->Fetch(key);
      ASSERT_TRUE(seen.ok()) << seen.status();
      EXPECT_EQ(*seen, value);
    } else {
      ++num_hurt;
    }
  }
  std::cout << num_hurt << " of " << kFlips << " connections ended by a flipped bit\n";
  EXPECT_GT(num_hurt, 0);
  EXPECT_LT(num_hurt, kFlips);
  EXPECT_TRUE((*honest)->Publish("honest", value).ok());
}

// A RudeWorker has good credentials, but sends whatever the test decides.
class RudeWorker {
 public:
  using Stream = grpc::ClientReaderWriter<proto::WorkerFrame, proto::CoordinatorFrame>;

  RudeWorker(const TestJob& job, int worker, const std::string& hello_bytes) {
    const WorkerLinkOptions options = job.WorkerOptions(worker);
    stub_ = proto::ControlPlane::NewStub(
        ChannelTo(options.coordinator_address, options.job_id, options.credentials));
    context_.AddMetadata(kHelloKey, hello_bytes);
    stream_ = stub_->Work(&context_);
  }
  Stream* operator->() { return stream_.get(); }
  // Reads all remaining frames of the coordinator and returns the status of the call.
  grpc::Status Finish() {
    proto::CoordinatorFrame frame;
    while (stream_->Read(&frame)) continue;
    return stream_->Finish();
  }
  grpc::ClientContext& context() { return context_; }

 private:
  std::unique_ptr<proto::ControlPlane::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

std::string HelloBytes(const TestJob& job, int worker) {
  proto::Hello hello;
  hello.set_job_id(job.job_id());
  hello.set_epoch(1);
  hello.set_worker(worker);
  hello.set_build_id("build-1");
  return hello.SerializeAsString();
}

TEST(GarbageTest, AHelloOfAnotherJobIsRefusedWithBothIds) {
  TestJob job(1);
  proto::Hello hello;
  ASSERT_TRUE(hello.ParseFromString(HelloBytes(job, 0)));
  hello.set_job_id("otherjob");
  hello.set_build_id("build-2");
  const std::string bytes = hello.SerializeAsString();
  WorkerLinkOptions options = job.WorkerOptions(0);
  options.credentials = *job.authority().Issue(WorkerIdentity("otherjob", WorkerId(0), 1));
  auto stub = proto::ControlPlane::NewStub(
      ChannelTo(options.coordinator_address, job.job_id(), options.credentials));
  grpc::ClientContext context;
  context.AddMetadata(kHelloKey, bytes);
  auto stream = stub->Work(&context);
  proto::CoordinatorFrame frame;
  EXPECT_FALSE(stream->Read(&frame));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("W0605"), HasSubstr("otherjob"), HasSubstr(job.job_id())));
}

TEST(GarbageTest, AHelloThatDoesNotParseIsRefused) {
  TestJob job(1);
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 50; ++i) {
    std::string bytes = HelloBytes(job, 0);
    if (i == 0) bytes.clear();
    if (i == 1) bytes.assign(12'000, 'x');
    if (i > 1) bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    RudeWorker worker(job, 0, bytes);
    proto::CoordinatorFrame frame;
    if (worker->Read(&frame)) break;  // a flip in the process id does no harm
    const grpc::Status status = worker.Finish();
    EXPECT_TRUE(status.error_code() == grpc::PERMISSION_DENIED ||
                status.error_code() == grpc::FAILED_PRECONDITION)
        << status.error_code() << " " << status.error_message();
  }
}

TEST(GarbageTest, AHelloBeyondTheLimitOfMetadataIsRefused) {
  TestJob job(1);
  RudeWorker worker(job, 0, std::string(kMetadataBytesMax, 'x'));
  proto::CoordinatorFrame frame;
  EXPECT_FALSE(worker->Read(&frame));
  EXPECT_FALSE(worker.Finish().ok());
}

proto::WorkerFrame RudeFrame(std::mt19937_64* random) {
  proto::WorkerMessage message;
  switch ((*random)() % 5) {
    case 0:
      message.mutable_publish()->set_key(absl::StrCat((*random)() % 100));
      message.mutable_publish()->set_value(std::string((*random)() % 100, 'v'));
      break;
    case 1: message.mutable_fetch()->set_key(absl::StrCat((*random)() % 1000)); break;
    case 2:
      message.mutable_answer()->set_call(static_cast<int64_t>((*random)() % 4));
      message.mutable_answer()->mutable_outcome()->set_code(static_cast<int32_t>((*random)()));
      break;
    case 3: message.set_event("event"); break;
    default: break;
  }
  message.set_epoch((*random)() % 8 == 0 ? 2 : 1);
  proto::WorkerFrame frame;
  if ((*random)() % 4 == 0) {
    frame.mutable_heartbeat()->set_ping_sent_ns(static_cast<int64_t>((*random)()));
    frame.mutable_heartbeat()->set_ping_received_ns(static_cast<int64_t>((*random)()));
    frame.mutable_heartbeat()->set_sent_ns(static_cast<int64_t>((*random)()));
    frame.mutable_heartbeat()->set_acts(static_cast<int64_t>((*random)()));
    return frame;
  }
  std::string bytes = message.SerializeAsString();
  if ((*random)() % 8 == 0 && !bytes.empty())
    bytes[(*random)() % bytes.size()] = static_cast<char>((*random)());
  frame.mutable_piece()->set_part(bytes);
  frame.mutable_piece()->set_last((*random)() % 8 != 0);
  return frame;
}

TEST(GarbageTest, FramesOfNoMeaningFromAWorkerHurtOnlyItself) {
  constexpr int kRudeWorkers = 60;
  TestJob job(kRudeWorkers + 1);
  std::mt19937_64 random(Seed());
  auto honest = WorkerLink::Connect(job.WorkerOptions(kRudeWorkers));
  ASSERT_TRUE(honest.ok()) << honest.status();
  for (int w = 0; w < kRudeWorkers; ++w) {
    RudeWorker worker(job, w, HelloBytes(job, w));
    for (int i = 0; i < 200; ++i) {
      if (!worker->Write(RudeFrame(&random))) break;
    }
    worker.context().TryCancel();
    (void)worker.Finish();
  }
  EXPECT_TRUE((*honest)->Publish("honest", "value").ok());
  EXPECT_EQ(*(*honest)->Fetch("honest"), "value");
  for (const auto& [worker, why] : job.WaitForLost(kRudeWorkers))
    EXPECT_LT(worker, kRudeWorkers) << why;
  EXPECT_TRUE(job->Health()[WorkerId(kRudeWorkers)].connected);
}

TEST(GarbageTest, AWorkerThatNeverEndsItsMessageIsCutAtTheLimit) {
  TestJob job(2, [](CoordinatorOptions* options) { options->message_bytes_max = 1 << 20; });
  auto honest = WorkerLink::Connect(job.WorkerOptions(1));
  ASSERT_TRUE(honest.ok()) << honest.status();
  const int64_t before_kib = ResidentKiB();
  RudeWorker worker(job, 0, HelloBytes(job, 0));
  proto::WorkerFrame frame;
  frame.mutable_piece()->set_part(std::string(kPieceBytes, 'x'));
  for (int i = 0; i < 4000 && worker->Write(frame); ++i) continue;
  (void)worker.Finish();
  const auto lost = job.WaitForLost(1);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(std::string(lost[0].second.message()),
              AllOf(HasSubstr("worker 0"), HasSubstr("more than")));
  EXPECT_LT(ResidentKiB() - before_kib, kGrowthKiBMax);
  EXPECT_TRUE((*honest)->Publish("honest", "value").ok());
}

TEST(GarbageTest, AFrameBeyondTheLimitEndsTheJobButNotTheStarter) {
  TestJob job(1);
  // The test makes its own channel, because Weir's channel would not send such a frame.
  grpc::SslCredentialsOptions credentials;
  const WorkerLinkOptions options = job.WorkerOptions(0);
  credentials.pem_root_certs = options.credentials.authority_pem;
  credentials.pem_private_key = options.credentials.key_pem;
  credentials.pem_cert_chain = options.credentials.certificate_pem;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(CoordinatorIdentity(job.job_id()));
  arguments.SetMaxSendMessageSize(-1);
  auto stub = proto::ControlPlane::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("ipv4:", job->address()), grpc::SslCredentials(credentials), arguments));
  grpc::ClientContext context;
  context.AddMetadata(kHelloKey, HelloBytes(job, 0));
  auto stream = stub->Work(&context);
  proto::WorkerFrame frame;
  frame.mutable_piece()->set_part(std::string(kRudeFrameBytes, 'x'));
  const int64_t before_kib = ResidentKiB();
  std::atomic<bool> is_over{false};
  int64_t peak_kib = 0;
  std::thread watch([&] {
    while (!is_over) {
      peak_kib = std::max(peak_kib, ResidentKiB());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  stream->Write(frame);
  proto::CoordinatorFrame said;
  while (stream->Read(&said)) continue;
  (void)stream->Finish();
  is_over = true;
  watch.join();
  const auto lost = job.WaitForLost(1);
  EXPECT_EQ(lost.size(), 1u);
  // The sender holds a second copy of its frame; the receiver must not hold a third.
  std::cout << "a frame of " << (kRudeFrameBytes >> 20) << " MiB: grown by "
            << ((peak_kib - before_kib) >> 10) << " MiB\n";
  EXPECT_LT(peak_kib - before_kib, (kRudeFrameBytes >> 10) + (100 << 10));
}

}  // namespace
}  // namespace weir::control
