# Writes OUTPUT: a header with the commit that is being built, only when it has changed.
# Run as: cmake -DSOURCE=<dir> -DOUTPUT=<file> -P write_commit.cmake
find_program(GIT git)
set(commit "unknown")
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed
                  ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${GIT} status --porcelain --untracked-files=no -- src bench apps cmake
                    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      set(commit "${commit}-modified")
    endif()
  endif()
endif()
set(text "#pragma once\n#define REPLAYSSM_COMMIT \"${commit}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT "${old}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
