// A kernel thread is a thread that runs kernels and gets no signals.
//
// A kernel may keep data where a signal handler puts its frame: the matrix products of oneDNN move
// the stack pointer into a block of the heap, and a handler that runs on that stack overwrites the
// memory below the block. The system sends SIGXCPU to the thread that runs as the limit is reached,
// which mostly is a thread in a kernel. The main thread may run kernels, too, and must get signals:
// its handlers have a stack of their own (SA_ONSTACK, runtime/limits/process_limits.h).
// Thread rule: any thread, for itself.
#pragma once

namespace weir::device {

// Keeps all signals from the calling thread for the rest of its life, but those that tell of a
// fault of the thread itself (SIGSEGV and its like). Another thread of the process gets a signal
// that was sent to the process. Cheap after the first call of a thread.
void BecomeKernelThread();

}  // namespace weir::device
