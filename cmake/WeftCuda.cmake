# Finds NVIDIA's compiler: WEFT_CUDA is AUTO, ON (an error if there is none) or OFF. Sets
# WEFT_HAS_CUDA, WEFT_NVCC, and CMAKE_CUDA_ARCHITECTURES unless you have set it.
#
# Looks in CUDACXX, where `tools/setup.sh cuda` puts it, then in PATH and the usual folder. The
# kernels are embedded in the program, which loads the driver when it runs: no part of the toolkit
# is linked.
set(WEFT_CUDA AUTO CACHE STRING "The cuda backend: AUTO (if nvcc is found), ON or OFF")
set_property(CACHE WEFT_CUDA PROPERTY STRINGS AUTO ON OFF)
set(WEFT_HAS_CUDA OFF)
if(WEFT_CUDA STREQUAL "OFF" OR
    (WEFT_CUDA STREQUAL "AUTO" AND (WEFT_SANITIZE OR WEFT_FUZZ OR CMAKE_CROSSCOMPILING OR APPLE)))
  return()
endif()

file(GLOB nvcc_folders "${PROJECT_SOURCE_DIR}/build/cuda/lib/python*/site-packages/nvidia/cu*/bin")
if(DEFINED ENV{CUDACXX})
  set(WEFT_NVCC "$ENV{CUDACXX}" CACHE FILEPATH "NVIDIA's compiler")
endif()
find_program(WEFT_NVCC nvcc HINTS ${nvcc_folders} ENV CUDA_PATH PATH_SUFFIXES bin
  PATHS /usr/local/cuda/bin DOC "NVIDIA's compiler")
if(NOT WEFT_NVCC)
  if(WEFT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WEFT_CUDA is ON, but there is no nvcc; "
      "install it with: tools/setup.sh cuda")
  endif()
  return()
endif()

# For these; kernels_gpu/CMakeLists.txt covers devices between two of them or newer than all.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND "${WEFT_NVCC}" --list-gpu-arch
    OUTPUT_VARIABLE nvcc_architectures RESULT_VARIABLE nvcc_failed ERROR_VARIABLE nvcc_error)
  set(chosen "")
  foreach(architecture 75 80 90 120)
    if(nvcc_architectures MATCHES "compute_${architecture}(\n|$)")
      list(APPEND chosen ${architecture})
    endif()
  endforeach()
  if(NOT chosen)
    if(WEFT_CUDA STREQUAL "ON")
      message(FATAL_ERROR "WEFT_CUDA is ON, but ${WEFT_NVCC} --list-gpu-arch fails: ${nvcc_error}")
    endif()
    return()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${chosen}" CACHE STRING "Devices that the cuda backend is built for")
endif()
set(WEFT_HAS_CUDA ON)
message(STATUS "The cuda backend: ${WEFT_NVCC}, for ${CMAKE_CUDA_ARCHITECTURES}")
