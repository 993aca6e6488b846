#include "ops/kernels/cuda/emulation/fiber.h"

#include "boost/context/protected_fixedsize_stack.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace weir::kernels::cuda_emulated::emulation {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

}  // namespace

Fiber::Fiber() {
#ifdef __SANITIZE_THREAD__
  thread_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*body)(void*), void* context) : body_(body), context_(context) {
  stack_ = boost::context::protected_fixedsize_stack(kStackBytes).allocate();
  stack_bytes_ = kStackBytes;
  stack_bottom_ = static_cast<const char*>(stack_.sp) - kStackBytes;
  left_ = boost::context::detail::make_fcontext(stack_.sp, kStackBytes, &Fiber::Enter);
#ifdef __SANITIZE_THREAD__
  thread_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (!stack_.sp) return;
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(thread_fiber_);
#endif
  boost::context::protected_fixedsize_stack(kStackBytes).deallocate(stack_);
}

void Fiber::Enter(boost::context::detail::transfer_t from) {
  auto* self = static_cast<Fiber*>(from.data);
  self->leaver_->left_ = from.fctx;
  self->Arrived();
  self->body_(self->context_);
}

void Fiber::SwitchTo(Fiber* other) {
  other->leaver_ = this;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&fake_stack_, other->stack_bottom_, other->stack_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(other->thread_fiber_, 0);
#endif
  const boost::context::detail::transfer_t from =
      boost::context::detail::jump_fcontext(other->left_, other);
  leaver_->left_ = from.fctx;
  Arrived();
}

void Fiber::Arrived() {
#ifdef __SANITIZE_ADDRESS__
  // The host thread's stack is known to the first fiber that comes from there.
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  leaver_->stack_bottom_ = bottom;
  leaver_->stack_bytes_ = bytes;
#endif
}

}  // namespace weir::kernels::cuda_emulated::emulation
