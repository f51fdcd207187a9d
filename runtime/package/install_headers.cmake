# Installs the public headers (the include/colibri folders) and, below them, the internal ones
# that they include; or writes them into the build, for a project that has Colibri in its tree. Sources name internal headers from the project's root ("io/status.hpp");
# installed, that would meet a host's own folders, so they become <colibri/io/status.hpp>.
#
# In: COLIBRI_SOURCE, the project; COLIBRI_PUBLIC_HEADERS, below it; COLIBRI_HEADERS, where they go.
cmake_policy(VERSION 3.22)
set(waiting ${COLIBRI_PUBLIC_HEADERS})
set(done "")
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST done)
    continue()
  endif()
  list(APPEND done ${header})
  # Read as lines would lose semicolons and brackets; as a whole, text stays what it is.
  file(READ ${COLIBRI_SOURCE}/${header} text)
  string(REGEX MATCHALL "#include \"[a-z0-9_/]+\\.hpp\"" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" included "${include}")
    if(NOT EXISTS ${COLIBRI_SOURCE}/${included})
      message(FATAL_ERROR "${header} includes ${included}, which is not in ${COLIBRI_SOURCE}")
    endif()
    list(APPEND waiting ${included})
  endforeach()
  string(REGEX REPLACE "#include \"([a-z0-9_/]+\\.hpp)\"" "#include <colibri/\\1>" text "${text}")
  string(REGEX REPLACE "^(stages|runtime)/include/colibri/" "" place "${header}")
  set(target "${COLIBRI_HEADERS}/${place}")
  file(WRITE "${target}.new" "${text}")
  file(COPY_FILE "${target}.new" "${target}" ONLY_IF_DIFFERENT)
  file(REMOVE "${target}.new")
  if(NOT PROJECT_NAME)
    message(STATUS "Installed: ${target}")
  endif()
endwhile()
