// The CUDA runtime emulated on the host, with one GPU: for tests on any machine. What is put into a
// stream is done late, in an order that is drawn from a seed among those that streams and events
// allow: each question whether an event is done may let one stream do a step. An operation begins
// and ends in two steps, and other streams may work in between. A copy that has begun and not ended
// shows as bytes 0xff at its destination. Memory of the device is walled (walled_memory.h): host
// code that touches it dies. New memory has bytes 0xff, as CUDA's is undefined.
//
// An event is the latest of its records, as in CUDA: a stream that waits has waited for the record
// that was the latest when the wait was put there. An event that was never recorded is done.
//
// Work that waits for other devices (EmulatedStream::PutAttempts) is tried at each step of its
// stream, and the other streams go on meanwhile.
//
// Free and FreeHost wait for all streams, as in CUDA.
//
// A capture has the rules of CUDA's thread-local mode. While a stream captures, its thread must not
// allocate, free or register memory, nor wait for the stream or ask about an event that was
// recorded in the capture: such a call fails, and memory calls end the capture with an error. A
// wait for work outside of the capture ends it, too. A stream that waits for an event of the
// capture joins the capture, and must be awaited by the first stream before the end. The work of a
// graph that is destroyed before its launch has ended is lost.
//
// Thread rule: Malloc, MallocHost and the registration of memory by any thread; all else by one
// thread at a time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/device/cuda/cuda_api.h"
#include "runtime/device/cuda/emulated_graph.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/walled_memory.h"

namespace weir::device {

class EmulatedCudaApi : public CudaApi {
 public:
  explicit EmulatedCudaApi(uint64_t seed);
  // Returns how many graphs the emulations of this process have launched.
  static int64_t NumGraphLaunches();
  ~EmulatedCudaApi() override;

  std::string TextOf(CudaResult result) const override;
  CudaResult GetVersions(int* driver, int* runtime) override;
  CudaResult CountDevices(int* count) override;
  CudaResult GetFacts(int device, GpuFacts* facts) override;
  CudaResult SetDevice(int device) override;
  CudaResult GetMemory(int64_t* free_bytes, int64_t* all) override;
  CudaResult Malloc(char** base, int64_t bytes) override;
  CudaResult Free(char* base) override { return Forget(base); }
  CudaResult MallocHost(char** base, int64_t bytes) override;
  CudaResult FreeHost(char* base) override { return Forget(base); }
  CudaResult RegisterHost(char* base, int64_t bytes) override;
  CudaResult UnregisterHost(char* base) override;
  bool IsReachable(const char* host) override;
  CudaResult CreateStream(Priority priority, CudaStream* stream) override;
  CudaResult DestroyStream(CudaStream stream) override;
  CudaResult SynchronizeStream(CudaStream stream) override;
  CudaResult CreateEvent(CudaEvent* event) override;
  CudaResult DestroyEvent(CudaEvent event) override;
  CudaResult RecordEvent(CudaEvent event, CudaStream stream) override;
  CudaResult QueryEvent(CudaEvent event) override;
  CudaResult WaitEvent(CudaStream stream, CudaEvent event) override;
  CudaResult ElapsedMs(CudaEvent from, CudaEvent to, float* ms) override;
  CudaResult Copy(void* to, const void* from, int64_t bytes, CudaStream stream) override;
  CudaResult Zero(void* at, int64_t bytes, CudaStream stream) override;
  CudaResult BeginCapture(CudaStream stream) override;
  CudaResult LastCaptured(CudaStream stream, CudaNode* node) override;
  CudaResult EndCapture(CudaStream stream, CudaGraph* graph) override;
  CudaResult DestroyGraph(CudaGraph graph) override;
  CudaResult Instantiate(CudaGraph graph, CudaGraphExec* exec) override;
  CudaResult DestroyExec(CudaGraphExec exec) override;
  CudaResult SetKernel(CudaGraphExec exec, CudaNode node, const KernelLaunch& launch) override;
  CudaResult LaunchGraph(CudaGraphExec exec, CudaStream stream) override;
  CudaResult LastError() override { return CudaResult::kSuccess; }

 private:
  class Stream;
  // One record of an event.
  struct Record {
    Stream* stream = nullptr;
    bool done = false;
    int64_t at_ns = 0;
  };
  struct Event {
    std::shared_ptr<Record> latest;  // null: never recorded
    // The latest record is one of a capture: it, and the nodes behind which it stands.
    std::shared_ptr<EmulatedCapture> captured;
    std::vector<size_t> behind;
  };
  struct Operation {
    std::function<void()> begin, run;
    std::shared_ptr<Record> awaited;         // or nothing but a wait
    std::function<bool()> attempt;           // or nothing but attempts
    std::shared_ptr<EmulatedReplay> replay;  // or nothing but a launch of a graph
  };

  Stream* Find(CudaStream stream) const;
  Event* Find(CudaEvent event) const;
  void Finish(Stream& stream);
  // Returns kSuccess unless a capture of this thread forbids calls that concern memory.
  CudaResult CheckNoCapture();
  CudaResult Keep(absl::StatusOr<DeviceBlock> block, char** base);
  CudaResult Forget(char* base);

  const uint64_t seed_;
  uint64_t num_draws_ = 0;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::map<void*, std::unique_ptr<Event>> events_;
  std::map<void*, std::unique_ptr<EmulatedGraph>> graphs_;
  std::map<void*, std::unique_ptr<EmulatedExec>> execs_;
  WalledMemory memory_;
  Mutex mutex_;
  std::map<char*, DeviceBlock> blocks_ ABSL_GUARDED_BY(mutex_);
  std::map<char*, int64_t> registered_ ABSL_GUARDED_BY(mutex_);  // and its bytes
};

}  // namespace weir::device
