// Measures tensors between two processes, each on its own core: 64 B there and back, and 4 MiB one
// way, over shared memory and TCP, with and without checksums, beside ucx_perftest on the same
// lanes. Both sides look for messages without a pause, as ucx_perftest does.
//   bazel run //tests/bench:transport_bench
// Shared memory: the transfer writes a token's bytes into the consumer's slot; an actor that
// computes straight into that slot pays nothing more. TCP: the bytes are sent from the producer's
// slot.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/transport/forked_exchange_testing.h"
#include "runtime/transport/ucx_transport.h"
#include "tests/bench/bench_row.h"

namespace weir::bench {
namespace {

using Lanes = transport::UcxTransportOptions::Lanes;
using Checksum = transport::UcxTransportOptions::Checksum;

constexpr int64_t kSmall = 64;
constexpr int64_t kLarge = 4 << 20;
constexpr int32_t kSlots = 4;
constexpr int kRounds = 2000;  // of a latency sample
constexpr int kTokens = 100;   // of a bandwidth sample

void PinTo(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core % static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)), &cores);
  ::sched_setaffinity(0, sizeof(cores), &cores);
}

// A Side is one of two ranks, with an edge to the other rank.
class Side final : public transport::MessageReceiver {
 public:
  Side(int rank, transport::Exchange* exchange, Lanes lanes, Checksum checksum)
      : rank_(rank), source_(kLarge, 'a') {
    transport::UcxTransportOptions options;
    options.lanes = lanes;
    options.checksum = checksum;
    options.job_key = std::string(32, 'k');
    network_ = Must(transport::UcxNetwork::Create(2, {RankId(rank)}, exchange, options));
    endpoint_ = network_->endpoint(RankId(rank));
    landing_ = Must(endpoint_->AllocateLanding(kSlots * kLarge));
    own_landing_.resize(landing_ == nullptr ? kSlots * kLarge : 0);
    transport::TransportEdge edge;
    edge.slots = kSlots;
    edge.bytes = kLarge;
    edge.peer = RankId(1 - rank);
    edge.edge = EdgeId(10 + rank);
    out_ = Must(endpoint_->AddEdge(edge));
    edge.edge = EdgeId(10 + 1 - rank);
    edge.direction = transport::TransportEdge::Direction::kIncoming;
    edge.landing = landing_ != nullptr ? landing_ : own_landing_.data();
    edge.stride = kLarge;
    Must(endpoint_->AddEdge(edge));
    Must(endpoint_->Connect());
  }

  // Returns the nanoseconds of one way.
  double Latency() {
    const double begin = WallNs();
    for (int i = 0; i < kRounds; ++i) {
      Put(kSmall);
      const int64_t expected = num_tokens_ + 1;
      while (num_tokens_ < expected) Poll();
    }
    return (WallNs() - begin) / (2.0 * kRounds);
  }
  // Returns GB/s until the last credit is back.
  double Bandwidth() {
    const double begin = WallNs();
    for (int i = 0; i < kTokens; ++i) {
      while (num_sent_ - num_credits_ == kSlots) Poll();
      Put(kLarge);
    }
    while (num_credits_ < num_sent_) Poll();
    return static_cast<double>(kTokens) * kLarge / (WallNs() - begin);
  }
  [[noreturn]] void Answer() {
    for (;;) Poll();
  }

  absl::Status OnToken(EdgeHandle edge, const transport::MessageHeader& header) override {
    ++num_tokens_;
    if (rank_ == 1 && header.payload_bytes == kSmall) Put(kSmall);
    return endpoint_->ReturnCredit(edge, header.slot);
  }
  absl::Status OnCredit(EdgeHandle, int32_t) override {
    ++num_credits_;
    return absl::OkStatus();
  }

 private:
  void Poll() { Must(endpoint_->Poll(this)); }
  void Put(int64_t bytes) {
    transport::MessageHeader header;
    header.edge = EdgeId(10 + rank_);
    header.slot = static_cast<int32_t>(num_sent_ % kSlots);
    header.sequence = num_sent_++;
    header.payload_bytes = bytes;
    void* mapped = endpoint_->TryMap(out_, header.slot);
    if (mapped != nullptr) std::memcpy(mapped, source_.data(), bytes);
    Must(endpoint_->Put(out_, header, mapped != nullptr ? mapped : source_.data()));
  }

  const int rank_;
  std::unique_ptr<transport::UcxNetwork> network_;
  transport::TransportEndpoint* endpoint_ = nullptr;
  EdgeHandle out_;
  char* landing_ = nullptr;
  std::vector<char> own_landing_;
  std::vector<char> source_;
  int64_t num_sent_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_credits_ = 0;
};

// Two processes with a Side each. The first process measures on request. Between samples both are
// stopped.
class SidePair {
 public:
  SidePair(Lanes lanes, Checksum checksum) {
    if (::pipe(commands_) != 0 || ::pipe(samples_) != 0) std::abort();
    for (int rank : {0, 1}) {
      pids_[rank] = ::fork();
      if (pids_[rank] != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      PinTo(rank);
      Side side(rank, &exchange_, lanes, checksum);
      if (rank == 1) side.Answer();
      for (char command; ::read(commands_[0], &command, 1) == 1;) {
        const double sample = command == 'l' ? side.Latency() : side.Bandwidth();
        if (::write(samples_[1], &sample, sizeof(sample)) != sizeof(sample)) break;
      }
      ::_exit(0);
    }
    (void)Sample('l');
    ::kill(pids_[1], SIGSTOP);
  }
  ~SidePair() {
    for (pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    for (int fd : {commands_[0], commands_[1], samples_[0], samples_[1]}) ::close(fd);
  }
  double Measure(char command) {
    ::kill(pids_[1], SIGCONT);
    const double sample = Sample(command);
    ::kill(pids_[1], SIGSTOP);
    return sample;
  }

 private:
  double Sample(char command) {
    double sample = 0;
    if (::write(commands_[1], &command, 1) != 1 ||
        ::read(samples_[0], &sample, sizeof(sample)) != sizeof(sample))
      std::abort();
    return sample;
  }
  transport::ForkedExchange exchange_;
  int commands_[2];
  int samples_[2];
  pid_t pids_[2] = {};
};

bool HasPerftest() { return std::system("command -v ucx_perftest >/dev/null 2>&1") == 0; }

// Returns the figure of ucx_perftest from Debian's ucx-utils: ns one way, or GB/s.
double Perftest(Lanes lanes, char what) {
  const std::string environment =
      absl::StrCat("UCX_TLS=", lanes == Lanes::kTcp ? "tcp" : "posix,cma",
                   " UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n");
  const std::string test =
      what == 'l' ? absl::StrCat("-t ucp_am_lat -s ", kSmall, " -n ", 2 * kRounds, " -w 200")
                  : absl::StrCat("-t ucp_am_bw -s ", kLarge, " -n ", kTokens, " -w 4 -W ", kSlots);
  // The server ends with its client. If a port is taken, the next try uses another port.
  static int port = 20000 + ::getpid() % 20000;
  const std::string command = absl::StrCat(environment, " taskset -c 1 ucx_perftest -p ", ++port,
                                           " >/dev/null 2>&1 & sleep 0.3; ", environment,
                                           " taskset -c 0 ucx_perftest localhost -p ", port, " ",
                                           test, " -f -v 2>/dev/null | tail -1; wait");
  FILE* output = ::popen(command.c_str(), "r");
  char line[512] = "";
  if (output == nullptr || std::fgets(line, sizeof(line), output) == nullptr) line[0] = '\0';
  if (output != nullptr) ::pclose(output);
  // iterations, median us, average us, overall us, average MB/s, overall MB/s, ...
  const std::vector<std::string> fields = absl::StrSplit(line, ',');
  double value = 0;
  const size_t column = what == 'l' ? 3 : 5;
  if (fields.size() <= column || !absl::SimpleAtod(fields[column], &value)) return 0;
  // One MB of ucx_perftest is 2^20 bytes.
  return what == 'l' ? value * 1000 : value * (1 << 20) / 1e9;
}

void Compare(const BenchArgs& args, Lanes lanes, const std::string& name) {
  SidePair with(lanes, Checksum::kCrc32c);
  SidePair without(lanes, Checksum::kNone);
  for (char what : {'l', 'b'}) {
    const bool latency = what == 'l';
    const std::string text =
        latency ? absl::StrCat("64 B one way, ", name) : absl::StrCat("4 MiB tokens, ", name);
    const std::string unit = latency ? "ns" : "GB/s";
    const auto better = latency ? BenchRow::Better::kLower : BenchRow::Better::kHigher;
    const double limit = latency ? 2.0 : 0.9;
    const int repeats = args.Repeats(9);
    if (HasPerftest()) {
      const Pairs pairs = Alternate(
          repeats, [&] { return without.Measure(what); }, [&] { return Perftest(lanes, what); });
      PrintRow({text, unit, pairs.ours, "ucx_perftest, active messages", pairs.theirs, better,
                limit, "no checksums"});
    }
    const Pairs pairs = Alternate(
        repeats, [&] { return with.Measure(what); }, [&] { return without.Measure(what); });
    PrintRow({absl::StrCat(text, ", CRC32C"), unit, pairs.ours, "without", pairs.theirs, better,
              std::nullopt, ""});
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  if (!weir::bench::HasPerftest()) {
    std::fprintf(stderr,
                 "transport: skips the comparison with ucx_perftest, which is not installed. Try: "
                 "tools/bench transport --install\n");
  }
  weir::bench::Compare(args, weir::transport::UcxTransportOptions::Lanes::kSharedMemory,
                       "shared memory");
  weir::bench::Compare(args, weir::transport::UcxTransportOptions::Lanes::kTcp, "TCP");
}
