#include "tools/launch/parent_signals.h"

#include <signal.h>
#include <unistd.h>

#include <initializer_list>

namespace weir::launch {
namespace {

void Obey(int signal, siginfo_t* info, void* /*context*/) {
  const bool is_from_process = info->si_code <= 0;  // SI_USER, SI_QUEUE, SI_TKILL
  if (is_from_process && info->si_pid != ::getppid()) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void TakeSignalsFromParentAlone() {
  struct sigaction action = {};
  action.sa_sigaction = &Obey;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

}  // namespace weir::launch
