#include "ops/kernels/cuda/pool.h"

#include "ops/kernels/cuda/launch.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kAxes = 3;

// Elements begin, begin + step, ... below end.
struct Stretch {
  int64_t begin, end, step;
};

// The elements of a window.
__device__ inline Stretch ElementsOf(const PoolAxis& axis, int64_t window) {
  const int64_t first = window * axis.stride - axis.padding;
  const int64_t last = first + axis.dilation * (axis.kernel - 1) + 1;
  const int64_t skipped = first < 0 ? (-first + axis.dilation - 1) / axis.dilation : 0;
  return {first + skipped * axis.dilation, last < axis.in ? last : axis.in, axis.dilation};
}

// The elements of a window with those in the padding; none lies behind the padding.
__device__ inline int64_t CountWithPadding(const PoolAxis& axis, int64_t window) {
  const int64_t first = window * axis.stride - axis.padding;
  const int64_t last = first + axis.dilation * (axis.kernel - 1) + 1;
  const int64_t end = last < axis.in + axis.padding ? last : axis.in + axis.padding;
  return (end - first + axis.dilation - 1) / axis.dilation;
}

// The first window and the last one that may have an element.
__device__ inline int64_t FirstWindowOf(const PoolAxis& axis, int64_t element) {
  const int64_t before = element + axis.padding - axis.dilation * (axis.kernel - 1);
  return before <= 0 ? 0 : (before + axis.stride - 1) / axis.stride;
}
__device__ inline int64_t LastWindowOf(const PoolAxis& axis, int64_t element) {
  const int64_t last = (element + axis.padding) / axis.stride;
  return last < axis.out ? last : axis.out - 1;
}
__device__ inline bool Has(const PoolAxis& axis, int64_t window, int64_t element) {
  return (element + axis.padding - window * axis.stride) % axis.dilation == 0;
}

struct Place {
  int64_t plane;
  int64_t at[kAxes];
};

// Returns where element or window `i` lies, if each plane has sizes[0] x sizes[1] x sizes[2].
__device__ inline Place PlaceOf(int64_t i, int64_t size0, int64_t size1, int64_t size2) {
  Place place{};
  place.at[2] = i % size2;
  i /= size2;
  place.at[1] = i % size1;
  i /= size1;
  place.at[0] = i % size0;
  place.plane = i / size0;
  return place;
}

__device__ inline int64_t PlaneSize(const PoolWork& work) {
  return work.axes[0].in * work.axes[1].in * work.axes[2].in;
}

// Calls visit(element of the plane) for each element of a window, in order.
template <typename Visit>
__device__ inline void ForEachElement(const PoolWork& work, const Place& window,
                                      const Visit& visit) {
  const Stretch s0 = ElementsOf(work.axes[0], window.at[0]),
                s1 = ElementsOf(work.axes[1], window.at[1]),
                s2 = ElementsOf(work.axes[2], window.at[2]);
  for (int64_t i = s0.begin; i < s0.end; i += s0.step) {
    for (int64_t j = s1.begin; j < s1.end; j += s1.step) {
      const int64_t row = (i * work.axes[1].in + j) * work.axes[2].in;
      for (int64_t k = s2.begin; k < s2.end; k += s2.step) visit(row + k);
    }
  }
}

// Returns the weight of each element of a window in its mean.
__device__ inline float Share(const PoolWork& work, const Place& window) {
  int64_t count = 1;
  for (int d = 0; d < kAxes; ++d) {
    const Stretch s = ElementsOf(work.axes[d], window.at[d]);
    count *= work.counts_padding ? CountWithPadding(work.axes[d], window.at[d])
                                 : (s.end - s.begin + s.step - 1) / s.step;
  }
  return 1.0f / static_cast<float>(count);
}

__device__ inline int64_t ThreadHere() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// A thread has a window. The largest element is the first of several, or the last NaN.
template <typename T>
__global__ void WindowKernel(PoolWork work, int64_t windows) {
  const int64_t i = ThreadHere();
  if (i >= windows) return;
  const Place window = PlaceOf(i, work.axes[0].out, work.axes[1].out, work.axes[2].out);
  const T* const x = static_cast<const T*>(work.x) + window.plane * PlaneSize(work);
  if (work.pool == Pool::kAverage) {
    float sum = 0;
    ForEachElement(work, window, [&](int64_t element) { sum += ToFloat(x[element]); });
    Store(static_cast<T*>(work.y) + i, sum * Share(work, window));
    return;
  }
  int64_t largest = -1;
  float value = 0;
  ForEachElement(work, window, [&](int64_t element) {
    const float here = ToFloat(x[element]);
    if (largest < 0 || here > value || here != here) {
      largest = element;
      value = here;
    }
  });
  if (work.pool == Pool::kMax) {
    Store(static_cast<T*>(work.y) + i, value);
  } else {
    work.largest[i] = largest;
  }
}

// A thread has an element of dx and adds what its windows give, in order.
template <typename T>
__global__ void ElementKernel(PoolWork work, int64_t elements) {
  const int64_t i = ThreadHere();
  if (i >= elements) return;
  const PoolAxis &a0 = work.axes[0], &a1 = work.axes[1], &a2 = work.axes[2];
  const Place element = PlaceOf(i, a0.in, a1.in, a2.in);
  const int64_t in_plane = i - element.plane * PlaneSize(work);
  const T* const dy = static_cast<const T*>(work.dy);
  Place window{};
  window.plane = element.plane;
  float sum = 0;
  for (int64_t p = FirstWindowOf(a0, element.at[0]); p <= LastWindowOf(a0, element.at[0]); ++p) {
    if (!Has(a0, p, element.at[0])) continue;
    for (int64_t q = FirstWindowOf(a1, element.at[1]); q <= LastWindowOf(a1, element.at[1]); ++q) {
      if (!Has(a1, q, element.at[1])) continue;
      for (int64_t r = FirstWindowOf(a2, element.at[2]); r <= LastWindowOf(a2, element.at[2]);
           ++r) {
        if (!Has(a2, r, element.at[2])) continue;
        const int64_t at = ((element.plane * a0.out + p) * a1.out + q) * a2.out + r;
        if (work.pool == Pool::kMaxGrad) {
          if (work.largest[at] == in_plane) sum += ToFloat(dy[at]);
          continue;
        }
        window.at[0] = p;
        window.at[1] = q;
        window.at[2] = r;
        sum += ToFloat(dy[at]) * Share(work, window);
      }
    }
  }
  Store(static_cast<T*>(work.y) + i, sum);
}

template <typename T>
void LaunchOf(const PoolWork& work, device::CudaStream stream) {
  const auto blocks_of = [](int64_t count) {
    return dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads));
  };
  int64_t windows = work.planes, elements = work.planes;
  for (const PoolAxis& axis : work.axes) {
    windows *= axis.out;
    elements *= axis.in;
  }
  if (work.pool != Pool::kAverageGrad && windows > 0)
    Launch(stream, &WindowKernel<T>, blocks_of(windows), dim3(kThreads), 0, work, windows);
  const bool grad = work.pool == Pool::kMaxGrad || work.pool == Pool::kAverageGrad;
  if (grad && elements > 0)
    Launch(stream, &ElementKernel<T>, blocks_of(elements), dim3(kThreads), 0, work, elements);
}

}  // namespace

void LaunchPool(const PoolWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
