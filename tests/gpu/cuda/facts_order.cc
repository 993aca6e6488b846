// Measures what it costs to order work on a device: launches, events, waits between streams,
// graphs.

#include <string>
#include <vector>

#include "tests/gpu/cuda/facts.h"

namespace weir::gpu {
namespace {

constexpr int kRepeats = 9;
constexpr int kCalls = 1000;

cudaStream_t NewStream() {
  cudaStream_t stream;
  WEIR_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

cudaEvent_t NewEvent(unsigned flags) {
  cudaEvent_t event;
  WEIR_CHECK_CUDA(cudaEventCreateWithFlags(&event, flags));
  return event;
}

// Returns the median over repeats of the nanoseconds that one of `calls` calls takes on the host.
// The stream is idle before each repeat.
template <typename Call>
double HostCost(cudaStream_t stream, int calls, Call call) {
  std::vector<double> costs;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
    const int64_t begin = HostNs();
    for (int i = 0; i < calls; ++i) call(i);
    costs.push_back(static_cast<double>(HostNs() - begin) / calls);
  }
  WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
  return Median(costs);
}

// Returns the median nanoseconds that the device takes for what `queue` puts onto `stream`. A delay
// goes first, so that all of it is queued before the device begins.
template <typename Queue>
double DeviceCost(cudaStream_t stream, int64_t delay_ns, Queue queue) {
  cudaEvent_t begin = NewEvent(cudaEventDefault), end = NewEvent(cudaEventDefault);
  std::vector<double> costs;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    LaunchDelay(stream, delay_ns);
    WEIR_CHECK_CUDA(cudaEventRecord(begin, stream));
    queue();
    WEIR_CHECK_CUDA(cudaEventRecord(end, stream));
    WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
    costs.push_back(ElapsedMs(begin, end) * 1e6);
  }
  WEIR_CHECK_CUDA(cudaEventDestroy(begin));
  WEIR_CHECK_CUDA(cudaEventDestroy(end));
  return Median(costs);
}

// Launches behind a delay until a launch takes longer than 10 ms, and says how many went before it.
void MeasureBlockingLaunch(cudaStream_t stream) {
  constexpr int kMost = 20'000;
  LaunchDelay(stream, 300'000'000);
  int launches = 0;
  for (; launches < kMost; ++launches) {
    const int64_t begin = HostNs();
    LaunchEmpty(stream);
    if (HostNs() - begin > 10'000'000) break;
  }
  WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
  PrintFact("launch.before_one_blocks", launches,
            launches == kMost ? "launches or more" : "launches");
}

}  // namespace

void MeasureLaunches() {
  cudaStream_t stream = NewStream();
  LaunchEmpty(stream);
  PrintFact("launch.empty", HostCost(stream, kCalls, [&](int) { LaunchEmpty(stream); }), "ns");
  PrintFact("launch.empty_500", HostCost(stream, 500, [&](int) { LaunchEmpty(stream); }), "ns");
  const double chain = DeviceCost(stream, 5'000'000, [&] {
    for (int i = 0; i < 500; ++i) LaunchEmpty(stream);
  });
  PrintFact("launch.device_time_each_of_500", chain / 500, "ns");
  MeasureBlockingLaunch(stream);
  PrintFact("clock.host_read", HostCost(stream, kCalls, [](int) { HostNs(); }), "ns");
  WEIR_CHECK_CUDA(cudaStreamDestroy(stream));
}

void MeasureEvents() {
  cudaStream_t a = NewStream(), b = NewStream();
  std::vector<cudaEvent_t> timed, plain;
  for (int i = 0; i < kCalls; ++i) {
    timed.push_back(NewEvent(cudaEventDefault));
    plain.push_back(NewEvent(cudaEventDisableTiming));
  }
  const auto record = [&](std::vector<cudaEvent_t>& events) {
    return HostCost(a, kCalls, [&](int i) { WEIR_CHECK_CUDA(cudaEventRecord(events[i], a)); });
  };
  PrintFact("event.record_with_timing", record(timed), "ns");
  PrintFact("event.record_without_timing", record(plain), "ns");
  PrintFact("event.launch_and_record_without_timing",
            HostCost(a, 500,
                     [&](int i) {
                       LaunchEmpty(a);
                       WEIR_CHECK_CUDA(cudaEventRecord(plain[i], a));
                     }),
            "ns");
  PrintFact("event.query_done",
            HostCost(a, kCalls, [&](int i) { WEIR_CHECK_CUDA(cudaEventQuery(plain[i])); }), "ns");
  LaunchDelay(a, 50'000'000);
  WEIR_CHECK_CUDA(cudaEventRecord(plain[0], a));
  int64_t begin = HostNs();
  int not_ready = 0;
  for (int i = 0; i < kCalls; ++i) not_ready += cudaEventQuery(plain[0]) == cudaErrorNotReady;
  PrintFact("event.query_not_ready", static_cast<double>(HostNs() - begin) / kCalls, "ns");
  PrintFact("event.queries_that_were_not_ready", not_ready, "of 1000");
  WEIR_CHECK_CUDA(cudaDeviceSynchronize());
  begin = HostNs();
  float ms = 0;
  for (int i = 1; i < kCalls; ++i) {
    WEIR_CHECK_CUDA(cudaEventElapsedTime(&ms, timed[i - 1], timed[i]));
  }
  PrintFact("event.elapsed_time_call", static_cast<double>(HostNs() - begin) / (kCalls - 1), "ns");
  PrintFact(
      "stream.wait_event",
      HostCost(b, kCalls, [&](int i) { WEIR_CHECK_CUDA(cudaStreamWaitEvent(b, plain[i], 0)); }),
      "ns");

  // A hop: a kernel on one stream, its event, and a kernel on the other stream that waits for it.
  constexpr int kHops = 100;
  const double hops = DeviceCost(a, 5'000'000, [&] {
    for (int i = 0; i < kHops; ++i) {
      LaunchEmpty(a);
      WEIR_CHECK_CUDA(cudaEventRecord(plain[2 * i], a));
      WEIR_CHECK_CUDA(cudaStreamWaitEvent(b, plain[2 * i], 0));
      LaunchEmpty(b);
      WEIR_CHECK_CUDA(cudaEventRecord(plain[2 * i + 1], b));
      WEIR_CHECK_CUDA(cudaStreamWaitEvent(a, plain[2 * i + 1], 0));
    }
  });
  const double same = DeviceCost(a, 5'000'000, [&] {
    for (int i = 0; i < 2 * kHops; ++i) LaunchEmpty(a);
  });
  PrintFact("stream.kernel_and_hop", hops / (2 * kHops), "ns");
  PrintFact("stream.hop", (hops - same) / (2 * kHops), "ns");
  const double recorded = DeviceCost(a, 5'000'000, [&] {
    for (int i = 0; i < 2 * kHops; ++i) {
      LaunchEmpty(a);
      WEIR_CHECK_CUDA(cudaEventRecord(plain[i], a));
    }
  });
  PrintFact("event.device_time_of_record_without_timing", (recorded - same) / (2 * kHops), "ns");
  const double stamped = DeviceCost(a, 5'000'000, [&] {
    for (int i = 0; i < 2 * kHops; ++i) {
      LaunchEmpty(a);
      WEIR_CHECK_CUDA(cudaEventRecord(timed[i], a));
    }
  });
  PrintFact("event.device_time_of_record_with_timing", (stamped - same) / (2 * kHops), "ns");
  for (cudaEvent_t event : timed) WEIR_CHECK_CUDA(cudaEventDestroy(event));
  for (cudaEvent_t event : plain) WEIR_CHECK_CUDA(cudaEventDestroy(event));
  WEIR_CHECK_CUDA(cudaStreamDestroy(a));
  WEIR_CHECK_CUDA(cudaStreamDestroy(b));
}

void MeasureGraphs() {
  cudaStream_t stream = NewStream();
  for (int nodes : {10, 100, 1000}) {
    const std::string name = "graph." + std::to_string(nodes) + "_nodes.";
    cudaGraph_t graph;
    WEIR_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; ++i) LaunchEmpty(stream);
    WEIR_CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t program;
    int64_t begin = HostNs();
    WEIR_CHECK_CUDA(cudaGraphInstantiate(&program, graph, 0));
    PrintFact(name + "instantiate", (HostNs() - begin) * 1e-3, "us");
    begin = HostNs();
    WEIR_CHECK_CUDA(cudaGraphUpload(program, stream));
    WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
    PrintFact(name + "upload", (HostNs() - begin) * 1e-3, "us");
    const double host =
        HostCost(stream, 1, [&](int) { WEIR_CHECK_CUDA(cudaGraphLaunch(program, stream)); });
    PrintFact(name + "launch", host * 1e-3, "us");
    PrintFact(name + "launch_each", host / nodes, "ns per node");
    const double device =
        DeviceCost(stream, 2'000'000, [&] { WEIR_CHECK_CUDA(cudaGraphLaunch(program, stream)); });
    PrintFact(name + "device_time_each", device / nodes, "ns per node");
    WEIR_CHECK_CUDA(cudaGraphExecDestroy(program));
    WEIR_CHECK_CUDA(cudaGraphDestroy(graph));
  }
  WEIR_CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace weir::gpu
