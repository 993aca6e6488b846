// Every source of this folder is compiled twice: for CUDA, and for its emulation on the host
// (WEIR_CUDA_EMULATED). The two live in namespaces of their own and register kernels of different
// kinds of device.
#pragma once

#ifdef WEIR_CUDA_EMULATED
#define WEIR_CUDA_SPACE cuda_emulated
#define WEIR_CUDA_KIND "cuda-emulated"
#else
#define WEIR_CUDA_SPACE cuda
#define WEIR_CUDA_KIND "cuda"
#endif
