// The kernels as nvcc compiled them, a fat binary per source. Only in programs that are built
// with it. Each is called what its source is, without the extension.
#ifndef WEFT_KERNELS_GPU_CUDA_IMAGES_H_
#define WEFT_KERNELS_GPU_CUDA_IMAGES_H_

#include <cstddef>
#include <span>

namespace weft::device {

std::span<const std::byte* const> CudaImages();
std::span<const char* const> CudaImageNames();  // in the same order

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_CUDA_IMAGES_H_
