# `make install` for other projects: include/weft, the static libraries, and a package file, so
# that they need only
#
#   find_package(weft REQUIRED)
#   target_link_libraries(mine PRIVATE weft::weft)
#
# Within this tree, weft::weft is an alias.
include(CMakePackageConfigHelpers)

# In link order: each library uses only later ones.
set(WEFT_PUBLIC_LIBRARIES
  weft_answer_masks weft_engine weft_engine_turns weft_engine_drafting weft_engine_speculation weft_engine_loading
  weft_engine_storage
  weft_engine_sessions weft_engine_sampling weft_constraint weft_constraint_schema
  weft_constraint_grammar weft_constraint_regex weft_compute weft_engine_state weft_model_tokenizer weft_model
  weft_compute_kernels_gpu weft_compute_device weft_compute_kernels_matmul weft_compute_kernels weft_compute_kernels_quants weft_model_formats
  weft_json weft_base_files weft_model_sampling weft_base)

add_library(weft_public INTERFACE)
target_link_libraries(weft_public INTERFACE weft_answer_masks weft_engine)
add_library(weft::weft ALIAS weft_public)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h"
  PATTERN "*.inc")
install(TARGETS ${WEFT_PUBLIC_LIBRARIES}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/weftConfig.cmake.in ${PROJECT_BINARY_DIR}/weftConfig.cmake
  INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT development)

# For builds without CMake: pkg-config --cflags --libs weft.
set(WEFT_PC_LIBRARIES "")
foreach(library IN LISTS WEFT_PUBLIC_LIBRARIES)
  string(APPEND WEFT_PC_LIBRARIES " -l${library}")
endforeach()
if(WEFT_HAS_MLX)
  get_target_property(mlx_library mlx LOCATION)
  cmake_path(GET mlx_library PARENT_PATH mlx_library_dir)
  string(APPEND WEFT_PC_LIBRARIES " -L${mlx_library_dir} -Wl,-rpath,${mlx_library_dir} -lmlx")
endif()
# Paths are relative to the file itself, so that an installed Weft may be moved.
file(RELATIVE_PATH WEFT_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" WEFT_PC_PREFIX "${WEFT_PC_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${PROJECT_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
