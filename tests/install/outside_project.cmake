# Installs the libraries to an empty place and builds and runs examples/ against them, as
# another project would.
#
#   cmake -DBUILD=build folder -DEXAMPLES=examples -DWORK=scratch folder -DMODEL=model file
#         -P outside_project.cmake
file(REMOVE_RECURSE ${WORK})
foreach(step
    "--install;${BUILD};--prefix;${WORK}/prefix;--component;development"
    "-S;${EXAMPLES};-B;${WORK}/build;-DCMAKE_PREFIX_PATH=${WORK}/prefix;-DCMAKE_BUILD_TYPE=Release"
    "--build;${WORK}/build")
  execute_process(COMMAND ${CMAKE_COMMAND} ${step} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${WORK}/build/three_conversations ${MODEL} COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${WORK})
