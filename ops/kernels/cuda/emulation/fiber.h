// A Fiber has a stack of its own and runs a function on it, piece by piece: SwitchTo leaves the
// fiber that runs and goes on where the other fiber left. The stack is 64 KiB (256 KiB under
// AddressSanitizer) above a page that nobody may touch.
// Thread rule: all fibers of a set belong to the host thread that made them.
#pragma once

#include <cstddef>

#include "boost/context/detail/fcontext.hpp"
#include "boost/context/stack_context.hpp"

namespace weir::kernels::cuda_emulated::emulation {

class Fiber {
 public:
  // The fiber that stands for the stack of the host thread.
  Fiber();
  // A fiber that calls body(context) when it is first switched to. `body` must never return.
  Fiber(void (*body)(void* context), void* context);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on with `other` until a fiber switches back to this one. Precondition: this fiber runs.
  void SwitchTo(Fiber* other);

 private:
  static void Enter(boost::context::detail::transfer_t from);
  void Arrived();

  void (*body_)(void*) = nullptr;
  void* context_ = nullptr;
  boost::context::stack_context stack_;  // empty for the host thread's
  boost::context::detail::fcontext_t left_ =
      nullptr;               // where this fiber goes on when its turn comes
  Fiber* leaver_ = nullptr;  // the fiber that switched to this one
  // These are for the sanitizers.
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* thread_fiber_ = nullptr;
};

}  // namespace weir::kernels::cuda_emulated::emulation
