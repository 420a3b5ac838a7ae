// The kernels compiled by nvcc, one fat binary per source file, named as the source without
// extension. Only in builds with nvcc.
#ifndef WEFT_COMPUTE_KERNELS_GPU_CUDA_IMAGES_H_
#define WEFT_COMPUTE_KERNELS_GPU_CUDA_IMAGES_H_

#include <cstddef>
#include <span>

namespace weft::device {

std::span<const std::byte* const> CudaImages();
std::span<const char* const> CudaImageNames();  // in the same order

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_CUDA_IMAGES_H_
