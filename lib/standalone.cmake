# For a library of this folder that is built by itself: what the tree's own CMakeLists.txt
# sets up otherwise, and the libraries beside it that `uses` names.
#
#   cmake -S lib/jinja -B build/jinja && cmake --build build/jinja && ctest --test-dir build/jinja
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
option(WEFT_TESTS "Build the tests" ON)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)
include(${root}/cmake/WeftBuild.cmake)
find_package(absl REQUIRED)
find_package(Threads REQUIRED)
if(WEFT_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
endif()
# Their own tests belong to the tree.
set(own_tests ${WEFT_TESTS})
set(WEFT_TESTS OFF)
foreach(folder IN LISTS uses)
  add_subdirectory(${root}/lib/${folder} ${folder} EXCLUDE_FROM_ALL)
endforeach()
set(WEFT_TESTS ${own_tests})
