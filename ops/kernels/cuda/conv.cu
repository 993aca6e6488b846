#include "ops/kernels/cuda/conv.h"

#include "ops/kernels/cuda/tile.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kAxes = 3;

struct Point {
  int64_t at[kAxes];
};

// Returns the point with number `i`, the last axis being the fastest.
__device__ inline Point PointOf(int64_t i, int64_t size1, int64_t size2) {
  return {{i / (size1 * size2), i / size2 % size1, i % size2}};
}

__host__ __device__ inline int64_t WideSize(const ConvSizes& s) {
  return s.axes[0].in * s.axes[1].in * s.axes[2].in;
}
__host__ __device__ inline int64_t NarrowSize(const ConvSizes& s) {
  return s.axes[0].out * s.axes[1].out * s.axes[2].out;
}
__host__ __device__ inline int64_t KernelSize(const ConvSizes& s) {
  return s.axes[0].kernel * s.axes[1].kernel * s.axes[2].kernel;
}

// Returns the number of the wide point that a window has at an offset; -1: it lies in the padding.
__device__ inline int64_t WideAt(const ConvSizes& s, const Point& window, const Point& offset) {
  int64_t number = 0;
  for (int d = 0; d < kAxes; ++d) {
    const ConvAxis& axis = s.axes[d];
    const int64_t at = window.at[d] * axis.stride + offset.at[d] * axis.dilation - axis.padding;
    if (at < 0 || at >= axis.in) return -1;
    number = number * axis.in + at;
  }
  return number;
}

// Returns the number of the window that has a wide point at an offset; -1: there is none.
__device__ inline int64_t NarrowAt(const ConvSizes& s, const Point& wide, const Point& offset) {
  int64_t number = 0;
  for (int d = 0; d < kAxes; ++d) {
    const ConvAxis& axis = s.axes[d];
    const int64_t from = wide.at[d] + axis.padding - offset.at[d] * axis.dilation;
    if (from < 0 || from % axis.stride != 0 || from / axis.stride >= axis.out) return -1;
    number = number * axis.out + from / axis.stride;
  }
  return number;
}

__device__ inline Point WidePoint(const ConvSizes& s, int64_t i) {
  return PointOf(i, s.axes[1].in, s.axes[2].in);
}
__device__ inline Point NarrowPoint(const ConvSizes& s, int64_t i) {
  return PointOf(i, s.axes[1].out, s.axes[2].out);
}
__device__ inline Point KernelPoint(const ConvSizes& s, int64_t i) {
  return PointOf(i, s.axes[1].kernel, s.axes[2].kernel);
}

// Each of the three operations is a product of matrices for each group:
//   sums[row][column] = sum over `at` of Left(row, at) * Right(at, column).
// An operation states the sizes, reads the elements, and stores the sums.

// Rows: channels of y. At: channels of x and offsets in the window. Columns: images and positions.
template <typename T>
struct Conv {
  ConvWork work;

  __device__ int64_t Rows() const { return work.sizes.out; }
  __device__ int64_t Columns() const { return work.sizes.images * NarrowSize(work.sizes); }
  __device__ int64_t Depth() const { return work.sizes.in * KernelSize(work.sizes); }
  __device__ float Left(int64_t group, int64_t row, int64_t at) const {
    return ToFloat(static_cast<const T*>(work.w)[(group * work.sizes.out + row) * Depth() + at]);
  }
  __device__ float Right(int64_t group, int64_t at, int64_t column) const {
    const ConvSizes& s = work.sizes;
    const int64_t window = KernelSize(s), narrow = NarrowSize(s);
    const int64_t place = WideAt(s, NarrowPoint(s, column % narrow), KernelPoint(s, at % window));
    if (place < 0) return 0;
    const int64_t channel = (column / narrow * s.groups + group) * s.in + at / window;
    return ToFloat(static_cast<const T*>(work.x)[channel * WideSize(s) + place]);
  }
  __device__ void Put(int64_t group, int64_t row, int64_t column, float sum) const {
    const ConvSizes& s = work.sizes;
    PutElement(work, group * s.out + row, s.groups * s.out, column, NarrowSize(s), sum);
  }
  // Stores an element of y with its bias.
  __device__ static void PutElement(const ConvWork& work, int64_t channel, int64_t channels,
                                    int64_t column, int64_t plane, float sum) {
    if (work.bias != nullptr) sum += RealAt(work.bias_dtype, work.bias, channel);
    const int64_t image = column / plane;
    Store(static_cast<T*>(work.y) + (image * channels + channel) * plane + column % plane, sum);
  }
};

// Rows: channels of y, which is wide. At: channels of x and offsets. Columns: images and positions.
template <typename T>
struct ConvTranspose {
  ConvWork work;

  __device__ int64_t Rows() const { return work.sizes.in; }
  __device__ int64_t Columns() const { return work.sizes.images * WideSize(work.sizes); }
  __device__ int64_t Depth() const { return work.sizes.out * KernelSize(work.sizes); }
  __device__ float Left(int64_t group, int64_t row, int64_t at) const {
    const ConvSizes& s = work.sizes;
    const int64_t window = KernelSize(s);
    const int64_t channel = (group * s.out + at / window) * s.in + row;
    return ToFloat(static_cast<const T*>(work.w)[channel * window + at % window]);
  }
  __device__ float Right(int64_t group, int64_t at, int64_t column) const {
    const ConvSizes& s = work.sizes;
    const int64_t window = KernelSize(s), wide = WideSize(s);
    const int64_t place = NarrowAt(s, WidePoint(s, column % wide), KernelPoint(s, at % window));
    if (place < 0) return 0;
    const int64_t channel = (column / wide * s.groups + group) * s.out + at / window;
    return ToFloat(static_cast<const T*>(work.x)[channel * NarrowSize(s) + place]);
  }
  __device__ void Put(int64_t group, int64_t row, int64_t column, float sum) const {
    const ConvSizes& s = work.sizes;
    Conv<T>::PutElement(work, group * s.in + row, s.groups * s.in, column, WideSize(s), sum);
  }
};

// Rows: channels of dy. At: images and positions of dy. Columns: channels of x and offsets.
template <typename T>
struct ConvGradWeight {
  ConvGradWeightWork work;
  int64_t part;  // of the positions

  __device__ int64_t Rows() const { return work.sizes.out; }
  __device__ int64_t Columns() const { return work.sizes.in * KernelSize(work.sizes); }
  __device__ int64_t All() const { return work.sizes.images * NarrowSize(work.sizes); }
  __device__ int64_t PartLength() const { return (All() + work.parts - 1) / work.parts; }
  __device__ int64_t Depth() const {
    const int64_t rest = All() - part * PartLength();
    return rest < 0 ? 0 : rest < PartLength() ? rest : PartLength();
  }
  __device__ float Left(int64_t group, int64_t row, int64_t at) const {
    const ConvSizes& s = work.sizes;
    const int64_t narrow = NarrowSize(s), position = part * PartLength() + at;
    const int64_t channel = (position / narrow * s.groups + group) * s.out + row;
    return ToFloat(static_cast<const T*>(work.dy)[channel * narrow + position % narrow]);
  }
  __device__ float Right(int64_t group, int64_t at, int64_t column) const {
    const ConvSizes& s = work.sizes;
    const int64_t narrow = NarrowSize(s), window = KernelSize(s);
    const int64_t position = part * PartLength() + at;
    const int64_t place =
        WideAt(s, NarrowPoint(s, position % narrow), KernelPoint(s, column % window));
    if (place < 0) return 0;
    const int64_t channel = (position / narrow * s.groups + group) * s.in + column / window;
    return ToFloat(static_cast<const T*>(work.x)[channel * WideSize(s) + place]);
  }
  __device__ void Put(int64_t group, int64_t row, int64_t column, float sum) const {
    const int64_t rows = work.sizes.groups * Rows();
    work.sums[(part * rows + group * Rows() + row) * Columns() + column] = sum;
  }
};

__device__ inline int64_t TilesOf(int64_t length) { return (length + kTile - 1) / kTile; }

template <typename Operation>
__device__ inline void ComputeTile(const Operation& of, int64_t group, int64_t tile) {
  WEIR_SHARED(float, left);  // two slices
  float* const right = left + kSliceFloats;
  const int64_t row_tiles = TilesOf(of.Rows());
  const int64_t first_row = tile % row_tiles * kTile, first_column = tile / row_tiles * kTile;
  TilePart sums;
  sums.Clear();
  for (int64_t first = 0; first < of.Depth(); first += kSlice) {
    __syncthreads();
    for (int item = static_cast<int>(threadIdx.x); item < kTile * kSlice; item += kTileThreads) {
      // Elements of a row of the weight lie one after the other, and columns beside each other.
      const int64_t row = first_row + item / kSlice, at_left = first + item % kSlice;
      left[item % kSlice * kTileStride + item / kSlice] =
          row < of.Rows() && at_left < of.Depth() ? of.Left(group, row, at_left) : 0.0f;
      const int64_t column = first_column + item % kTile, at_right = first + item / kTile;
      right[item / kTile * kTileStride + item % kTile] =
          column < of.Columns() && at_right < of.Depth() ? of.Right(group, at_right, column) : 0.0f;
    }
    __syncthreads();
    AddProducts<kSlice>(left, right, sums);
  }
  WEIR_UNROLL
  for (int i = 0; i < kPart; ++i) {
    const int64_t row = first_row + FirstRowOfThread() + i;
    WEIR_UNROLL
    for (int j = 0; j < kPart; ++j) {
      const int64_t column = first_column + FirstColumnOfThread() + j;
      if (row < of.Rows() && column < of.Columns()) of.Put(group, row, column, sums.at[i][j]);
    }
  }
}

template <typename Operation>
__global__ void __launch_bounds__(kTileThreads, 1)
    ProductKernel(Operation of, int64_t tiles_of_group) {
  ComputeTile(of, blockIdx.x / tiles_of_group, blockIdx.x % tiles_of_group);
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads, 1)
    GradWeightKernel(ConvGradWeightWork work, int64_t tiles_of_group) {
  const int64_t tile = blockIdx.x % tiles_of_group, rest = blockIdx.x / tiles_of_group;
  ComputeTile(ConvGradWeight<T>{work, rest / work.sizes.groups}, rest % work.sizes.groups, tile);
}

// Adds the sums of the parts, in order.
template <typename T>
__global__ void AddPartsKernel(const float* sums, int64_t parts, int64_t elements, T* dw) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  float sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += sums[part * elements + i];
  Store(dw + i, sum);
}

int64_t NumTiles(int64_t rows, int64_t columns) {
  return (rows + kTile - 1) / kTile * ((columns + kTile - 1) / kTile);
}

constexpr size_t kSharedBytes = 2 * kSliceFloats * sizeof(float);

template <typename Operation>
void LaunchProduct(const Operation& of, int64_t rows, int64_t columns, device::CudaStream stream) {
  const int64_t tiles = NumTiles(rows, columns);
  const auto blocks = static_cast<unsigned>(tiles * of.work.sizes.groups);
  if (blocks == 0) return;
  Launch(stream, &ProductKernel<Operation>, dim3(blocks), dim3(kTileThreads), kSharedBytes, of,
         tiles);
}

template <typename T>
void LaunchGradWeight(const ConvGradWeightWork& work, device::CudaStream stream) {
  const ConvSizes& sizes = work.sizes;
  const int64_t tiles = NumTiles(sizes.out, sizes.in * KernelSize(sizes));
  const auto blocks = static_cast<unsigned>(tiles * sizes.groups * work.parts);
  if (blocks == 0) return;
  Launch(stream, &GradWeightKernel<T>, dim3(blocks), dim3(kTileThreads), kSharedBytes, work, tiles);
}

template <typename T>
void LaunchAddParts(const ConvGradWeightWork& work, device::CudaStream stream) {
  const ConvSizes& sizes = work.sizes;
  const int64_t elements = sizes.groups * sizes.out * sizes.in * KernelSize(sizes);
  const auto blocks = static_cast<unsigned>((elements + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  Launch(stream, &AddPartsKernel<T>, dim3(blocks), dim3(kThreads), 0,
         static_cast<const float*>(work.sums), work.parts, elements, static_cast<T*>(work.dw));
}

}  // namespace

void LaunchConv(const ConvWork& work, device::CudaStream stream) {
  const ConvSizes& s = work.sizes;
  const int64_t columns = s.images * NarrowSize(s);
  WithReal(s.dtype, [&]<typename T>(T*) { LaunchProduct(Conv<T>{work}, s.out, columns, stream); });
}

void LaunchConvTranspose(const ConvWork& work, device::CudaStream stream) {
  const ConvSizes& s = work.sizes;
  const int64_t columns = s.images * WideSize(s);
  WithReal(s.dtype,
           [&]<typename T>(T*) { LaunchProduct(ConvTranspose<T>{work}, s.in, columns, stream); });
}

void LaunchConvGradWeight(const ConvGradWeightWork& work, device::CudaStream stream) {
  WithReal(work.sizes.dtype, [&]<typename T>(T*) { LaunchGradWeight<T>(work, stream); });
  WithReal(work.dw_dtype, [&]<typename T>(T*) { LaunchAddParts<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
