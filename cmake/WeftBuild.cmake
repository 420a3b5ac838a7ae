# Compiler settings of the whole tree, and the helpers that every folder uses.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH WEFT_ROOT)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${WEFT_CCACHE}")
endif()
if(APPLE)
  # Homebrew keeps it apart from the system's own.
  list(APPEND CMAKE_PREFIX_PATH /opt/homebrew/opt/openssl@3 /usr/local/opt/openssl@3)
else()
  find_program(WEFT_MOLD mold)
  find_program(WEFT_LLD ld.lld)
  if(WEFT_MOLD)
    add_link_options(-fuse-ld=mold)
  elseif(WEFT_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# The interface target that every library of the tree links.
#
# -ffp-contract=off is part of the same-bits rule: a fused multiply-add happens
# where the code says std::fma or an intrinsic, never where a compiler fancies.
add_library(weft_options INTERFACE)
# Warnings are errors with the compilers that `make check` uses; others warn of other things.
set(werror "")
if("${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" MATCHES "^(GNU 12|Clang 14)\\.")
  set(werror -Werror)
endif()
target_compile_options(weft_options INTERFACE
  -Wall -Wextra ${werror} -Wno-unused-parameter -Wno-missing-field-initializers
  -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these falsely inside std::string, std::variant and std::optional.
  target_compile_options(weft_options INTERFACE
    -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
  if(CMAKE_UNITY_BUILD)
    # To it, several sources in one file are headers, whose types everybody could see.
    target_compile_options(weft_options INTERFACE -Wno-subobject-linkage)
  endif()
else()
  target_compile_options(weft_options INTERFACE -Wthread-safety)
  # libc++ before LLVM 20 has std::stop_token, but shows it only to those who ask.
  target_compile_definitions(weft_options INTERFACE _LIBCPP_ENABLE_EXPERIMENTAL)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(weft_options INTERFACE WEFT_DEBUG=1)
endif()
# Messages name a file from the top of the tree or of the build, so that a build in another folder
# has the same bytes. With a `base_dir`, ccache names files relative to the build.
file(RELATIVE_PATH from_build "${PROJECT_BINARY_DIR}" "${WEFT_ROOT}/")
foreach(top "${from_build}" "${WEFT_ROOT}/" "${PROJECT_BINARY_DIR}/")
  target_compile_options(weft_options INTERFACE
    "$<$<CONFIG:Release>:-fmacro-prefix-map=${top}=>")
endforeach()
target_include_directories(weft_options INTERFACE
  $<BUILD_INTERFACE:${WEFT_ROOT}/src>
  $<BUILD_INTERFACE:${WEFT_ROOT}/lib>
  $<BUILD_INTERFACE:${WEFT_ROOT}/include>)
# Debian's headers are not ours to warn about.
target_link_libraries(weft_options INTERFACE Threads::Threads)

if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
  if(WEFT_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
    # Clang before 17 cannot mark coroutines for this check, and ends with an error.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 17)
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
endif()
if(WEFT_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Most of the time that a file takes to compile goes into the headers it includes, so the
# presets that build everything compile 24 files of a target at once. SEPARATE names the
# sources that stay alone, because they give a meaning of their own to a name that others
# have too. (The preset `dev` compiles every file alone: better to work with, and it sees an
# include that is missing.)
function(separate_sources)
  foreach(source IN LISTS ARGN)
    set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# weft_library(NAME SOURCES a.cc ... [SEPARATE b.cc ...] [DEPS weft_base ...])
function(weft_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;SEPARATE;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES} ${arg_SEPARATE})
  separate_sources(${arg_SEPARATE})
  target_link_libraries(${name} PUBLIC weft_options ${arg_DEPS})
endfunction()

# weft_test(NAME [ONE_THREAD | UNINSTRUMENTED] SOURCES a_test.cc ... [SEPARATE b_test.cc ...]
#   [DEPS ...] [LABELS ...] [TIMEOUT SECONDS]): one test binary, its cases found at test
# time. Two kinds are not run under the thread sanitizer: ONE_THREAD, which start no second
# thread, and UNINSTRUMENTED, whose threads are mostly a library's that it cannot see into.
# Tests with the label conformance are about numbers: no sanitizer runs them. Sanitizers get
# four times the time. Test cases are compiled with little optimisation, to compile sooner; the
# code under test is optimised. The target weft_tests builds them all.
add_custom_target(weft_tests)
function(weft_test name)
  cmake_parse_arguments(arg "ONE_THREAD;UNINSTRUMENTED" "TIMEOUT" "SOURCES;SEPARATE;DEPS;LABELS" ${ARGN})
  if(NOT WEFT_TESTS OR (WEFT_SANITIZE AND "conformance" IN_LIST arg_LABELS) OR
      (WEFT_SANITIZE MATCHES "thread" AND (arg_ONE_THREAD OR arg_UNINSTRUMENTED)))
    return()
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_SEPARATE})
  separate_sources(${arg_SEPARATE})
  add_dependencies(weft_tests ${name})
  if(WEFT_SANITIZE MATCHES "thread")
    target_sources(${name} PRIVATE ${WEFT_ROOT}/tests/support/tsan_defaults.cc)
  endif()
  target_link_libraries(${name} PRIVATE weft_options ${arg_DEPS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${WEFT_ROOT}")  # tests/support/...
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O1)
  endif()
  target_compile_definitions(${name} PRIVATE
    WEFT_SOURCE_DIR="${WEFT_ROOT}" WEFT_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  if(WEFT_SANITIZE)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

# weft_fuzzer(NAME SOURCES x_fuzz.cc [DEPS ...]): a libFuzzer binary, under
# WEFT_FUZZ only. Seeds lie in tests/fuzz/corpus/NAME.
function(weft_fuzzer name)
  if(NOT WEFT_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE weft_options ${arg_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY WEFT_FUZZERS ${name})
endfunction()
