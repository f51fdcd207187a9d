# Fails if an object built for AVX2 or AVX-512 offers an inline function to the linker: a
# copy with such instructions could replace the generic one and crash an older processor.
# -DNM=nm -DOBJECTS=a.o|b.o|...
string(REPLACE "|" ";" objects "${OBJECTS}")
list(FILTER objects INCLUDE REGEX "/avx(2|512)/[a-z0-9_]+\\.cpp")
if(NOT objects)
  message(FATAL_ERROR "no objects of the instruction-set folders in: ${OBJECTS}")
endif()
foreach(object IN LISTS objects)
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [Wu] [^\n]+" weak "${symbols}")
  if(weak)
    message(SEND_ERROR "weak symbols in ${object}; give them internal linkage: ${weak}")
  endif()
endforeach()
