# Installs the programs to an empty place and has each say what it is.
#
#   cmake -DBUILD=build folder -DWORK=scratch folder -P programs.cmake
file(REMOVE_RECURSE ${WORK})
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK} --component program
  COMMAND_ERROR_IS_FATAL ANY)
foreach(program weft weft-make-model weft-quantize)
  execute_process(COMMAND ${WORK}/bin/${program} --help OUTPUT_VARIABLE help
    COMMAND_ERROR_IS_FATAL ANY)
  if(NOT help MATCHES "Usage: ")
    message(FATAL_ERROR "${program} --help says: ${help}")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK})
