# Compiles what README shows of the library, against an installed Weft that pkg-config finds and
# with warnings as errors, and runs it.
#
#   cmake -DBUILD=build folder -DSOURCE=source folder -DCOMPILER=C++ compiler -DWORK=scratch folder
#         -DMODEL=model file -P readme_snippet.cmake
find_program(PKG_CONFIG pkg-config)
if(NOT PKG_CONFIG)
  message("there is no pkg-config here")
  return()
endif()
file(REMOVE_RECURSE ${WORK})
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component development
  COMMAND_ERROR_IS_FATAL ANY)
file(READ ${SOURCE}/README.md readme)
string(REGEX MATCH "As a library.*```cpp\n([^`]*)```" found "${readme}")
if(NOT found)
  message(FATAL_ERROR "README shows no library")
endif()
set(code "${CMAKE_MATCH_1}")
string(REPLACE "model.gguf" "${MODEL}" code "${code}")
file(WRITE ${WORK}/snippet.cc
  "#include <iostream>\n\n#include \"weft/engine.h\"\n\nint main() {\n${code}}\n")
file(GLOB_RECURSE pc ${WORK}/prefix/*/weft.pc)
get_filename_component(folder ${pc} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${folder})
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs weft OUTPUT_VARIABLE flags
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(
  COMMAND ${COMPILER} -Wall -Wextra -Werror ${WORK}/snippet.cc -o ${WORK}/snippet ${flags}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/snippet OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
if(said STREQUAL "")
  message(FATAL_ERROR "the snippet said nothing")
endif()
file(REMOVE_RECURSE ${WORK})
