// The kernels over oneDNN share primitives that run on one thread, and the parts of a workspace.
// The cut into pieces of work is the kernel's own, by shape alone, because oneDNN cuts
// by the number of threads, so that sums might come out in another order.
// Thread rule: one DnnlExecution per worker; a primitive may be shared.
#pragma once

#include <omp.h>

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "ops/kernels/shape/pieces.h"

namespace weir::kernels {

// oneDNN asks OpenMP for the number of threads; while an object of this class lives, the answer on
// this thread is one. Primitives are made and run under it.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneOpenMpThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  const int before_;
};

// A DnnlExecution holds the arguments of one worker for one primitive.
class DnnlExecution {
 public:
  // Pairs of an argument's number (DNNL_ARG_SRC, …) and its description.
  using Arguments = std::vector<std::pair<int, dnnl::memory::desc>>;

  DnnlExecution(const dnnl::engine& engine, dnnl::primitive primitive, const Arguments& arguments)
      : primitive_(std::move(primitive)), stream_(engine) {
    memories_.reserve(arguments.size());
    for (const auto& [number, desc] : arguments) {
      memories_.emplace_back(desc, engine, nullptr);
      args_.push_back({number, memories_.back().get()});
    }
  }

  // Runs the primitive on data for the arguments, in the order of the constructor. oneDNN writes to
  // the results alone; further, it writes zeros into the padding of an argument whose address has
  // changed.
  void Run(std::initializer_list<const void*> data) {
    size_t i = 0;
    for (const void* address : data) {
      dnnl::memory& memory = memories_[i++];
      if (memory.get_data_handle() != address) memory.set_data_handle(const_cast<void*>(address));
    }
    OneOpenMpThread one_thread;
    // The call fails only for arguments that do not fit the primitive, and who makes an execution
    // has ruled these out.
    dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(args_.size()),
                           args_.data());
  }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;
};

// A Region hands out aligned parts of a workspace.
class Region {
 public:
  int64_t Take(int64_t bytes) {
    int64_t at = bytes_;
    bytes_ += RoundUp(bytes, kCacheLine);
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

inline char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }
inline const char* At(const void* base, int64_t bytes) {
  return static_cast<const char*>(base) + bytes;
}

}  // namespace weir::kernels
