#include "ops/kernels/cuda/emulation/emulation.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ops/kernels/cuda/emulation/fiber.h"
#include "ops/kernels/cuda/emulation/thread_order.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace weir::kernels::cuda_emulated {

thread_local constinit uint3 threadIdx{};
thread_local constinit uint3 blockIdx{};
thread_local constinit dim3 blockDim{};
thread_local constinit dim3 gridDim{};

namespace {

// The order is read when a launch starts, so relaxed accesses suffice.
std::atomic<uint64_t> thread_order = ThreadOrder::kFirstDrawn;

}  // namespace

void SetThreadOrder(uint64_t order) { thread_order.store(order, std::memory_order_relaxed); }

namespace emulation {
namespace {

constexpr int kLanes = 32;
constexpr unsigned kFullMask = 0xffffffffu;

// Limits of a GPU of compute capability 9.0.
constexpr unsigned kThreadsMax = 1024;
constexpr size_t kSharedBytesMax = 227 * 1024;

std::string TextOf(const Place& place) {
  return std::string(place.file_name()) + ":" + std::to_string(place.line()) + " (" +
         place.function_name() + ")";
}

std::string TextOf(unsigned x, unsigned y, unsigned z) {
  return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

bool SameLine(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

[[noreturn]] void Stop(const std::string& message) {
  std::fprintf(stderr, "emulated CUDA: %s\n", message.c_str());
  std::abort();
}

[[noreturn]] void Stop(const LaunchShape& shape, const std::string& message) {
  Stop(message + "\n  launch at " + TextOf(shape.place) + ", blocks of " +
       TextOf(shape.threads.x, shape.threads.y, shape.threads.z) + " threads");
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}
  // Returns a number below `bound`.
  uint64_t Below(uint64_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint64_t>((static_cast<unsigned __int128>(state_) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

// The shared memory of a block, with bytes before and behind it that a kernel must not write.
class SharedBlock {
 public:
  void Start(size_t bytes) {
    used_ = false;
    bytes_ = bytes;
    const size_t needed = kGuard + bytes + kGuard + kAlignment;
#ifdef __SANITIZE_ADDRESS__
    if (!memory_.empty()) ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size());
#endif
    if (memory_.size() < needed) memory_.resize(needed);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ =
        memory_.data() + ((address + kAlignment - 1) / kAlignment * kAlignment - address) + kGuard;
    std::memset(data_, 0xff, bytes);
    for (size_t i = 0; i < kGuard; i += sizeof(kPattern)) {
      std::memcpy(data_ - kGuard + i, &kPattern, sizeof(kPattern));
      std::memcpy(data_ + bytes + i, &kPattern, sizeof(kPattern));
    }
#ifdef __SANITIZE_ADDRESS__
    ASAN_POISON_MEMORY_REGION(data_ - kGuard, kGuard);
    ASAN_POISON_MEMORY_REGION(data_ + bytes, kGuard);
#endif
  }

  char* Use() {
    used_ = true;
    return data_;
  }
  size_t bytes() const { return bytes_; }

  // Returns whether the `guard` bytes on both sides are as they were.
  bool Intact(size_t guard) const {
#ifdef __SANITIZE_ADDRESS__
    return true;  // a write has stopped the program already
#else
    if (!used_) return true;
    for (size_t i = 0; i < guard; i += sizeof(kPattern)) {
      if (std::memcmp(data_ - guard + i, &kPattern, sizeof(kPattern)) != 0 ||
          std::memcmp(data_ + bytes_ + i, &kPattern, sizeof(kPattern)) != 0)
        return false;
    }
    return true;
#endif
  }

  static constexpr size_t kGuard = 1024;
  static constexpr size_t kNearGuard = 64;

 private:
  static constexpr size_t kAlignment = 128;
  // NaNs of f32 and of bf16, so that a result which depends on a byte beyond shows it, too.
  static constexpr uint64_t kPattern = 0xffcbffcbffcbffcbu;

  std::vector<char> memory_;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  bool used_ = false;
};

enum class Stage : uint8_t { kReady, kRuns, kAtBarrier, kInWarp, kEnded };

struct Thread {
  Stage stage = Stage::kReady;
  Fiber* fiber = nullptr;  // null until it starts, and after its end
  Place place;             // where it waits
};

// A warp's operation that lanes have come to.
struct Warp {
  int arrived = 0;
  unsigned generation = 0;  // of operations
  Place place;              // of the first lane that came
  const char* operation = nullptr;
  std::array<uint64_t, kLanes> values[2];  // of even and odd generations
};

// Runs launches, one block at a time.
class Engine {
 public:
  void Run(const LaunchShape& shape, void (*thread)(const void*), const void* closure);

  void Barrier(Place place);
  const uint64_t* Exchange(unsigned mask, uint64_t value, const char* operation, Place place);
  unsigned lane() const { return current_ % kLanes; }
  void* UseShared() { return shared_.Use(); }
  [[noreturn]] void StopInThread(const std::string& message) const;

 private:
  void RunBlock();
  // Runs threads that have not begun, on one fiber after the other.
  static void FiberBody(void* engine);
  // Leaves the thread that runs for the next one; returns when its turn has come again.
  void Wait();
  void Enter(unsigned number);
  // Takes the next thread from the ready ones. False if all threads of the block have ended.
  bool TakeNext(unsigned* number);
  [[noreturn]] void StopAtDeadlock() const;
  void CheckGuards(size_t guard) const;

  // Puts `count` numbers from `first` on into `order`, in the launch's order.
  void Order(unsigned first, unsigned count);
  void PushBack() {
    for (unsigned number : order_) ready_[(ready_begin_ + num_ready_++) & kReadyMask] = number;
  }
  void PushFront() {
    for (size_t i = order_.size(); i-- > 0;) {
      ready_begin_ = (ready_begin_ - 1) & kReadyMask;
      ready_[ready_begin_] = order_[i];
      ++num_ready_;
    }
  }

  uint3 IndexOf(unsigned number) const {
    const dim3& size = shape_.threads;
    return {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
  }
  std::string NameOf(unsigned number) const {
    const uint3 index = IndexOf(number);
    return "thread " + TextOf(index.x, index.y, index.z);
  }
  std::string BlockName() const { return "block " + TextOf(blockIdx.x, blockIdx.y, blockIdx.z); }
  // Says where a thread that does not run is.
  std::string WhereaboutsOf(unsigned number) const;

  // These belong to the launch.
  LaunchShape shape_;
  void (*thread_)(const void*) = nullptr;
  const void* closure_ = nullptr;
  uint64_t seed_ = 0;
  Random random_{0};
  unsigned num_threads_ = 0;
  bool runs_ = false;

  // These belong to the block.
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  unsigned num_ended_ = 0;
  unsigned num_at_barrier_ = 0;
  unsigned first_at_barrier_ = 0;
  unsigned current_ = 0;  // the thread that runs
  SharedBlock shared_;

  // Threads that can run, in the order in which they will: a ring.
  static constexpr unsigned kReadyMask = 2 * kThreadsMax - 1;
  std::array<unsigned, kReadyMask + 1> ready_;
  unsigned ready_begin_ = 0;
  unsigned num_ready_ = 0;
  std::vector<unsigned> order_;

  Fiber host_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  Fiber* running_ = nullptr;
};

void Engine::Run(const LaunchShape& shape, void (*thread)(const void*), const void* closure) {
  if (runs_) Stop(shape, "a launch starts inside a launch");
  runs_ = true;
  shape_ = shape;
  thread_ = thread;
  closure_ = closure;
  seed_ = thread_order.load(std::memory_order_relaxed);
  num_threads_ = shape.threads.x * shape.threads.y * shape.threads.z;
  blockDim = shape.threads;
  gridDim = shape.blocks;
  const uint64_t num_blocks = uint64_t{shape.blocks.x} * shape.blocks.y * shape.blocks.z;
  random_ = Random(seed_ ^ (num_blocks << 20) ^ num_threads_);

  // first + i * stride (modulo the number of blocks) names every block once.
  uint64_t first = 0;
  uint64_t stride = 1;
  if (seed_ == ThreadOrder::kDescending) {
    first = num_blocks - 1;
    stride = num_blocks - 1;
  } else if (seed_ != ThreadOrder::kAscending) {
    first = random_.Below(num_blocks);
    do stride = 1 + random_.Below(num_blocks);
    while (std::gcd(stride, num_blocks) != 1);
  }
  uint64_t block = first;
  for (uint64_t i = 0; i < num_blocks; ++i) {
    blockIdx = {static_cast<unsigned>(block % shape.blocks.x),
                static_cast<unsigned>(block / shape.blocks.x % shape.blocks.y),
                static_cast<unsigned>(block / (uint64_t{shape.blocks.x} * shape.blocks.y))};
    RunBlock();
    block = (block + stride) % num_blocks;
  }
  runs_ = false;
}

void Engine::RunBlock() {
  threads_.assign(num_threads_, Thread());
  warps_.resize((num_threads_ + kLanes - 1) / kLanes);
  for (Warp& warp : warps_) warp.arrived = 0;
  num_ended_ = 0;
  num_at_barrier_ = 0;
  shared_.Start(shape_.shared_bytes);
  ready_begin_ = 0;
  num_ready_ = 0;
  Order(0, num_threads_);
  PushBack();
  unsigned number = 0;
  TakeNext(&number);
  current_ = number;
  running_ = &host_;
  Enter(number);  // returns when the block has ended
  CheckGuards(SharedBlock::kGuard);
}

void Engine::FiberBody(void* context) {
  auto* engine = static_cast<Engine*>(context);
  Fiber* const self = engine->running_;
  for (;;) {
    Thread& thread = engine->threads_[engine->current_];
    thread.fiber = self;
    thread.stage = Stage::kRuns;
    threadIdx = engine->IndexOf(engine->current_);
    engine->thread_(engine->closure_);
    engine->CheckGuards(SharedBlock::kNearGuard);
    Thread& ended = engine->threads_[engine->current_];
    ended.stage = Stage::kEnded;
    ended.fiber = nullptr;
    ++engine->num_ended_;
    unsigned next = 0;
    if (!engine->TakeNext(&next)) {
      engine->free_fibers_.push_back(self);
      engine->running_ = &engine->host_;
      self->SwitchTo(&engine->host_);
    } else if (engine->threads_[next].fiber) {
      engine->free_fibers_.push_back(self);
      engine->Enter(next);
    } else {
      engine->current_ = next;  // on this same fiber
    }
  }
}

void Engine::Enter(unsigned number) {
  current_ = number;
  Thread& thread = threads_[number];
  Fiber* fiber = thread.fiber;
  if (fiber) {
    thread.stage = Stage::kRuns;
    threadIdx = IndexOf(number);
  } else if (free_fibers_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&Engine::FiberBody, this));
    fiber = fibers_.back().get();
  } else {
    fiber = free_fibers_.back();
    free_fibers_.pop_back();
  }
  Fiber* const self = running_;
  running_ = fiber;
  if (fiber != self) self->SwitchTo(fiber);
}

void Engine::Wait() {
  CheckGuards(SharedBlock::kNearGuard);
  unsigned next = 0;
  TakeNext(&next);
  Enter(next);
}

bool Engine::TakeNext(unsigned* number) {
  if (num_ready_ == 0) {
    if (num_ended_ == num_threads_) return false;
    StopAtDeadlock();
  }
  *number = ready_[ready_begin_];
  ready_begin_ = (ready_begin_ + 1) & kReadyMask;
  --num_ready_;
  return true;
}

void Engine::Order(unsigned first, unsigned count) {
  order_.resize(count);
  for (unsigned i = 0; i < count; ++i)
    order_[i] = seed_ == ThreadOrder::kDescending ? first + count - 1 - i : first + i;
  if (seed_ < ThreadOrder::kFirstDrawn) return;
  for (unsigned i = count; i > 1; --i) std::swap(order_[i - 1], order_[random_.Below(i)]);
}

void Engine::Barrier(Place place) {
  Thread& thread = threads_[current_];
  if (num_at_barrier_ == 0) {
    first_at_barrier_ = current_;
  } else if (const Place& other = threads_[first_at_barrier_].place; !SameLine(place, other)) {
    StopInThread("divergent barrier: the thread waits in __syncthreads at " + TextOf(place) +
                 ", and " + NameOf(first_at_barrier_) + " at " + TextOf(other) +
                 ".\n  All threads of a block must come to the same barrier: look for a condition "
                 "around it that is not the same for all of them.");
  }
  thread.stage = Stage::kAtBarrier;
  thread.place = place;
  if (++num_at_barrier_ == num_threads_) {
    num_at_barrier_ = 0;
    for (Thread& waiting : threads_) waiting.stage = Stage::kReady;
    Order(0, num_threads_);
    PushBack();
  }
  Wait();
}

const uint64_t* Engine::Exchange(unsigned mask, uint64_t value, const char* operation,
                                 Place place) {
  const unsigned first = current_ / kLanes * kLanes;
  const auto name = [&] { return std::string(operation) + " at " + TextOf(place); };
  if (mask != kFullMask) {
    char text[16];
    std::snprintf(text, sizeof(text), "%#x", mask);
    StopInThread(name() + " has mask " + text +
                 ".\n  The emulation takes only the full mask 0xffffffff: let all lanes of the "
                 "warp come, and choose values for those that have none.");
  }
  if (first + kLanes > num_threads_) {
    StopInThread(name() + ": the warp has only " + std::to_string(num_threads_ - first) +
                 " lanes.\n  Launch blocks of a multiple of 32 threads.");
  }
  Warp& warp = warps_[current_ / kLanes];
  if (warp.arrived == 0) {
    warp.place = place;
    warp.operation = operation;
  } else if (!SameLine(place, warp.place)) {
    StopInThread("divergent warp: the thread comes to " + name() + ", and other lanes wait at " +
                 warp.operation + " at " + TextOf(warp.place) +
                 ".\n  All lanes of a warp must come to the same operation: look for a condition "
                 "around it that is not the same for all of them.");
  }
  Thread& thread = threads_[current_];
  thread.stage = Stage::kInWarp;
  thread.place = place;
  const uint64_t* values = warp.values[warp.generation % 2].data();
  warp.values[warp.generation % 2][lane()] = value;
  if (++warp.arrived == kLanes) {
    warp.arrived = 0;
    ++warp.generation;
    for (unsigned i = first; i < first + kLanes; ++i) threads_[i].stage = Stage::kReady;
    Order(first, kLanes);
    // Drawn orders mix the warps; the others run a warp for as long as it can.
    seed_ >= ThreadOrder::kFirstDrawn&& random_.Below(2) == 0 ? PushBack() : PushFront();
  }
  Wait();
  return values;
}

std::string Engine::WhereaboutsOf(unsigned number) const {
  const Thread& thread = threads_[number];
  switch (thread.stage) {
    case Stage::kAtBarrier: return "waits in __syncthreads at " + TextOf(thread.place);
    case Stage::kInWarp: {
      const Warp& warp = warps_[number / kLanes];
      return std::string("waits in ") + warp.operation + " at " + TextOf(thread.place);
    }
    case Stage::kEnded: return "has ended";
    case Stage::kReady:
    case Stage::kRuns: break;
  }
  return "runs";
}

void Engine::StopAtDeadlock() const {
  // A lane that waits for its warp names the fault better than a barrier that waits for the lane.
  unsigned waiting = num_threads_;
  for (unsigned i = 0; i < num_threads_; ++i) {
    const Stage stage = threads_[i].stage;
    if (stage == Stage::kInWarp) {
      waiting = i;
      break;
    }
    if (stage == Stage::kAtBarrier && waiting == num_threads_) waiting = i;
  }
  const bool warp = threads_[waiting].stage == Stage::kInWarp;
  const unsigned begin = warp ? waiting / kLanes * kLanes : 0;
  const unsigned end = warp ? begin + kLanes : num_threads_;
  unsigned missing = begin;
  while (missing < end && threads_[missing].stage == threads_[waiting].stage) ++missing;
  Stop(shape_,
       std::string("divergent ") + (warp ? "warp" : "barrier") + " in " + BlockName() + ": " +
           NameOf(waiting) + " " + WhereaboutsOf(waiting) + ", to which " + NameOf(missing) +
           " never comes: it " + WhereaboutsOf(missing) + ".\n  All " +
           (warp ? "lanes of a warp" : "threads of a block") +
           " must come: look for a return or a condition before it that is not the same for all "
           "of them.");
}

void Engine::CheckGuards(size_t guard) const {
  if (shared_.Intact(guard)) return;
  StopInThread("write beyond the shared memory: the launch asked for " +
               std::to_string(shared_.bytes()) +
               " bytes.\n  Compare the shared_bytes of the launch with the largest index of "
               "WEIR_SHARED.");
}

void Engine::StopInThread(const std::string& message) const {
  Stop(shape_, NameOf(current_) + " of " + BlockName() + ": " + message);
}

Engine& CurrentEngine() {
  thread_local Engine engine;
  return engine;
}

}  // namespace

void* SharedMemory() { return CurrentEngine().UseShared(); }

void BlockBarrier(Place place) { CurrentEngine().Barrier(place); }

const uint64_t* ExchangeInWarp(unsigned mask, uint64_t value, const char* operation, Place place) {
  return CurrentEngine().Exchange(mask, value, operation, place);
}

unsigned Lane() { return CurrentEngine().lane(); }

void BadWidth(int width, const char* operation, Place place) {
  CurrentEngine().StopInThread(std::string(operation) + " at " + TextOf(place) + " has width " +
                               std::to_string(width) + ".\n  A width is a power of 2 up to 32.");
}

void CheckShape(const LaunchShape& shape) {
  const dim3& blocks = shape.blocks;
  const dim3& threads = shape.threads;
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.x > 0x7fffffffu ||
      blocks.y > 65535 || blocks.z > 65535) {
    Stop(shape, "a grid of " + TextOf(blocks.x, blocks.y, blocks.z) +
                    " blocks.\n  CUDA takes 1 to 2147483647, 65535 and 65535: launch nothing for "
                    "empty operands, and loop in the kernel over the rest.");
  }
  if (threads.x == 0 || threads.y == 0 || threads.z == 0 || threads.z > 64 ||
      uint64_t{threads.x} * threads.y * threads.z > kThreadsMax) {
    Stop(shape, "a block has 1 to 1024 threads, and at most 64 along z.");
  }
  if (shape.shared_bytes > kSharedBytesMax) {
    Stop(shape, "a launch asks for " + std::to_string(shape.shared_bytes) +
                    " bytes of shared memory.\n  A block has at most " +
                    std::to_string(kSharedBytesMax) + " bytes.");
  }
}

void RunLaunch(const LaunchShape& shape, void (*thread)(const void*), const void* closure) {
  CurrentEngine().Run(shape, thread, closure);
}

}  // namespace emulation
}  // namespace weir::kernels::cuda_emulated
