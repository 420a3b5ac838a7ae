# Finds MLX: WEFT_MLX is AUTO, ON (an error if there is none) or OFF. Sets WEFT_HAS_MLX and makes
# the target `mlx`.
#
# Looks where `tools/setup.sh mlx` puts it, then in CMAKE_PREFIX_PATH and the system. The packages
# for Python have the headers and the library.
set(WEFT_MLX AUTO CACHE STRING "The mlx backend: AUTO (if MLX is found), ON or OFF")
set_property(CACHE WEFT_MLX PROPERTY STRINGS AUTO ON OFF)
set(WEFT_HAS_MLX OFF)
# Sanitizers need instrumented libraries, and MLX is not.
if(WEFT_MLX STREQUAL "OFF" OR (WEFT_MLX STREQUAL "AUTO" AND (WEFT_SANITIZE OR CMAKE_CROSSCOMPILING)))
  return()
endif()

file(GLOB mlx_prefixes "${PROJECT_SOURCE_DIR}/build/mlx/lib/python*/site-packages/mlx")
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(MLX 0.32 CONFIG QUIET HINTS ${mlx_prefixes})
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
if(MLX_FOUND)
  set(WEFT_HAS_MLX ON)
  message(STATUS "The mlx backend: MLX ${MLX_VERSION}")
  # An installed program finds the library where it was linked, in build/ too.
  set(CMAKE_INSTALL_RPATH "$<TARGET_FILE_DIR:mlx>")
elseif(WEFT_MLX STREQUAL "ON")
  message(FATAL_ERROR "WEFT_MLX is ON, but there is no MLX 0.32 or newer; "
    "install it with: tools/setup.sh mlx")
endif()
