// Tries NCCL on one GPU: a communicator of one rank, and two processes that share the GPU.
//
//   nccl_facts LIBRARY one     a communicator of one rank: init, all-reduce, capture into a graph,
//   abort nccl_facts LIBRARY pair    two processes on the one GPU, each a host of its own to NCCL,
//   over loopback sockets
//
// NCCL refuses two ranks of one host on one GPU. It takes the host's name from NCCL_HOSTID, so each
// process gets a name of its own. The two processes share the GPU by time slices: the times of
// `pair` say that it works, never how fast NCCL is. Each fact is a line of JSON as in facts.h. A
// result that differs from the known numbers ends the program with exit code 1.

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/collective/nccl_api.h"
#include "tests/gpu/cuda/facts.h"

namespace weir::gpu {
namespace {

constexpr size_t kElements = 65'536;
constexpr int kRounds = 10;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLongestWait = 20 * kSecond;

using collective::NcclComm;
using collective::NcclConfig;
using collective::NcclDataType;
using collective::NcclFunctions;
using collective::NcclRedOp;
using collective::NcclResult;
using collective::NcclStream;
using collective::NcclUniqueId;

constexpr NcclDataType kFloat32 = NcclDataType::kFloat32;

template <typename Function>
void FindCall(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return;
  std::fprintf(stderr, "nccl_facts: the library has no %s. Expected NCCL 2.18 or later.\n", name);
  std::exit(1);
}

// Opens the library and finds the calls that are used here.
NcclFunctions OpenNccl(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "nccl_facts: cannot open %s: %s\n", path, dlerror());
    std::exit(66);
  }
  NcclFunctions nccl;
  FindCall(library, "ncclGetVersion", &nccl.GetVersion);
  FindCall(library, "ncclGetUniqueId", &nccl.GetUniqueId);
  FindCall(library, "ncclCommInitRankConfig", &nccl.CommInitRankConfig);
  FindCall(library, "ncclCommGetAsyncError", &nccl.CommGetAsyncError);
  FindCall(library, "ncclCommAbort", &nccl.CommAbort);
  FindCall(library, "ncclGetErrorString", &nccl.GetErrorString);
  FindCall(library, "ncclGroupStart", &nccl.GroupStart);
  FindCall(library, "ncclGroupEnd", &nccl.GroupEnd);
  FindCall(library, "ncclAllReduce", &nccl.AllReduce);
  FindCall(library, "ncclReduceScatter", &nccl.ReduceScatter);
  FindCall(library, "ncclAllGather", &nccl.AllGather);
  FindCall(library, "ncclSend", &nccl.Send);
  FindCall(library, "ncclRecv", &nccl.Recv);
  return nccl;
}

// A rank of a non-blocking communicator, with its stream and two buffers of 2 * kElements floats.
class Rank {
 public:
  Rank(const NcclFunctions& nccl, int rank, int num_ranks)
      : nccl_(nccl), rank_(rank), num_ranks_(num_ranks) {
    WEIR_CHECK_CUDA(cudaSetDevice(0));
    WEIR_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    WEIR_CHECK_CUDA(cudaMalloc(&from_, 2 * kElements * sizeof(float)));
    WEIR_CHECK_CUDA(cudaMalloc(&to_, 2 * kElements * sizeof(float)));
    prefix_ = num_ranks == 1 ? "nccl.one." : "nccl.pair." + std::to_string(rank) + ".";
  }

  void Init(const NcclUniqueId& id, const char* fact) {
    NcclConfig config;
    config.blocking = 0;
    const int64_t begin = HostNs();
    Finish(nccl_.CommInitRankConfig(&communicator_, num_ranks_, id, rank_, &config),
           "ncclCommInitRankConfig");
    PrintFact(prefix_ + fact, (HostNs() - begin) * 1e-6, "ms");
  }

  // Runs `call` kRounds times with known numbers, checks each result, and prints the median time.
  // `Expected(round, i)` is element i of the result, which has `num_results` elements.
  template <typename Call, typename Expected>
  void Try(const char* name, size_t num_results, Call call, Expected expected) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      Put(round);
      const int64_t begin = HostNs();
      Finish(call(), name);
      WaitForStream(name);
      times.push_back((HostNs() - begin) * 1e-6);
      Compare(name, round, num_results, expected);
    }
    PrintFact(prefix_ + name, Median(times), "ms");
    PrintFact(prefix_ + name + ".right", kRounds, "rounds");
  }

  void TryAll() {
    const auto sum = [this](int round, size_t i) { return Sum(round, i); };
    const auto n = static_cast<size_t>(num_ranks_);
    Try(
        "all_reduce", kElements,
        [this] {
          return nccl_.AllReduce(from_, to_, kElements, kFloat32, NcclRedOp::kSum, communicator_,
                                 Queue());
        },
        sum);
    Try(
        "reduce_scatter", kElements / n,
        [this, n] {
          return nccl_.ReduceScatter(from_, to_, kElements / n, kFloat32, NcclRedOp::kSum,
                                     communicator_, Queue());
        },
        [this, n, sum](int round, size_t i) { return sum(round, rank_ * (kElements / n) + i); });
    Try(
        "all_gather", kElements * n,
        [this] { return nccl_.AllGather(from_, to_, kElements, kFloat32, communicator_, Queue()); },
        [](int round, size_t i) {
          return Number(static_cast<int>(i / kElements), round, i % kElements);
        });
    const int peer = num_ranks_ - 1 - rank_;
    Try(
        "send_and_receive", kElements,
        [this, peer] {
          nccl_.GroupStart();
          nccl_.Send(from_, kElements, kFloat32, peer, communicator_, Queue());
          nccl_.Recv(to_, kElements, kFloat32, peer, communicator_, Queue());
          return nccl_.GroupEnd();
        },
        [peer](int round, size_t i) { return Number(peer, round, i); });
  }

  // Captures an all-reduce into a graph, and launches the graph.
  void TryCapture() {
    cudaGraph_t graph;
    cudaGraphExec_t program;
    WEIR_CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    Finish(
        nccl_.AllReduce(from_, to_, kElements, kFloat32, NcclRedOp::kSum, communicator_, Queue()),
        "ncclAllReduce in a capture");
    WEIR_CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    WEIR_CHECK_CUDA(cudaGraphInstantiate(&program, graph, 0));
    Try(
        "captured_all_reduce", kElements,
        [&] {
          WEIR_CHECK_CUDA(cudaGraphLaunch(program, stream_));
          return NcclResult::kSuccess;
        },
        [this](int round, size_t i) { return Sum(round, i); });
    WEIR_CHECK_CUDA(cudaGraphExecDestroy(program));
    WEIR_CHECK_CUDA(cudaGraphDestroy(graph));
  }

  // Leaves an all-reduce in flight and aborts. In a pair, rank 1 never joins that all-reduce.
  void TryAbort() {
    if (rank_ == 0) {
      Finish(
          nccl_.AllReduce(from_, to_, kElements, kFloat32, NcclRedOp::kSum, communicator_, Queue()),
          "ncclAllReduce before the abort");
      usleep(300'000);
      PrintText(prefix_ + "in_flight_before_abort",
                cudaStreamQuery(stream_) == cudaErrorNotReady ? "yes" : "no");
    } else {
      usleep(600'000);
    }
    const int64_t begin = HostNs();
    const NcclResult code = nccl_.CommAbort(communicator_);
    PrintFact(prefix_ + "abort", (HostNs() - begin) * 1e-6, "ms");
    PrintText(prefix_ + "abort.code", nccl_.GetErrorString(code));
    WaitForStream("the stream after the abort");
    PrintFact(prefix_ + "abort_and_stream_idle", (HostNs() - begin) * 1e-6, "ms");
    PrintText(prefix_ + "device_after_abort", cudaGetErrorName(cudaDeviceSynchronize()));
  }

  // Gives up the communicator, with nothing in flight.
  void Abort() { nccl_.CommAbort(communicator_); }

 private:
  NcclStream* Queue() const { return reinterpret_cast<NcclStream*>(stream_); }

  static float Number(int rank, int round, size_t i) {
    return static_cast<float>(i % 1000 + 3 * rank + 7 * round);
  }

  float Sum(int round, size_t i) const {
    float total = 0;
    for (int rank = 0; rank < num_ranks_; ++rank) total += Number(rank, round, i);
    return total;
  }

  // Polls a call of the non-blocking communicator until it is through.
  void Finish(NcclResult code, const char* what) {
    const int64_t deadline = HostNs() + kLongestWait;
    while (code == NcclResult::kInProgress) {
      if (HostNs() > deadline) Fail(what, "takes more than 20 s");
      if (nccl_.CommGetAsyncError(communicator_, &code) != NcclResult::kSuccess)
        Fail(what, "has no state");
    }
    if (code != NcclResult::kSuccess) Fail(what, nccl_.GetErrorString(code));
  }

  void WaitForStream(const char* what) {
    const int64_t deadline = HostNs() + kLongestWait;
    cudaError_t code;
    while ((code = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
      if (HostNs() > deadline) Fail(what, "takes more than 20 s on the device");
    }
    if (code != cudaSuccess) Fail(what, cudaGetErrorName(code));
  }

  void Put(int round) {
    std::vector<float> numbers(kElements);
    for (size_t i = 0; i < kElements; ++i) numbers[i] = Number(rank_, round, i);
    const size_t bytes = kElements * sizeof(float);
    WEIR_CHECK_CUDA(cudaMemcpy(from_, numbers.data(), bytes, cudaMemcpyHostToDevice));
    WEIR_CHECK_CUDA(cudaMemset(to_, 0xFF, 2 * bytes));
    WEIR_CHECK_CUDA(cudaDeviceSynchronize());
  }

  template <typename Expected>
  void Compare(const char* what, int round, size_t num_results, Expected expected) {
    std::vector<float> results(num_results);
    WEIR_CHECK_CUDA(
        cudaMemcpy(results.data(), to_, num_results * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < num_results; ++i) {
      if (results[i] == expected(round, i)) continue;
      std::fprintf(stderr,
                   "nccl_facts: rank %d, %s, round %d, element %zu: expected %g, found %g\n", rank_,
                   what, round, i, expected(round, i), results[i]);
      std::exit(1);
    }
  }

  [[noreturn]] void Fail(const char* what, const char* why) {
    std::fprintf(stderr, "nccl_facts: rank %d of %d: %s: %s\n", rank_, num_ranks_, what, why);
    PrintText(prefix_ + "failed", std::string(what) + ": " + why);
    std::_Exit(1);
  }

  const NcclFunctions& nccl_;
  const int rank_;
  const int num_ranks_;
  std::string prefix_;
  cudaStream_t stream_ = nullptr;
  NcclComm* communicator_ = nullptr;
  void* from_ = nullptr;
  void* to_ = nullptr;
};

NcclUniqueId NewId(const NcclFunctions& nccl) {
  NcclUniqueId id;
  const NcclResult code = nccl.GetUniqueId(&id);
  if (code == NcclResult::kSuccess) return id;
  std::fprintf(stderr, "nccl_facts: ncclGetUniqueId failed: %s\n", nccl.GetErrorString(code));
  std::exit(1);
}

void TryOne(const char* library) {
  const NcclFunctions nccl = OpenNccl(library);
  int version = 0;
  nccl.GetVersion(&version);
  PrintFact("nccl.version", version, "10000 * major + 100 * minor + patch");
  Rank rank(nccl, 0, 1);
  rank.Init(NewId(nccl), "init");
  rank.TryAll();
  rank.TryAbort();
  rank.Init(NewId(nccl), "init_after_abort");
  rank.TryAll();
  rank.TryCapture();
  rank.Abort();
}

// One process of the pair. Rank 0 writes the ids of the two communicators into `pipe`, rank 1 reads
// them.
void TryRank(const char* library, int number, int pipe) {
  const NcclFunctions nccl = OpenNccl(library);
  Rank rank(nccl, number, 2);
  for (const char* fact : {"init", "init_after_abort"}) {
    NcclUniqueId id;
    if (number == 0) id = NewId(nccl);
    const ssize_t bytes = number == 0 ? write(pipe, &id, sizeof(id)) : read(pipe, &id, sizeof(id));
    if (bytes != static_cast<ssize_t>(sizeof(id))) {
      std::fprintf(stderr, "nccl_facts: rank %d: the other process is gone\n", number);
      std::exit(1);
    }
    rank.Init(id, fact);
    rank.TryAll();
    if (std::strcmp(fact, "init") == 0) rank.TryAbort();
  }
  rank.TryCapture();
  rank.Abort();
}

pid_t StartRank(const char* program, const char* library, int number, int pipe) {
  const pid_t child = fork();
  if (child != 0) return child;
  const std::string host = "weir-gpu-facts-" + std::to_string(number);
  const std::pair<const char*, const char*> settings[] = {
      {"NCCL_HOSTID", host.c_str()}, {"NCCL_P2P_DISABLE", "1"},       {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_IB_DISABLE", "1"},      {"NCCL_NET", "Socket"},          {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_ALGO", "Ring"},         {"NCCL_PROTO", "Simple"},        {"NCCL_MAX_NCHANNELS", "2"},
      {"NCCL_NVLS_ENABLE", "0"},     {"CUDA_MODULE_LOADING", "EAGER"}};
  for (const auto& [name, value] : settings) setenv(name, value, 1);
  setenv("NCCL_DEBUG", "WARN", 0);
  const std::string rank = std::to_string(number), descriptor = std::to_string(pipe);
  execl(program, program, library, "rank", rank.c_str(), descriptor.c_str(), nullptr);
  std::perror("nccl_facts: cannot start a rank");
  std::_Exit(70);
}

// Starts the two processes, waits for them, and kills them after `seconds`. Returns the exit code.
int TryPair(const char* program, const char* library, int seconds) {
  int ends[2];
  if (pipe(ends) != 0) {
    std::perror("nccl_facts: cannot make a pipe");
    return 69;
  }
  pid_t children[2] = {StartRank(program, library, 0, ends[1]),
                       StartRank(program, library, 1, ends[0])};
  close(ends[0]);
  close(ends[1]);
  const int64_t deadline = HostNs() + seconds * kSecond;
  int running = 2, result = 0;
  while (running > 0) {
    for (pid_t& child : children) {
      int status = 0;
      if (child <= 0 || waitpid(child, &status, WNOHANG) != child) continue;
      child = 0;
      --running;
      if (status != 0) result = 1;
    }
    if (HostNs() > deadline) {
      std::fprintf(stderr, "nccl_facts: the pair takes more than %d s; both processes end now\n",
                   seconds);
      for (pid_t child : children) {
        if (child > 0) kill(child, SIGKILL);
      }
      PrintText("nccl.pair.failed", "out of time");
      return 1;
    }
    usleep(10'000);
  }
  PrintText("nccl.pair", result == 0 ? "ok" : "failed");
  return result;
}

}  // namespace

int RunNcclFacts(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[2] : "";
  if (mode == "one" && argc == 3) {
    TryOne(argv[1]);
    return 0;
  }
  if (mode == "pair" && argc == 3) return TryPair("/proc/self/exe", argv[1], 40);
  if (mode == "rank" && argc == 5) {
    TryRank(argv[1], std::atoi(argv[3]), std::atoi(argv[4]));
    return 0;
  }
  std::fprintf(stderr, "Usage: nccl_facts LIBRARY one|pair\n");
  return 2;
}

}  // namespace weir::gpu

int main(int argc, char** argv) { return weir::gpu::RunNcclFacts(argc, argv); }
