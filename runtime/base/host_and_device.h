// WEIR_HOST_AND_DEVICE marks functions that kernels of a CPU and of a GPU call alike.
#pragma once

#ifdef __CUDACC__
#define WEIR_HOST_AND_DEVICE __host__ __device__
#else
#define WEIR_HOST_AND_DEVICE
#endif
