#include "runtime/device/thread_team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>
#include <vector>

#include "runtime/device/kernel_thread.h"

namespace weir::device {
namespace {

// The number of looks that a thread takes before it sleeps: below 2 us on current cores.
constexpr int kSpins = 32;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr,
          0);
}

// Returns once *word differs from `seen`; spins briefly, then sleeps.
uint32_t AwaitChange(std::atomic<uint32_t>* word, uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    uint32_t now = word->load(std::memory_order_acquire);
    if (now != seen) return now;
    Pause();
  }
  for (;;) {
    uint32_t now = word->load(std::memory_order_acquire);
    if (now != seen) return now;
    FutexWait(word, seen);
  }
}

constexpr uint32_t kOpen = 1u << 31;

}  // namespace

// A loop is open to workers from the moment the leader opens the gate until no piece is left. A
// worker that wakes too late finds the gate closed and sleeps again, so the leader never waits for
// a thread that has no work.
struct ThreadTeam::State {
  // Written by the leader before it opens the gate; read by workers inside it.
  void (*body)(void* context, int64_t piece, int worker) = nullptr;
  void* context = nullptr;
  int64_t num_pieces = 0;

  // The next piece that no worker has taken. Relaxed: the gate orders the data.
  alignas(64) std::atomic<int64_t> next{0};
  // kOpen and the number of workers inside. Entering acquires the data that the leader released by
  // opening; leaving releases the worker's results to the leader. The leader sleeps on the gate.
  alignas(64) std::atomic<uint32_t> gate{0};
  // Counts loops, so that workers can sleep on it; release and acquire.
  alignas(64) std::atomic<uint32_t> loops{0};
  std::atomic<bool> stop{false};  // ordered by `loops`

  std::vector<std::thread> threads;

  void TakePieces(int worker) {
    for (;;) {
      int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= num_pieces) return;
      body(context, piece, worker);
    }
  }

  bool TryEnter() {
    uint32_t value = gate.load(std::memory_order_relaxed);
    while (value & kOpen) {
      if (gate.compare_exchange_weak(value, value + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed))
        return true;
    }
    return false;
  }

  void Leave() {
    // Only the last worker to leave a closed gate has to wake the leader.
    if (gate.fetch_sub(1, std::memory_order_acq_rel) == 1) FutexWake(&gate, 1);
  }

  void WorkerMain(int worker) {
    BecomeKernelThread();
    uint32_t seen = 0;
    for (;;) {
      seen = AwaitChange(&loops, seen);
      if (stop.load(std::memory_order_relaxed)) return;
      if (!TryEnter()) continue;
      TakePieces(worker);
      Leave();
    }
  }
};

ThreadTeam::ThreadTeam(int num_threads) : state_(std::make_unique<State>()) {
  for (int worker = 1; worker < num_threads; ++worker) {
    state_->threads.emplace_back([state = state_.get(), worker] { state->WorkerMain(worker); });
  }
}

ThreadTeam::~ThreadTeam() {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->loops.fetch_add(1, std::memory_order_release);
  FutexWake(&state_->loops, INT_MAX);
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadTeam::num_threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadTeam::ParallelFor(int64_t num_pieces,
                             void (*body)(void* context, int64_t piece, int worker),
                             void* context) {
  State& state = *state_;
  if (num_pieces <= 1 || state.threads.empty()) {
    for (int64_t piece = 0; piece < num_pieces; ++piece) body(context, piece, 0);
    return;
  }
  state.body = body;
  state.context = context;
  state.num_pieces = num_pieces;
  state.next.store(0, std::memory_order_relaxed);
  state.gate.store(kOpen, std::memory_order_release);
  state.loops.fetch_add(1, std::memory_order_release);
  int64_t wanted = num_pieces - 1;
  int num_workers = static_cast<int>(state.threads.size());
  FutexWake(&state.loops, wanted < num_workers ? static_cast<int>(wanted) : num_workers);

  state.TakePieces(0);
  uint32_t inside = state.gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  while (inside != 0) {
    AwaitChange(&state.gate, inside);
    inside = state.gate.load(std::memory_order_acquire);
  }
}

}  // namespace weir::device
