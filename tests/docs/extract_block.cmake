# extract_block(PAGE BEGIN RESULT): the text of the fenced block of a Markdown page that starts with
# BEGIN, which is the fence and what follows. A page without it stops the configuration.
function(extract_block page begin result)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${page})
  file(READ ${PROJECT_SOURCE_DIR}/${page} text)
  string(FIND "${text}" "${begin}" start)
  if(start EQUAL -1)
    message(FATAL_ERROR "${page} has no block that starts with ${begin}")
  endif()
  string(SUBSTRING "${text}" ${start} -1 text)
  string(FIND "${text}" "\n" fence_end)
  math(EXPR start "${fence_end} + 1")
  string(SUBSTRING "${text}" ${start} -1 text)
  string(FIND "${text}" "```" length)
  string(SUBSTRING "${text}" 0 ${length} text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# write_block(TEXT FILE): writes it below the binary folder, only when it differs, so that configuring again
# compiles nothing.
function(write_block text file)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${file} CONTENT "${text}" @ONLY)
endfunction()
