// What a source with functors is compiled for. nvcc makes kernels of them; compiled as C++ for the emulated GPU of the
// tests (CANZONA_EMULATED_GPU), they are host functions on its streams; compiled as C++ otherwise, they are only for
// the host.
#pragma once

// CANZONA_KERNEL stands before what kernels call, wherever it may run. CANZONA_TARGET keeps apart, as an inline
// namespace, functions that are compiled in different ways for one program.
#if defined(__CUDACC__)
#define CANZONA_KERNEL __host__ __device__
#define CANZONA_TARGET kernels
#elif defined(CANZONA_EMULATED_GPU)
#define CANZONA_KERNEL
#define CANZONA_TARGET emulated
#else
#define CANZONA_KERNEL
#define CANZONA_TARGET host_only
#endif
