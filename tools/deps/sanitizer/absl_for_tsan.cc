// Tells ThreadSanitizer the order that Abseil's synchronisation creates.
//
// Debian's Abseil is not instrumented, so ThreadSanitizer sees no order between an Unlock and the
// next Lock of an absl::Mutex and reports false races. Under --config=tsan the linker redirects
// Weir's calls (--wrap, see BUILD) to the functions below. Each function gives up the order before
// it releases and takes the order after it has acquired. No other build contains this file.

#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace {

void TakeOrder(const void* object) { __tsan_acquire(const_cast<void*>(object)); }
void GiveOrder(const void* object) { __tsan_release(const_cast<void*>(object)); }

// Runs `call`, which gives up and takes the order of `object`, and returns its result.
template <typename Call>
auto Around(const void* object, Call call) -> decltype(call()) {
  struct TakeAtEnd {
    const void* object;
    ~TakeAtEnd() { TakeOrder(object); }
  } take{object};
  GiveOrder(object);
  return call();
}

// A Condition that Abseil may evaluate on any thread that holds the mutex, unseen by
// ThreadSanitizer. Each evaluation takes the order and gives it back.
class OrderedCondition {
 public:
  OrderedCondition(const absl::Mutex* mutex, const absl::Condition& condition)
      : mutex_(mutex), condition_(condition), ordered_(&Evaluate, this) {}
  const absl::Condition& ordered() const { return ordered_; }

 private:
  static bool Evaluate(OrderedCondition* self) {
    TakeOrder(self->mutex_);
    const bool holds = self->condition_.Eval();
    GiveOrder(self->mutex_);
    return holds;
  }

  const absl::Mutex* const mutex_;
  const absl::Condition& condition_;
  const absl::Condition ordered_;
};

using absl::BlockingCounter;
using absl::Condition;
using absl::CondVar;
using absl::Duration;
using absl::Mutex;
using absl::Notification;
using absl::Time;

}  // namespace

// The mangled name contains Debian's inline namespace (debian3) and the length of each name.
#define WEIR_REAL(symbol) __real__ZN4absl7debian3##symbol
#define WEIR_WRAP(symbol) __wrap__ZN4absl7debian3##symbol
#define WEIR_REAL_CONST(symbol) __real__ZNK4absl7debian3##symbol
#define WEIR_WRAP_CONST(symbol) __wrap__ZNK4absl7debian3##symbol

extern "C" {

#define WEIR_ACQUIRE(symbol)              \
  void WEIR_REAL(symbol)(Mutex*);         \
  void WEIR_WRAP(symbol)(Mutex * mutex) { \
    WEIR_REAL(symbol)(mutex);             \
    TakeOrder(mutex);                     \
  }
#define WEIR_TRY_ACQUIRE(symbol)                \
  bool WEIR_REAL(symbol)(Mutex*);               \
  bool WEIR_WRAP(symbol)(Mutex * mutex) {       \
    const bool held = WEIR_REAL(symbol)(mutex); \
    if (held) TakeOrder(mutex);                 \
    return held;                                \
  }
#define WEIR_RELEASE(symbol)              \
  void WEIR_REAL(symbol)(Mutex*);         \
  void WEIR_WRAP(symbol)(Mutex * mutex) { \
    GiveOrder(mutex);                     \
    WEIR_REAL(symbol)(mutex);             \
  }
#define WEIR_WHEN(symbol)                                                \
  void WEIR_REAL(symbol)(Mutex*, const Condition&);                      \
  void WEIR_WRAP(symbol)(Mutex * mutex, const Condition& condition) {    \
    OrderedCondition ordered(mutex, condition);                          \
    Around(mutex, [&] { WEIR_REAL(symbol)(mutex, ordered.ordered()); }); \
  }
#define WEIR_WHEN_UNTIL(symbol, Limit)                                                        \
  bool WEIR_REAL(symbol)(Mutex*, const Condition&, Limit);                                    \
  bool WEIR_WRAP(symbol)(Mutex * mutex, const Condition& condition, Limit limit) {            \
    OrderedCondition ordered(mutex, condition);                                               \
    return Around(mutex, [&] { return WEIR_REAL(symbol)(mutex, ordered.ordered(), limit); }); \
  }

WEIR_ACQUIRE(5Mutex4LockEv)
WEIR_ACQUIRE(5Mutex10ReaderLockEv)
WEIR_TRY_ACQUIRE(5Mutex7TryLockEv)
WEIR_TRY_ACQUIRE(5Mutex13ReaderTryLockEv)
WEIR_RELEASE(5Mutex6UnlockEv)
WEIR_RELEASE(5Mutex12ReaderUnlockEv)
WEIR_WHEN(5Mutex5AwaitERKNS0_9ConditionE)
WEIR_WHEN(5Mutex8LockWhenERKNS0_9ConditionE)
WEIR_WHEN(5Mutex14ReaderLockWhenERKNS0_9ConditionE)
WEIR_WHEN_UNTIL(5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE, Duration)
WEIR_WHEN_UNTIL(5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE, Time)
WEIR_WHEN_UNTIL(5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE, Duration)
WEIR_WHEN_UNTIL(5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE, Time)

void WEIR_REAL(7CondVar4WaitEPNS0_5MutexE)(CondVar*, Mutex*);
void WEIR_WRAP(7CondVar4WaitEPNS0_5MutexE)(CondVar* variable, Mutex* mutex) {
  Around(mutex, [&] { WEIR_REAL(7CondVar4WaitEPNS0_5MutexE)(variable, mutex); });
}
bool WEIR_REAL(7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(CondVar*, Mutex*, Duration);
bool WEIR_WRAP(7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(CondVar* variable,
                                                                     Mutex* mutex, Duration limit) {
  return Around(mutex, [&] {
    return WEIR_REAL(7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)(variable, mutex, limit);
  });
}
bool WEIR_REAL(7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)(CondVar*, Mutex*, Time);
bool WEIR_WRAP(7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)(CondVar* variable, Mutex* mutex,
                                                                  Time limit) {
  return Around(mutex, [&] {
    return WEIR_REAL(7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)(variable, mutex, limit);
  });
}

// Notification::HasBeenNotified is inline and needs nothing, because its callers are instrumented.
void WEIR_REAL(12Notification6NotifyEv)(Notification*);
void WEIR_WRAP(12Notification6NotifyEv)(Notification* notification) {
  GiveOrder(notification);
  WEIR_REAL(12Notification6NotifyEv)(notification);
}
void WEIR_REAL_CONST(12Notification19WaitForNotificationEv)(const Notification*);
void WEIR_WRAP_CONST(12Notification19WaitForNotificationEv)(const Notification* notification) {
  WEIR_REAL_CONST(12Notification19WaitForNotificationEv)(notification);
  TakeOrder(notification);
}
bool WEIR_REAL_CONST(12Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    const Notification*, Duration);
bool WEIR_WRAP_CONST(12Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    const Notification* notification, Duration limit) {
  const bool notified = WEIR_REAL_CONST(
      12Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(notification, limit);
  if (notified) TakeOrder(notification);
  return notified;
}
bool WEIR_REAL(15BlockingCounter14DecrementCountEv)(BlockingCounter*);
bool WEIR_WRAP(15BlockingCounter14DecrementCountEv)(BlockingCounter* counter) {
  GiveOrder(counter);
  return WEIR_REAL(15BlockingCounter14DecrementCountEv)(counter);
}
void WEIR_REAL(15BlockingCounter4WaitEv)(BlockingCounter*);
void WEIR_WRAP(15BlockingCounter4WaitEv)(BlockingCounter* counter) {
  WEIR_REAL(15BlockingCounter4WaitEv)(counter);
  TakeOrder(counter);
}

}  // extern "C"
