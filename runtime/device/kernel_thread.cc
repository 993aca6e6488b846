#include "runtime/device/kernel_thread.h"

#include <signal.h>

#include <initializer_list>

namespace weir::device {

void BecomeKernelThread() {
  thread_local bool is_kernel_thread = false;
  if (is_kernel_thread) return;
  is_kernel_thread = true;
  sigset_t signals;
  ::sigfillset(&signals);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    ::sigdelset(&signals, fault);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace weir::device
