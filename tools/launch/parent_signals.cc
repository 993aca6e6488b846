#include "tools/launch/parent_signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>

namespace weir::launch {
namespace {

void Obey(int signal, siginfo_t* info, void* /*context*/) {
  const bool is_from_process = info->si_code <= 0;  // SI_USER, SI_QUEUE, SI_TKILL
  if (is_from_process && info->si_pid != ::getppid()) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void* AwaitParent(void* descriptor) {
  // A pidfd is readable once the whole process has ended.
  pollfd parent = {static_cast<int>(reinterpret_cast<intptr_t>(descriptor)), POLLIN, 0};
  while (::poll(&parent, 1, -1) < 1) {
  }
  ::kill(::getpid(), SIGTERM);
  return nullptr;
}

// Returns whether a thread awaits the end of the process that the pidfd names. The thread takes no
// signals.
bool StartToAwait(int pidfd) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = ::pthread_create(&thread, nullptr, &AwaitParent,
                                     reinterpret_cast<void*>(static_cast<intptr_t>(pidfd)));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) ::pthread_detach(thread);
  return error == 0;
}

}  // namespace

void EndWithParent() {
  const pid_t parent = ::getppid();
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, parent, 0));
  // Without a pidfd (the parent is in another container) or a thread, the system's request is
  // better than none.
  if (::getppid() == parent && pidfd >= 0 && StartToAwait(pidfd)) return;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::raise(SIGTERM);
}

void TakeSignalsFromParentAlone() {
  struct sigaction action = {};
  action.sa_sigaction = &Obey;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::sigaction(signal, &action, nullptr);
}

}  // namespace weir::launch
