// Measures a boxing between two processes. Each process is one rank, and the two are connected like
// the processes of a job. The bench answers questions, so that others can be asked in turn
// (bench_collective.py).
//   collective_bench FOLDER shm|tcp checksum|plain
// Process r reads lines from the pipe FOLDER/commands.r: "all_reduce BYTES COUNT", or another of
// kBoxings; process 0 answers in FOLDER/answers with the seconds that COUNT of them take. "end"
// ends both.
//
// A step has many micro-batches with one boxing each, as in tensor parallelism. The source does not
// write the numbers, and no actor reads the result (or a sink on rank 0 does, if nothing crosses,
// because else the boxing would not be made). The boxings follow one another without a barrier: the
// next boxing begins when this rank has read all of its input. The time includes acts, packing,
// checksums, transport and filling. It does not include compiling, connecting and the first steps.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "actors/session/session.h"
#include "compiler/compile.h"
#include "compiler/cost/cost_model.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/process_transport.h"
#include "tests/bench/bench_row.h"

namespace weir::bench {
namespace {

struct Boxing {
  std::string mesh;
  sbp::Layout from, to;
  int64_t to_stage = 0;
  enum class Crosses : uint8_t { kSomething, kNothing } crosses = Crosses::kSomething;
};

const std::map<std::string, Boxing>& Boxings() {
  static const std::map<std::string, Boxing> kBoxings = {
      {"all_reduce", {"x=2", {sbp::Sbp::P()}, {sbp::Sbp::B()}}},
      {"reduce_scatter", {"x=2", {sbp::Sbp::P()}, {sbp::Sbp::S(0)}}},
      {"all_gather", {"x=2", {sbp::Sbp::S(0)}, {sbp::Sbp::B()}}},
      {"all_to_all", {"x=2", {sbp::Sbp::S(0)}, {sbp::Sbp::S(1)}}},
      {"slice", {"x=2", {sbp::Sbp::B()}, {sbp::Sbp::S(0)}, 0, Boxing::Crosses::kNothing}},
      {"split_to_partial",
       {"x=2", {sbp::Sbp::S(0)}, {sbp::Sbp::P()}, 0, Boxing::Crosses::kNothing}},
      {"broadcast_to_partial",
       {"x=2", {sbp::Sbp::B()}, {sbp::Sbp::P()}, 0, Boxing::Crosses::kNothing}},
      {"move", {"pp=2,x=1", {sbp::Sbp::B()}, {sbp::Sbp::B()}, 1}},
  };
  return kBoxings;
}

// The exchange between two processes with one rank each. Values published by the other rank come
// over a socket.
class SocketExchange final : public transport::Exchange {
 public:
  explicit SocketExchange(int fd) : fd_(fd) {}

  absl::Status Publish(const std::string& key, const std::string& value) override {
    const uint64_t sizes[2] = {key.size(), value.size()};
    const bool sent = Write(sizes, sizeof(sizes)) && Write(key.data(), key.size()) &&
                      Write(value.data(), value.size());
    return sent ? absl::OkStatus() : absl::UnavailableError("the other process is gone");
  }
  absl::StatusOr<std::string> Fetch(const std::string& key) override {
    MutexLock lock(&mutex_);
    while (!values_.contains(key)) {
      uint64_t sizes[2];
      if (!Read(sizes, sizeof(sizes))) return absl::UnavailableError("the other process is gone");
      std::string other(sizes[0], '\0'), value(sizes[1], '\0');
      if (!Read(other.data(), other.size()) || !Read(value.data(), value.size())) {
        return absl::UnavailableError("the other process is gone");
      }
      values_[other] = value;
    }
    return values_[key];
  }
  // Forgets the values, because the next network uses the same keys again.
  void Forget() {
    MutexLock lock(&mutex_);
    values_.clear();
  }
  // Returns when both processes have come here. No run begins, and no run ends for good, before.
  void Meet() {
    const std::string key = absl::StrCat("meeting ", ++num_meetings_);
    Must(Publish(key, ""));
    Must(Fetch(key).status());
  }

 private:
  bool Write(const void* bytes, size_t size) {
    return size == 0 || ::send(fd_, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }
  bool Read(void* bytes, size_t size) {
    return size == 0 || ::recv(fd_, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }

  const int fd_;
  int64_t num_meetings_ = 0;
  Mutex mutex_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
};

constexpr int64_t kMicroBatches = 16;

// A feed that does not write the numbers.
class UntouchedFeed final : public actors::DataFeed {
 public:
  absl::Status Fill(const std::string&, int64_t, int64_t, const TensorSlice&, void*) override {
    return absl::OkStatus();
  }
};

// Returns a shape as square as a power of two allows.
sbp::TensorType TypeOf(int64_t bytes) {
  const int64_t elements = std::max<int64_t>(1, bytes / 4);
  int64_t rows = 1;
  while (rows * rows * 4 <= elements) rows *= 2;
  return {DType::kF32, {{"rows", rows, 1}, {"columns", elements / rows, 1}}};
}

// TCP joins hosts, so a plan for it takes the two processes for two hosts.
int64_t DevicesPerHost(const transport::UcxTransportOptions& transport) {
  return transport.lanes == transport::UcxTransportOptions::Lanes::kTcp ? 1 : 0;
}

proto::RankPlan PlanOf(const Boxing& boxing, int64_t bytes, RankId rank, int64_t devices_per_host) {
  const sbp::TensorType type = TypeOf(bytes);
  compiler::LogicalPlan plan;
  plan.mesh = Must(sbp::Mesh::Parse(boxing.mesh));
  plan.places = sbp::PipelinePlaces(plan.mesh, devices_per_host);
  plan.stage_mesh = plan.places.mesh(0);
  plan.plan_id = "boxing";
  plan.micro_batches = kMicroBatches;
  plan.module.AddValue({"x", type, boxing.from, 0, compiler::Frequency::kMicroBatch, -1});
  plan.module.AddValue(
      {"y", type, boxing.to, boxing.to_stage, compiler::Frequency::kMicroBatch, -1});
  compiler::ProgramItem source, exchange;
  source.kind = compiler::ItemKind::kSource;
  source.name = source.feed = "x";
  source.frequency = exchange.frequency = compiler::Frequency::kMicroBatch;
  source.outputs = {0};
  exchange.kind = compiler::ItemKind::kBoxing;
  exchange.name = "y";
  exchange.phase = compiler::PhaseKind::kBoxing;
  exchange.inputs = {0};
  exchange.outputs = {1};
  plan.module.items = {source, exchange};
  if (boxing.crosses == Boxing::Crosses::kNothing) {
    compiler::ProgramItem sink;
    sink.kind = compiler::ItemKind::kSink;
    sink.name = sink.feed = "y is read";
    sink.frequency = compiler::Frequency::kMicroBatch;
    sink.inputs = {1};
    plan.module.items.push_back(sink);
  }
  Must(compiler::ShapeStages(&plan));
  plan.rhythm = Must(compiler::SolveRhythm(plan, compiler::PeakCosts()));
  return Must(compiler::LowerForRank(plan, rank));
}

// A BoxingJob is one boxing at one size, ready to run.
class BoxingJob {
 public:
  BoxingJob(const Boxing& boxing, int64_t bytes, int rank, SocketExchange* exchange,
            const transport::UcxTransportOptions& transport)
      : exchange_(exchange) {
    exchange->Forget();
    network_ = Must(transport::MakeProcessNetwork(2, {RankId(rank)}, exchange, transport));
    actors::SessionOptions options;
    options.feed = &feed_;
    options.network = network_.get();
    options.caf.threads_on_machine = 2;
    session_ = Must(actors::Session::Create(
        {PlanOf(boxing, bytes, RankId(rank), DevicesPerHost(transport))}, options));
    Seconds(1);
  }
  // Returns the seconds of about `count` boxings.
  double Seconds(int64_t count) {
    const int64_t steps = (count + kMicroBatches - 1) / kMicroBatches;
    exchange_->Meet();
    const double begin = WallNs();
    Must(session_->RunSteps(steps));
    const double end = WallNs();
    exchange_->Meet();
    return (end - begin) * 1e-9 * static_cast<double>(count) /
           static_cast<double>(steps * kMicroBatches);
  }

 private:
  SocketExchange* const exchange_;
  UntouchedFeed feed_;
  std::unique_ptr<transport::TransportNetwork> network_;
  std::unique_ptr<actors::Session> session_;
};

void Answer(int rank, int socket, const std::string& folder,
            const transport::UcxTransportOptions& transport) {
  SocketExchange exchange(socket);
  std::ifstream commands(absl::StrCat(folder, "/commands.", rank));
  std::ofstream answers;
  if (rank == 0) answers.open(folder + "/answers");
  std::map<std::string, std::unique_ptr<BoxingJob>> jobs;
  std::string line;
  while (std::getline(commands, line) && line != "end") {
    std::istringstream words(line);
    std::string name;
    int64_t bytes = 0, count = 0;
    words >> name >> bytes >> count;
    if (!Boxings().contains(name) || bytes < 4 || count < 1)
      Must(absl::InvalidArgumentError("no such command: " + line));
    std::unique_ptr<BoxingJob>& job = jobs[absl::StrCat(name, " ", bytes)];
    if (job == nullptr)
      job = std::make_unique<BoxingJob>(Boxings().at(name), bytes, rank, &exchange, transport);
    const double seconds = job->Seconds(count);
    if (rank == 0) answers << seconds << std::endl;
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const std::string lanes = argc == 4 ? argv[2] : "", checksum = argc == 4 ? argv[3] : "";
  if ((lanes != "shm" && lanes != "tcp") || (checksum != "checksum" && checksum != "plain")) {
    std::cerr << "usage: collective_bench FOLDER shm|tcp checksum|plain\n";
    return 2;
  }
  weir::transport::UcxTransportOptions transport;
  transport.lanes = lanes == "shm" ? weir::transport::UcxTransportOptions::Lanes::kSharedMemory
                                   : weir::transport::UcxTransportOptions::Lanes::kTcp;
  transport.checksum = checksum == "plain"
                           ? weir::transport::UcxTransportOptions::Checksum::kNone
                           : weir::transport::UcxTransportOptions::Checksum::kCrc32c;
  transport.job_key = "a secret of thirty-two letters..";
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return 1;
  const pid_t other = ::fork();  // before anything has a thread
  const int rank = other == 0 ? 1 : 0;
  if (rank == 1) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(sockets[1 - rank]);
  // Each rank has a core, with all the threads of its process.
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(rank % std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)), &cores);
  (void)::sched_setaffinity(0, sizeof(cores), &cores);
  weir::bench::Answer(rank, sockets[rank], argv[1], transport);
  if (rank == 0) ::waitpid(other, nullptr, 0);
  return 0;
}
